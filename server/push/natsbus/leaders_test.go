package natsbus

import "testing"

// A node that steps down leads nothing, and publications go on without a gap.
func TestStepDown(t *testing.T) {
	t.Parallel()
	nodes := trio(t, cluster(t, 3))
	for _, b := range nodes {
		publish(t, b, "1") // each follows the log now
	}
	leader := func() string {
		i, err := nodes[0].logs.streams.info(within(t), nodes[0].State().Logs[0].Name)
		if err != nil || i.Cluster == nil || i.Config.Replicas < 3 {
			return ""
		}
		return i.Cluster.Leader
	}
	eventually(t, "the log has three replicas", func() bool { return leader() != "" })
	old := leader()
	for _, b := range nodes {
		if b.node == old {
			b.StepDown(within(t))
		}
	}
	publish(t, nodes[0], "2")
	eventually(t, "another node leads", func() bool { now := leader(); return now != "" && now != old })
}
