package std

import (
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
)

// A member is a connection or a listener.
type member interface {
	// report emits what there is to tell, on the owner's goroutine.
	report(ev driver.Events)
	// interrupted is for when an event of report did not return: another report follows if there is
	// more to tell.
	interrupted()
}

// A mailbox is the list of members that have something to tell. Each is in it once at most, so it
// cannot grow beyond their number.
type mailbox struct {
	mu     sync.Mutex
	ready  []member
	spare  []member      // the room of the last list
	signal chan struct{} // holds a token if a member was put or Wake called since the last take
}

func newMailbox() mailbox { return mailbox{signal: make(chan struct{}, 1)} }

// put is for members that are not in it. Any goroutine.
func (b *mailbox) put(m member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = append(b.ready, m)
	b.token()
}

func (b *mailbox) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token()
}

func (b *mailbox) token() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// take empties it, and says whether there was a token.
func (b *mailbox) take() (ready []member, woken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.signal:
		woken = true
	default:
	}
	ready, b.ready, b.spare = b.ready, b.spare, nil
	return ready, woken
}

// giveBack returns the room of a list that has been read.
func (b *mailbox) giveBack(ready []member) {
	clear(ready)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare = ready[:0]
}
