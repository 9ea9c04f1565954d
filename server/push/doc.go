// Package push is the push server: clients subscribe to channels, and what is published to a
// channel reaches all of them.
//
// Read it in this order. A [Publication] enters through apipublish.go (HTTP; the table of the API
// is in api.go) or command.go (a client's own), and goes to the Bus (bus.go is its contract,
// memorybus.go the one within a process), which keeps it (stream.go) as long as the rules of the
// channel say (namespace.go). The bus gives it to the channel (channel.go, found by hub.go), which
// encodes it once for each wire (wire.go) and offers the bytes to every session (session.go) by
// reference. A session hands them to its transport: a WebSocket (websocket.go, whose commands are
// run by command.go) or a stream of events (events.go). Time reaches sessions through the wheel
// (wheel.go). A client that comes back gets what it has missed (recover.go); one that is slow is
// disconnected or misses something (slow.go). node.go holds all this together, server.go puts HTTP
// in front of it.
//
// What holds throughout:
//
//   - No goroutine, timer or read buffer per client; a session is less than 200 bytes.
//   - Nothing waits for a client. What it does not read is queued up to Limits.Queue, and then it
//     is disconnected.
//   - Time, randomness, sockets and the bus are given from outside, so that a simulation can run
//     the same code.
//
// Deliberately absent for now: Protobuf, server-side subscriptions, a Bus that spans nodes.
package push
