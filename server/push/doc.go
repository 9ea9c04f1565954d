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
// The package is what a program sees: [Config], and the calls of a [Server]. Below it are packages
// which need no server, and which protocols use without it:
//
//   - Package hub holds the sessions of clients and the channels, and has the contract of a [Door],
//     which is one protocol. Those that there are stand in folders below doors. Another one is a
//     type with two methods: hub.Door says what it does, in which order, and where it may block;
//     fifthdoor_test.go has a whole one.
//   - Package policy is what is allowed in channels, answer what is said when something fails, guard
//     who may use the server over HTTP. Package token checks tokens.
//   - Package bus is the contract of the Bus, which carries a [Publication] between nodes; package
//     membus is the bus within one process. names.go has the names that programs see here, too.
//   - calls.go is what a program does with the server; package api, which is the HTTP and the gRPC
//     API, encodes these calls. cluster.go asks all nodes. figures.go is what operators see, in
//     package console; metrics.go is for Prometheus.
//
// What holds throughout:
//
//   - There is no goroutine, timer or read buffer per client; a session is less than 200 bytes.
//   - Nothing waits for a client. What it does not read is queued, up to Limits.Queue; above that
//     limit the client is disconnected or, under a policy that drops, misses publications.
//   - Time, randomness, sockets and the bus are injected, so that a simulation can run the same
//     code.
package push
