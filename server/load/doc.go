// Package load makes load on a server and measures it from its clients' side. The command myriad
// load is this package with flags; a program can embed it:
//
//	plan := load.Plan{Kind: load.HTTP, URL: "http://127.0.0.1:8000/", Connections: 1000, Duration: 10 * time.Second}
//	report, err := load.Run(ctx, plan, load.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	report.WriteText(os.Stdout)
//
// # Reading the code
//
//   - plan.go says what can be asked for, and refuses what cannot be done.
//   - opener.go decides when a connection is opened, and pacer.go how fast.
//   - lane.go decides when a link sends: it has the closed loop and the open one. A link (link.go,
//     socket.go) is one connection that makes requests, or one stream of HTTP/2 (http2.go).
//   - subscriber.go is a connection that receives publications; centrifuge.go, events.go and rooms.go
//     are the protocols that it may speak. arrivals.go is subscribers that come and leave.
//   - worker.go is one process's share of a plan, and usage.go what it uses of its machine. fleet.go
//     starts the workers, here and on other hosts, and adds up what they have counted (sample.go).
//   - report.go, compare.go, page.go and view.go show it.
//
// # What it counts
//
// In the closed loop each connection sends its next request when it has the last reply, as wrk
// does. In the open loop (Plan.Rate) request k is due at k/Rate, whatever the server does. Latency
// counts from that moment, also if no connection was free then, so that a server that stops is
// charged for all requests that were due meanwhile: there is no coordinated omission.
//
// Publications carry a number and the time at which they were due. Every subscriber checks the
// numbers: what it misses, and what it gets twice or too late, is counted.
//
// # What is bounded
//
// The memory of a run follows the number of its connections, not its length. Latencies are
// histograms. Of publications each process remembers the last 4,096 until all subscribers have
// them. Connections are opened a few hundred at a time. A reply may take Plan.Timeout.
package load
