package natsbus

import "testing"

// A node that hears one for the first time greets it at once, and only then.
func TestUnknownNodesAreGreeted(t *testing.T) {
	n := newNodes(nil)
	for i, want := range []int{1, 0} {
		n.hear("other", signAlive)
		if len(n.greet) != want {
			t.Errorf("sign of life %d: %d greetings, want %d", i+1, len(n.greet), want)
		}
		if want > 0 {
			<-n.greet
		}
	}
}
