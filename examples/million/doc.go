//go:build linux

// Command million holds a million WebSocket subscribers on one small machine, has the servers ping
// each, reaches each by a publication, and says what that took:
//
//	go run ./examples/million                           a million, where nothing else runs
//	go run ./examples/million --connections 100000      a tenth of it, about 2 minutes
//
// # What it starts
//
// A process may usually open some 20,000 descriptors. So the subscribers are spread over as many
// processes of `myriad serve` as that takes, and as many processes that hold the other ends, by
// package server/load. For a million with a limit of 20,000 that is 54 and 54.
//
// The servers are the nodes of one cluster: they follow one NATS server, which this program runs
// itself (`myriad serve --nats`). The publication is one HTTP request to one of the servers. It
// reaches the others through NATS, and 54 nodes subscribe to the one channel. A cluster with a NATS
// server in each node (`--cluster-listen`) would have 54 of them on two processors, all connected
// to all others, and would measure NATS. Nothing keeps a history here.
//
// # What stops a naive version
//
//   - Source ports. Past about 14,000 connections from one address to one address and port, connect
//     becomes a hundred times slower. Each load process has four addresses of 127.0.0.0/8, and each
//     server a port.
//   - Limits of the kernel: the preflight (preflight.go) names each, and refuses to start.
//   - Pings. A million in a minute, and their answers, are more than two processors manage beside a
//     publication, and subscribers whose answer is late are disconnected. So a million is held for
//     four minutes, and each is pinged once in them.
//   - Memory. The kernel takes more than the processes do. The run stops when less is left than
//     --reserve.
//
// # What it leaves behind
//
// Nothing. All processes that it starts are in one process group, which it kills at the end, and
// when it is interrupted, runs out of time or memory, or a server ends. Then it waits until the
// group is empty. If this program is killed, the kernel kills the servers, and the load processes
// end because their input does.
//
// # Reading the code
//
// main.go has the course of a run, family.go the processes, broker.go NATS, watch.go the one who
// looks after a run, proc.go what the kernel says, and outcome.go the figures.
package main
