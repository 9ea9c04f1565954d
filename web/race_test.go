//go:build race

package web

// raceEnabled says that the race detector is on.
const raceEnabled = true
