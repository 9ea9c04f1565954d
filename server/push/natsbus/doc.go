// Package natsbus is a bus.Bus that spans nodes, over NATS with JetStream: in this process, or an
// external one.
//
//	server, err := natsbus.StartServer(natsbus.ServerConfig{Name: "n1", Dir: "/var/lib/myriad",
//		Listen: "10.0.0.1:6222", Routes: []string{"10.0.0.2:6222", "10.0.0.3:6222"}, Secret: secret, TLS: tls})
//	bus, err := natsbus.Open(ctx, natsbus.Config{Server: server, Dir: "/var/lib/myriad/seals", Synced: true})
//	pusher, err := push.New(push.Config{Bus: bus, Doors: doors.All(doors.Config{})})
//	…
//	err = errors.Join(pusher.Shutdown(ctx), bus.Close())
//	server.Shutdown()
//
// # Logs
//
// The channels of one retention share a few logs: streams of JetStream, each stored by three nodes.
// Every node follows every log as a whole (follow.go). A publication's offset is its sequence
// number in the log. So offsets rise, and a node sees at once when a message of a log is missing,
// whichever channel it belongs to (fill.go).
//
// Publish returns when the node has received its publication from the log (publish.go); what is
// acknowledged is stored by most nodes. History reads from the nearest replica, up to the place
// that the node has followed (history.go).
//
// What has no retention goes through NATS alone: nodes whose link is down miss it.
//
// # Epochs
//
// A log that has lost its end, with the disks or a power failure, uses sequence numbers again.
// Three checks notice that, and begin a new epoch (epoch.go): clients are told that they have not
// recovered.
//
// # Presence and questions
//
// Who is present is asked of all nodes, and stored nowhere (nodes.go).
//
// # Limits
//
//   - Config.LogBytes bounds each log, Config.PositionAge the time for which positions are valid.
//   - 64 Ki messages wait for a follower that does not get on; above that it reads them from the
//     log.
//   - A publication has at most 8 MiB with its tags, less a few bytes; Publish refuses a longer
//     one.
//   - A node that does not answer a question within two seconds is named as missing.
//   - There are at most 16 retentions.
package natsbus
