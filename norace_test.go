//go:build !race

package myriad

const raceEnabled = false
