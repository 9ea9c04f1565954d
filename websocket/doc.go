// Package websocket serves WebSockets (RFC 6455) on Myriad's engine. An idle connection has no
// goroutine, no buffer and no timer object: it costs 96 bytes of this package, and the engine's
// own.
//
//	var room websocket.Group
//	options := &websocket.Options{
//		OnOpen:    func(c *websocket.Conn) { room.Join(c) },
//		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) { room.Send(op, p) },
//	}
//	http.HandleFunc("/chat", func(w http.ResponseWriter, r *http.Request) {
//		websocket.Accept(w, r, options)
//	})
//	log.Fatal(web.ListenAndServe("127.0.0.1:8080", nil))
//
// There are three ways to a [Conn]:
//
//   - [Accept] answers a request of an http.Handler. On web.Server the connection stays on its
//     loop. With HTTP/2 it is a stream of one (RFC 8441), if web.Server.Tunnels is set. From another
//     server that can be hijacked, such as net/http's, an engine adopts it: examples/chat. For HTTPS
//     give net/http a listener of tlsloop.
//   - [Handler] serves raw connections of an engine, for addresses with WebSockets only.
//   - [Dial] connects to a server, also with TLS, through a proxy, or after redirects.
//
// [Options] has the callbacks: OnOpen first, OnMessage for each message in order, OnClose last, one
// at a time. They may block, because they run on a bounded pool until they have been quick many
// times (Options.Dispatch). Any goroutine may call [Conn.Write]. It waits only while the peer reads
// too slowly; [Overflow] has other choices.
//
// A program that waits for messages sets Options.Pull and calls [Conn.Read] and
// [Conn.WriteContext], or uses a net.Conn from [NetConn]. The connection is not read from the
// network while no goroutine reads from it.
//
// # To many
//
// A [Group] sends a message to all its members. Call Join in OnOpen, or after the answer to a
// subscription, and Leave when it ends. The message is framed once, compressed once, and queued by
// reference. Each loop with members gets it once, and gives all messages of its poll cycle to each
// member before it sends. [Prepare] does the same for messages to other sets of connections. A
// member without room gets messages later, and one that does not read is removed: [Overflow] has
// the policies, and Group.OnFull is called with removed members.
//
// # Compression
//
// [Compression] negotiates permessage-deflate (RFC 7692). By default each message stands for
// itself, compressors are shared by the process, and a connection costs no byte more. With a
// window, messages refer to earlier ones, and the connection keeps that much of them. What a
// message inflates to is bounded while it is inflated, so that a bomb costs what MaxMessage allows.
//
// # What is bounded
//
// A message above Options.MaxMessage closes the connection with 1009. Output waits up to
// Options.WriteLimit; then Write waits for up to Options.WriteTimeout, or does what
// Options.Overflow says: fail, drop whole messages, thin them out, or close. A Group keeps up to 16
// MiB on each loop, and all groups of an engine 64 MiB, for members that have no room. Messages
// wait for slow callbacks up to 128 or 256 KiB for each connection; then it is not read until half
// of them are done. Memory for an incomplete message follows what has arrived. Handshake, pong and
// close have a timeout each.
//
// # What is answered without being asked
//
// Each ping gets its pong while at most 16 pongs wait in the output. Of more pings that come in one
// read, or while the output does not move, only the last is answered besides, as RFC 6455 §5.5.3
// allows. That holds for a peer that reads, too: one that sends 100 pings in one segment gets 17
// pongs. A close frame gets its echo. A violation of the protocol gets a close frame with the
// fitting code. A peer that has been silent for Options.PingInterval gets a ping, and
// Options.PongTimeout to send anything at all, from when the ping has left. Conn.AwaitAnswer is for
// protocols whose pings are messages.
//
// # Stopping
//
// An engine's Shutdown closes its connections with StatusGoingAway and waits for the closing
// handshakes, each up to the CloseTimeout, and in all until its context ends. Without
// Options.Engine that is the engine of myriad.Default. Neither the Shutdown nor the Close of a
// web.Server or an http.Server touches WebSockets: call the server's Shutdown first, so that no new
// ones come, and then the engine's. A WebSocket over HTTP/2 is different, because its connection
// stays the server's: web.Server's Shutdown closes it in the same way, and Close resets it.
// Group.Close ends the members of one group, and its code and reason are the caller's.
package websocket
