package drivertest

import (
	"errors"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

var closeCases = []testCase{
	{"CloseSendsFIN", closeSendsFIN},
	{"CloseDropsTheQueue", closeDropsTheQueue},
	{"CloseAfterEverythingIsSent", closeAfterEverythingIsSent},
	{"AbortResets", abortResets},
	{"AbortWithQueue", abortWithQueue},
	{"CloseTwice", closeTwice},
	{"NothingAfterCloseInTheBatch", nothingAfterCloseInTheBatch},
	{"CloseInsideEachEvent", closeInsideEachEvent},
	{"SlotsAreUsedAgain", slotsAreUsedAgain},
	{"StaleIDsTouchNobody", staleIDsTouchNobody},
	{"ControlUntilClosed", controlUntilClosed},
	{"AttachInsideClosed", attachInsideClosed},
	{"ShutdownWithLiveConnections", shutdownWithLiveConnections},
}

func closeSendsFIN(b *bed) {
	b.start()
	p, c := b.connect()
	b.closed(c)
	b.until("the peer sees the end", func() bool { return p.Ended() || p.Err() != nil })
	if p.Err() != nil {
		b.Errorf("the peer of an idle connection got %v instead of FIN", p.Err())
	}
}

func closeDropsTheQueue(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	want := b.press(c)
	b.closed(c)
	p.Resume()
	b.until("the peer sees the end", func() bool { return p.Ended() || p.Err() != nil })
	if n := p.Count(); n >= len(want) {
		b.Errorf("the peer received all %d bytes", n)
	}
	b.same("the peer received", p.Received(), want[:p.Count()])
}

func closeAfterEverythingIsSent(b *bed) {
	b.start()
	p, c := b.connect()
	want := pattern(500_000, 2)
	c.Send(want)
	b.until("everything is reported sent", func() bool { return c.Left() == 0 })
	b.closed(c)
	b.until("the peer sees the end", p.Ended)
	b.same("the peer received", p.Received(), want)
}

func abortResets(b *bed) {
	b.start()
	p, c := b.connect()
	b.exchange(p, c)
	c.Abort()
	b.over(c, false)
	b.until("the peer sees a reset", func() bool { return p.Err() != nil || p.Ended() })
	if p.Err() == nil {
		b.Errorf("the peer of an aborted connection saw FIN, not a reset")
	}
}

func abortWithQueue(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	b.press(c)
	c.Abort()
	b.over(c, false)
	p.Resume()
	b.until("the peer sees a reset", func() bool { return p.Err() != nil || p.Ended() })
	if p.Err() == nil {
		b.Errorf("the peer of an aborted connection saw FIN, not a reset")
	}
}

func closeTwice(b *bed) {
	b.start()
	_, c := b.connect()
	c.Close()
	c.Abort()
	c.Close()
	c.Pause()
	c.Resume()
	c.CloseWrite()
	var chain buf.Chain
	chain.AppendBlock(buf.From([]byte("too late")))
	if n := c.SendChain(&chain); n != 0 {
		b.Errorf("Send after Close queued %d bytes", n)
	}
	b.over(c, false)
	b.settle()
}

// Many connections have something to tell in one Poll, and the first event ends them all.
func nothingAfterCloseInTheBatch(b *bed) {
	b.start()
	peers := make([]Peer, 30)
	for i := range peers {
		peers[i], _ = b.connect()
	}
	for round := range 2 {
		conns := b.k.Accepted[round*15 : round*15+15]
		for i, c := range conns {
			c.OnReceived = func([]byte) {
				for _, other := range conns {
					if round == 0 {
						other.Close()
					} else {
						other.Abort()
					}
				}
			}
			c.Pause()
			peers[round*15+i].Write(pattern(100, byte(i)))
		}
		b.settle()
		for _, c := range conns {
			c.Resume()
		}
		for _, c := range conns {
			b.over(c, false)
		}
	}
	b.settle()
}

func closeInsideEachEvent(b *bed) {
	b.start()
	p, c := b.connect()
	c.OnReceived = func([]byte) { c.Close() }
	p.Write(pattern(3*readBuffer, 1))
	p.CloseWrite()
	b.over(c, false)
	if len(c.In) > readBuffer {
		b.Errorf("%d bytes after Close", len(c.In))
	}

	p, c = b.connect()
	c.OnEnded = c.Close
	p.CloseWrite()
	b.over(c, false)

	p, c = b.connect()
	p.StopReading()
	b.press(c)
	c.OnSent = func(int64) { c.Close() }
	p.Resume()
	b.over(c, false)
}

func slotsAreUsedAgain(b *bed) {
	b.start()
	most := uint32(0)
	for i := range 60 {
		p, c := b.connect()
		p.Write([]byte{byte(i)})
		b.receive(c, []byte{byte(i)})
		if i%2 == 0 {
			b.closed(c)
		} else {
			p.Reset()
			b.over(c, true)
		}
		most = max(most, c.ID.Slot())
	}
	if most > 20 {
		b.Errorf("one connection at a time went up to slot %d: a slot is a small dense integer", most)
	}
}

func staleIDsTouchNobody(b *bed) {
	b.start()
	_, gone := b.connect()
	b.closed(gone)
	var peers []Peer
	for range 5 {
		p, _ := b.connect()
		peers = append(peers, p)
	}
	gone.pokeStale()
	b.settle()
	for i, p := range peers {
		c := b.k.Accepted[i+1]
		gone.pokeStale()
		b.exchange(p, c)
		p.CloseWrite()
		b.until("Ended", func() bool { return c.Ended })
	}
	b.closed(b.k.Accepted[1:]...)
}

// A slot may be taken again as soon as its last event is being delivered.
func attachInsideClosed(b *bed) {
	b.start()
	var next *Conn
	p, c := b.connect()
	c.OnClosed = func(error) {
		var err error
		if next, err = b.k.DialTo(b.listener.Addr()); err != nil {
			b.Errorf("Dial inside Closed: %v", err)
		}
	}
	p.Reset()
	b.over(c, true)
	b.until("the connection dialled inside Closed",
		func() bool { return len(b.k.Accepted) == 2 && next.Dialed || next.Over })
	if next.Over {
		b.Fatalf("the connection dialled inside Closed: %v", next)
	}
	next.Send([]byte("hello"))
	b.receive(b.k.Accepted[1], []byte("hello"))
	b.closed(next, b.k.Accepted[1])
}

func shutdownWithLiveConnections(b *bed) {
	b.start()
	idle, _ := b.connect()
	busy, c := b.connect()
	busy.StopReading()
	b.press(c)
	if _, err := b.k.DialTo(b.listener.Addr()); err != nil {
		b.Fatalf("Dial: %v", err)
	}
	b.k.Shutdown()
	busy.Resume()
	other := b.open(otherLoop)
	b.until("the peers see the end", func() bool {
		return (idle.Ended() || idle.Err() != nil) && (busy.Ended() || busy.Err() != nil)
	})
	if other.events != 0 {
		b.Errorf("events in a driver that has nothing")
	}
}

// controlUntilClosed asks for the descriptor of a live connection, and of one that has closed.
func controlUntilClosed(b *bed) {
	b.start()
	control := b.k.Capabilities().Control
	if control == nil {
		b.Skipf("the driver shows no descriptors")
	}
	p, c := b.connect()
	calls := 0
	count := func(uintptr) { calls++ }
	switch err := control(c.ID, count); {
	case errors.Is(err, driver.ErrUnsupported):
		b.Skipf("Control: %v", err)
	case err != nil || calls != 1:
		b.Errorf("Control of a live connection: %d calls, %v", calls, err)
	}
	b.exchange(p, c)
	b.closed(c)
	if err := control(c.ID, count); !errors.Is(err, driver.ErrStale) || calls != 1 {
		b.Errorf("Control of a closed connection: %v, want ErrStale; %d calls in all", err, calls)
	}
}
