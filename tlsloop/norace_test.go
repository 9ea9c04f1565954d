//go:build !race

package tlsloop_test

const raceEnabled = false
