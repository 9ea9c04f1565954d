//go:build race

package websocket

// raceEnabled says that the race detector is on, which makes sync.Pool forget on purpose.
const raceEnabled = true
