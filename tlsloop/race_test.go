//go:build race

package tlsloop_test

const raceEnabled = true
