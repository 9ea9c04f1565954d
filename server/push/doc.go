// Package push is the push server: clients subscribe to channels, and what is published to a
// channel reaches all of them. The command myriad serve is this package with options; a program
// can embed it:
//
//	pusher, err := push.New(push.Config{APIKey: key, TokenSecret: secret})
//	if err != nil {
//		log.Fatal(err)
//	}
//	go web.ListenAndServe("127.0.0.1:8000", pusher)
//	err = pusher.Publish(ctx, "news", []byte(`{"text": "hello"}`))
//
// # Reading the code
//
// Read it in this order:
//
//   - Package bus is the contract of the Bus, which carries a [Publication] between nodes; package
//     membus is the bus within one process. names.go has the names that programs see here, too.
//   - namespace.go has the rules of channels.
//   - package token checks tokens; grant.go is what the server makes of one.
//   - calls.go is what a program does with the server; the HTTP and gRPC APIs (api.go is their
//     table) encode these calls. operations.go and subscription.go are what clients may do,
//     whatever protocol they speak.
//   - door.go is the seam to the protocols: Centrifuge (centrifugecommands.go and its neighbours)
//     and Server-Sent Events (events.go).
//   - channel.go receives publications from the bus, encodes them once for each form of a door, and
//     offers the bytes to its sessions by reference; hub.go finds the channel.
//   - Session.go is one client over a transport: a WebSocket (websocket.go) or a response that does
//     not end (streamtransport.go). The wheel (wheel.go) calls sessions at their deadlines.
//   - recover.go sends returning clients what they have missed; slow.go drops publications for slow
//     clients.
//   - node.go holds sessions, channels, bus and time together; server.go adds HTTP.
//
// What holds throughout:
//
//   - There is no goroutine, timer or read buffer per client; a session is less than 200 bytes.
//   - Nothing waits for a client. What it does not read is queued, up to Limits.Queue; above that
//     limit the client is disconnected or, under a policy that drops, misses publications.
//   - Time, randomness, sockets and the bus are injected, so that a simulation can run the same
//     code.
//
// Not implemented: map subscriptions and shared polls of the Centrifuge protocol.
package push
