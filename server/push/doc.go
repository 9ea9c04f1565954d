// Package push is the push server: clients subscribe to channels, and what is published to a
// channel reaches all of them. The command myriad serve is this package with options; a program can
// embed it:
//
//	pusher, err := push.New(push.Config{APIKey: key, TokenSecret: secret, Doors: doors.All(doors.Config{})})
//	if err != nil {
//		log.Fatal(err)
//	}
//	go web.ListenAndServe("127.0.0.1:8000", pusher)
//	err = pusher.Publish(ctx, "news", []byte(`{"text": "hello"}`))
//
// # Reading the code
//
// The package is what all protocols share, and names none of them. Each protocol is a [Door] in a
// folder below doors. One that is not there is a type with two methods: see door.go, and
// fifthdoor_test.go, which has a whole one.
//
//   - door.go is the seam: Door, [Form], [Transport]. seam.go is what a door asks of its [Server],
//     operations.go and subscription.go what it does with the [Session] of a client. A publication
//     is encoded for a client by its door's form, in Form.Publications.
//   - calls.go is what a program does with the server; package api, which is the HTTP and the gRPC
//     API, encodes these calls. figures.go is what operators see, in package console.
//   - Package bus is the contract of the Bus, which carries a [Publication] between nodes; package
//     membus is the bus within one process. names.go has the names that programs see here, too.
//   - namespace.go has the rules of channels. Package token checks tokens; permissions.go is what the
//     server makes of one.
//   - channel.go receives publications from the bus, has them encoded once for each form, and offers
//     the bytes to its sessions by reference; hub.go finds the channel.
//   - session.go is one client over a transport: a WebSocket or a response that does not end
//     (transports.go). The wheel (wheel.go) calls sessions at their deadlines.
//   - A client that reads too slowly is disconnected by Session.TooSlow, in session.go, or misses
//     publications under a policy that drops, in slow.go. recover.go sends clients that return what
//     they have missed.
//   - node.go holds sessions, channels, bus and time together; server.go adds HTTP.
//
// What holds throughout:
//
//   - There is no goroutine, timer or read buffer per client; a session is less than 200 bytes.
//   - Nothing waits for a client. What it does not read is queued, up to Limits.Queue; above that
//     limit the client is disconnected or, under a policy that drops, misses publications.
//   - Time, randomness, sockets and the bus are injected, so that a simulation can run the same
//     code.
package push
