// Package resp serves RESP, the protocol of Redis, in versions 2 and 3, on the loops of an engine.
// This is a server with two commands:
//
//	mux := resp.NewMux()
//	mux.Handle("SET", 3, func(w *resp.Reply, c *resp.Command) {
//		store.Set(string(c.Args[1]), bytes.Clone(c.Args[2]))
//		w.OK()
//	}, "Set a key.")
//	mux.Handle("GET", 2, func(w *resp.Reply, c *resp.Command) { w.Bulk(store.Get(string(c.Args[1]))) }, "Get a key.")
//	server := &resp.Server{Handler: mux}
//	err := server.ListenAndServe("127.0.0.1:6380")
//
// And this is a client, whose connections all goroutines share:
//
//	client := &resp.Client{Addr: "127.0.0.1:6380"}
//	v, err := client.Do(ctx, "GET", "greeting")
//
// The Server answers what is about the connection itself: HELLO, AUTH, CLIENT, RESET, QUIT and
// PING. The Mux answers wrong calls, in the words of Redis. A PubSub adds channels.
//
// # Order
//
// The commands of a connection run one at a time, in the order in which they came, on the loop or
// on a pool (Dispatch). The replies to a pipeline leave together. Messages that other goroutines
// push (Conn.Push) come between two replies, never inside of one.
//
// # Limits
//
//   - What a peer sends: Limits. A length that is announced costs nothing before its bytes come.
//     A line has at most 64 KiB. A peer that has not authenticated may send 10 arguments of 16 KiB.
//   - What waits behind commands that run: 256 KiB; then the connection is not read.
//   - What a peer has not read: Server.WriteLimit. While replies exceed it, no more commands run. For
//     pushed messages, Overflow decides.
//   - What a handler returns: each reply is kept in memory until it is queued, so a handler that
//     builds large ones bounds them itself.
//
// # The client
//
// A Client has a few connections. Commands that goroutines give at the same time leave in one
// write. Start has a function called with the reply, without a goroutine that waits; Subscribe has
// one called with messages. The client connects again by itself, and waits longer after each
// attempt that fails. Its limits are MaxPending commands on each connection, and Limits of replies.
//
// A command ends in bounded time, whatever the server does. An attempt to connect takes at most
// DialTimeout, and a server with replies to send may be silent for twice Silence at most. A
// connection that is being made, or that takes no more bytes, holds up no command while another one
// has room. When the connection of the subscriptions breaks, the client subscribes again. For each
// subscription it calls OnLost, behind the last message before the gap and before the first one
// after it.
//
// # The codec
//
// Package wire has the protocol as pure functions on bytes, which read and write commands and
// values.
package resp

import "github.com/myriad-go/myriad/resp/wire"

// What package wire declares, and this package's API names.
type (
	Protocol      = wire.Protocol
	Limits        = wire.Limits
	Value         = wire.Value
	Error         = wire.Error
	ProtocolError = wire.ProtocolError
)

// The versions of the protocol. A connection begins with RESP2 and changes by HELLO 3.
const (
	RESP2 = wire.RESP2
	RESP3 = wire.RESP3
)
