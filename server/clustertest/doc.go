// Package clustertest proves by failure what docs/guides/cluster.md promises: it runs three nodes
// as processes, with subscribers that recover and publishers that retry. Then it kills, stops, cuts
// off or damages nodes. It counts what was acknowledged and lost, what came twice, and what came
// out of order.
//
// These tests show the rows of the guide's table; those of natsbus need no processes:
//
//   - a node is killed, hangs or is lost: TestKilled, TestStopped, TestReplaced; other logs go on:
//     natsbus's TestLogWithoutLeaderHoldsUpNoOther
//   - a node stops: TestRollingRestart, natsbus's TestStepDown
//   - all processes are killed: TestAllKilled
//   - power fails: no test cuts the power; natsbus's TestSyncAlwaysByDefault, and TestAllCut for
//     what is lost
//   - disks lose the end of a log: TestAllCut, natsbus's TestEpochAfterCutFiles
//   - most nodes are down: natsbus's TestPublishWithoutQuorum and TestPassingWithoutQuorum
//   - a disk is full: TestDiskFull
//   - a link is cut: TestLinkCut, TestStopped
//   - one of two nodes is down or lost: TestTwoNodes, TestTwoNodesLoseDisk
//
// How to run them:
//
//	go test ./server/clustertest                    one kill with few subscribers, and two nodes
//	MYRIAD_SOAK=1 go test ./server/clustertest      all failures, 3,000 subscribers, 2,000 publications a second
//	MYRIAD_CLUSTER_KILLS=100 go test -run Killed -timeout 1h ./server/clustertest
package clustertest
