//go:build race

package myriad

// raceEnabled says that the race detector is on.
const raceEnabled = true
