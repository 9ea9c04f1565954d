// Package websocket speaks RFC 6455 on Myriad's engine, without a goroutine, a buffer or a timer object for a connection that
// is silent: 104 bytes of this package, on top of the engine's own.
//
// A connection comes into being in one of three ways and is the same [Conn] afterwards:
//
//   - [Accept] answers a request of an http.Handler. On web.Server the connection stays where it is; on any other server that
//     can be hijacked, net/http's included, it is adopted by an engine.
//   - [Handler] speaks to raw connections of an engine, where nothing but WebSockets is served.
//   - [Dial] connects to a server.
//
// What happens on it is told to the callbacks in [Options]: OnOpen first, OnMessage in order, OnClose last, one at a time. They may
// block, because they run on a bounded pool unless Options.Dispatch says otherwise. What is written goes out by itself:
// [Conn.Write] never blocks and may be called by any goroutine.
//
// # What is bounded
//
// A message above Options.MaxMessage closes the connection with 1009. Output waits up to Options.WriteLimit; then Write fails with
// myriad.ErrFull and takes nothing. Messages wait for slow callbacks up to 128 or 256 KiB for each connection; then it is not read
// until half of them are done. Memory for an incomplete message follows what has arrived. Handshake, pong and
// close have a timeout each.
//
// # What is answered without being asked
//
// Pings get their pong, though a peer that floods without reading gets only the latest one answered, which RFC 6455 §5.5.3
// allows. A close frame gets its echo. A violation of the protocol gets a close frame with the fitting code. A peer
// that has been silent for Options.PingInterval gets a ping, and Options.PongTimeout to send anything at all.
//
// # Stopping
//
// An engine's Shutdown closes its connections with StatusGoingAway and waits for the closing handshakes, each up to the
// CloseTimeout. Neither a web.Server's Shutdown nor its Close touches them.
package websocket
