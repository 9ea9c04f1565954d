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
// Every node follows every log as a whole. A publication's offset is its sequence number in the
// log. So offsets rise, and a node sees at once when a message of a log is missing, whichever
// channel it belongs to.
//
// What has no retention goes through NATS alone (passing.go): nodes whose link is down miss it.
//
// The life of a publication, top to bottom:
//
//   - publish.go sends it to the log, and returns when the node has received it from there. What is
//     acknowledged is stored by most nodes.
//   - follow.go receives it on every node. What did not arrive the follower reads from the nearest
//     replica, or from the log's leader.
//   - deliver.go hands it to the receivers of the node, which topics.go lists, and tells Publish.
//   - progress.go says how far the node is, to all that wait for it.
//   - history.go reads from the end in memory (tail.go) and from the nearest replica, up to the
//     place that the node has followed.
//
// A log that has lost its end, with the disks or a power failure, uses sequence numbers again.
// Three checks notice that, and begin a new epoch (epoch.go, seal.go): clients are told that they
// have not recovered.
//
// logs.go has the followers of the node. streams.go creates the logs, and leaders.go moves their
// leaders. All of them use the API of JetStream (jetstream.go), by the requests of request.go over
// the connection of conn.go. The form of subjects is in names.go, that of messages in codec.go.
//
// # The other nodes
//
// nodes.go has the signs of life by which nodes know each other, and questions.go what they ask.
// Presence is stored nowhere: the node asks all others for their clients (presence.go).
//
// # The server
//
// server.go starts NATS in this process, and remove.go makes the cluster forget a node.
//
// # Moving to another process
//
// A Bus is a shell with a session (session.go). It moves to another process with its push.Server:
// the session ends there, and one that goes on from its places in the logs begins here (move.go,
// state.go). In the new process Await takes the place of Open, and NewServer that of StartServer:
//
//	server := natsbus.NewServer(config)
//	bus, err := natsbus.Await(natsbus.Config{Server: server, Dir: "/var/lib/myriad/seals", Synced: true})
//	pusher, err := push.New(push.Config{Bus: bus, Doors: doors.All(doors.Config{})})
//	taken, err := handover.Take(nc, program) // to which pusher was added
//
// The old process calls Bus.PrepareMove before handover.Give. gate.go has calls wait meanwhile, and
// hold.go the publications of other nodes that no log keeps.
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
