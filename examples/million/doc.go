//go:build linux

// Command million holds a million WebSocket subscribers on one small machine. The servers ping each
// of them, and one publication reaches all. The program prints what that took:
//
//	go run ./examples/million                           a million, where nothing else runs
//	go run ./examples/million --connections 100000      a tenth of it, about 2 minutes
//	go run ./examples/million --hold 8s                 as many as can be pinged each 5 seconds
//
// It opens connections as fast as the servers keep up. If the machine cannot hold all of them, it
// goes on with those that it holds, and says how many these are and why. With --pace off it opens
// them as fast as it can, and needs all.
//
// # What it starts
//
// A process may usually open some 20,000 descriptors. So there are several processes of `myriad
// serve`, and as many load processes (package server/load), which hold the other ends. A million
// connections with a limit of 20,000 take 54 and 54.
//
// The servers are the nodes of one cluster. They use one NATS server, which this program runs
// itself (`myriad serve --nats`). A NATS server in each node (`--cluster-listen`) would be 54 on
// two processors, each connected to all others: the run would measure NATS. The publication is one
// HTTP request to one server, and reaches the others through NATS. No channel has a history.
//
// # What stops a naive version
//
//   - Source ports. After about 14,000 connections from one address to one address and port,
//     connect takes a hundred times as long. So each load process has four addresses of
//     127.0.0.0/8, and each server has a port of its own.
//   - Limits of the kernel. preflight.go checks them. The program names those that are too low. It
//     takes fewer connections then, and with --pace off it does not start.
//   - Pings. Two processors cannot send a million pings, and take the answers, in one minute beside
//     a publication. The servers would disconnect subscribers whose answer is late. So the
//     connections are held for four minutes, in which each is pinged once.
//   - Turns of processes. Half of the processes are subscribers, which on machines of their own would
//     answer a ping at once. Here they would wait seconds for a processor, and be disconnected. So
//     the servers have a lower priority (nice), and the load processes take in what has come together
//     (chrt --batch).
//   - Memory. The kernel takes more than the processes. The run stops when less than --reserve is
//     left.
//
// # What it leaves behind
//
// Nothing. All processes that it starts are in one process group. The program kills the group at
// the end, when it is interrupted, when time or memory runs out, and when a server ends. Then it
// waits until the group is empty. If the program itself is killed, the kernel kills the servers,
// and the load processes end because their input ends.
//
// # Reading the code
//
//   - main.go: the steps of a run
//   - family.go: the processes
//   - broker.go: the NATS server
//   - watch.go: what stops a run early
//   - proc.go: what the kernel reports
//   - outcome.go: the figures
package main
