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

// A node that has not caught up does not say that it may lead when a move is given up.
func TestNodeThatStaysIsBehindUntilItHasCaughtUp(t *testing.T) {
	n := newNodes(newConn(Config{Node: "one"}))
	n.say.Store(uint32(signBehind))
	if before := n.goAway(); before != signBehind {
		t.Errorf("before: %d", before)
	}
	if n.stay(); sign(n.say.Load()) != signBehind {
		t.Errorf("it is behind, and says %d", n.say.Load())
	}
	n.goAway()
	n.setCurrent() // while it moves
	if said := sign(n.say.Load()); said != signAway {
		t.Errorf("it moves, and says %d", said)
	}
	if n.stay(); sign(n.say.Load()) != signAlive {
		t.Errorf("it has caught up, and says %d", n.say.Load())
	}
}
