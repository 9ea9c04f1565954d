package natsbus

import (
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A publication is settled for the calls that wait for its ID, and for no other; after forget
// nothing is kept.
func TestAwaitedAreSettledByID(t *testing.T) {
	a := awaitedPublishes{pending: make(map[string]*pendingPublish)}
	one, forgetOne := a.expect("1")
	again, forgetAgain := a.expect("1")
	two, forgetTwo := a.expect("2")
	for range 2 { // a log may deliver twice what was sent twice
		a.settle("1", bus.Position{Offset: 7})
		a.settle("unknown", bus.Position{Offset: 8})
	}
	if len(two.position) != 0 {
		t.Error("a publication was settled by another ID")
	}
	if at := <-again.position; at.Offset != 7 || len(one.position) != 0 {
		t.Errorf("settled at %v, and %d times more", at, len(one.position))
	}
	forgetAgain()
	forgetOne()
	forgetTwo()
	if len(a.pending) != 0 {
		t.Errorf("%d are still waited for", len(a.pending))
	}
}
