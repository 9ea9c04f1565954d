// Package clustertest proves by failure what docs/guides/cluster.md promises: it runs three nodes
// as processes, with subscribers that recover and publishers that retry. Then it kills, stops, cuts
// off or damages nodes. It counts what was acknowledged and lost, what came twice, and what came
// out of order.
//
//	go test ./server/clustertest                    one kill, with few subscribers
//	MYRIAD_SOAK=1 go test ./server/clustertest      all failures, 3,000 subscribers, 2,000 publications a second
//	MYRIAD_CLUSTER_KILLS=100 go test -run Killed -timeout 1h ./server/clustertest
package clustertest
