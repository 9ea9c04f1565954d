package drivertest

import (
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
)

var exitCases = []testCase{
	{"EventsThatDoNotReturn", eventsThatDoNotReturn},
	{"LastEventsThatDoNotReturn", lastEventsThatDoNotReturn},
	{"DialsThatDoNotReturn", dialsThatDoNotReturn},
	{"EventsThatEndTheirThread", eventsThatEndTheirThread},
}

// exiting ends the goroutine in each event, after it has been recorded.
type exiting struct{ events }

func (e exiting) Accepted(id driver.ID, s driver.Socket) { e.events.Accepted(id, s); runtime.Goexit() }
func (e exiting) AcceptFailed(id driver.ID, err error) {
	e.events.AcceptFailed(id, err)
	runtime.Goexit()
}
func (e exiting) Dialed(id driver.ID, local driver.Addr) {
	e.events.Dialed(id, local)
	runtime.Goexit()
}
func (e exiting) DialFailed(id driver.ID, err error)     { e.events.DialFailed(id, err); runtime.Goexit() }
func (e exiting) Received(id driver.ID, p []byte)        { e.events.Received(id, p); runtime.Goexit() }
func (e exiting) Ended(id driver.ID)                     { e.events.Ended(id); runtime.Goexit() }
func (e exiting) Sent(id driver.ID, n int64)             { e.events.Sent(id, n); runtime.Goexit() }
func (e exiting) Closed(id driver.ID, err error)         { e.events.Closed(id, err); runtime.Goexit() }
func (e exiting) Detached(id driver.ID, s driver.Socket) { e.events.Detached(id, s); runtime.Goexit() }

// mortal polls until done, on goroutines of which each ends in its first event. No other goroutine
// has polled before.
func (b *bed) mortal(what string, done func() bool) {
	b.Helper()
	if b.k.Capabilities().ThreadBound {
		b.Skipf("a driver bound to a thread stays on its goroutine: EventsThatEndTheirThread")
	}
	b.k.Exit = true
	for goroutines := 0; !done(); goroutines++ {
		over := make(chan struct{})
		go func() {
			defer close(over)
			b.until(what, done)
		}()
		<-over
		if b.Failed() || goroutines == mostPolls {
			b.Fatalf("%s: it does not come to an end, after %d goroutines", what, goroutines)
		}
	}
}

func all(conns []*Conn, is func(c *Conn) bool) func() bool {
	return func() bool {
		for _, c := range conns {
			if !is(c) {
				return false
			}
		}
		return true
	}
}

// mortals connects n peers.
func (b *bed) mortals(n int) (peers []Peer, conns []*Conn) {
	b.Helper()
	for range n {
		peers = append(peers, b.h.Dial(b.listener.Addr()))
	}
	b.mortal("all are accepted", func() bool {
		for _, p := range peers {
			if !p.Open() {
				return false
			}
		}
		return len(b.k.Accepted) == n
	})
	byAddr := map[driver.Addr]Peer{}
	for _, p := range peers {
		byAddr[p.Local()] = p
	}
	for i, c := range b.k.Accepted {
		peers[i] = byAddr[c.Remote]
	}
	return peers, b.k.Accepted
}

func eventsThatDoNotReturn(b *bed) {
	const n = 20
	b.start()
	peers, conns := b.mortals(n)
	want := pattern(3*readBuffer+7, 3)
	for _, p := range peers {
		p.Write(want)
	}
	b.mortal("all bytes are received", all(conns, func(c *Conn) bool { return len(c.In) >= len(want) }))
	back := pattern(4<<20, 9)
	for i, c := range conns {
		b.same("received", c.In, want)
		if i < 3 {
			c.Send(back)
			c.CloseWrite()
		}
		peers[i].CloseWrite()
	}
	b.mortal("all bytes are sent and all ends are heard",
		all(conns, func(c *Conn) bool { return c.Ended && c.Left() == 0 }))
	for i := range 3 {
		b.mortal("all bytes reach the peer", peers[i].Ended)
		b.same("the peer received", peers[i].Received(), back)
	}
}

// eventsThatEndTheirThread polls in deferred functions of the goroutine that each event ends, as
// the owner of a driver has to that is bound to a thread.
func eventsThatEndTheirThread(b *bed) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.start()
		b.k.Exit = true
		p := b.h.Dial(b.listener.Addr())
		want := pattern(3*readBuffer+7, 3)
		p.Write(want)
		p.CloseWrite()
		b.inDeferred("all bytes and the end are received", func() bool {
			return len(b.k.Accepted) == 1 && b.k.Accepted[0].Ended
		}, func() {
			c := b.k.Accepted[0]
			b.same("received", c.In, want)
			c.Close()
			b.inDeferred("it is closed", func() bool { return c.Over }, b.k.Shutdown)
		})
	}()
	<-over
	if !b.k.down && !b.Failed() {
		b.Fatalf("the driver was left before its Shutdown")
	}
}

// inDeferred polls until done, then calls next, on the calling goroutine, which events may end.
func (b *bed) inDeferred(what string, done func() bool, next func()) {
	reached := false
	defer func() {
		switch {
		case reached || b.Failed():
		case done():
			next()
		default:
			b.inDeferred(what, done, next)
		}
	}()
	b.until(what, done)
	reached = true
	next()
}

func lastEventsThatDoNotReturn(b *bed) {
	const n = 24
	b.start()
	peers, conns := b.mortals(n)
	for i, c := range conns {
		var err error
		switch i % 4 {
		case 0:
			c.Close()
		case 1:
			c.Abort()
		case 2:
			peers[i].Reset()
		case 3:
			err = c.Detach()
		}
		if err != nil {
			b.Skipf("Detach: %v", err)
		}
	}
	b.mortal("all have had their last event", all(conns, func(c *Conn) bool { return c.Over }))
	for i, c := range conns {
		if c.Socket != nil {
			c.Socket.Close()
		}
		if i%4 == 2 != (c.Err != nil) {
			b.Errorf("connection %d: %v", i, c)
		}
	}
	b.k.Accepted = nil
	_, again := b.mortals(n) // their slots are free again
	b.l.CloseListener()
	b.mortal("the listener is closed", func() bool { return b.l.Over })
	for _, c := range again {
		c.Close()
	}
	b.mortal("all are closed", all(again, func(c *Conn) bool { return c.Over }))
}

func dialsThatDoNotReturn(b *bed) {
	const n = 10
	b.start()
	a, ok := b.accept("tcp", "127.0.0.1:0")
	if !ok {
		b.Fatalf("no peer can be dialled")
	}
	b.mortals(1)
	b.l.CloseListener()
	b.mortal("the listener is closed", func() bool { return b.l.Over })
	nobody := b.deserted()
	var conns []*Conn
	for i := range n {
		addr := a.Addr()
		if i%2 == 1 {
			addr = nobody
		}
		c, err := b.k.DialTo(addr)
		if err != nil {
			b.Fatalf("Dial: %v", err)
		}
		conns = append(conns, c)
	}
	b.mortal("all dials have ended", all(conns, func(c *Conn) bool { return c.Dialed || c.Over }))
	for i, c := range conns {
		if c.Dialed != (i%2 == 0) {
			b.Errorf("dial %d: %v", i, c)
		}
		c.Close()
	}
	b.mortal("all are closed", all(conns, func(c *Conn) bool { return c.Over }))
}
