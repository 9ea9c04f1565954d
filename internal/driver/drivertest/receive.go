package drivertest

import (
	"bytes"

	"github.com/myriad-go/myriad/internal/driver"
)

var receiveCases = []testCase{
	{"Echo", echo},
	{"EchoUnix", echoUnix},
	{"Addresses", addresses},
	{"ReceivesInOrder", receivesInOrder},
	{"HalfClosedByPeer", halfClosedByPeer},
	{"EndedWithoutAByte", endedWithoutAByte},
	{"EndedDoesNotSpin", endedDoesNotSpin},
	{"PauseHoldsBack", pauseHoldsBack},
	{"PauseInEveryEvent", pauseInEveryEvent},
	{"PauseBeforeTheFirstByte", pauseBeforeTheFirstByte},
	{"PausedEndDoesNotSpin", pausedEndDoesNotSpin},
	{"PausedWithBytesDoesNotSpin", pausedWithBytesDoesNotSpin},
	{"Look", look},
}

func echo(b *bed) {
	b.start()
	p, c := b.connect()
	b.exchange(p, c)
	p.Close()
	b.until("Ended", func() bool { return c.Ended })
	b.closed(c)
}

func (b *bed) exchange(p Peer, c *Conn) {
	b.Helper()
	question, answer := pattern(3000, 1), pattern(5000, 2)
	p.Write(question)
	b.receive(c, question)
	c.Send(answer)
	b.arrives(p, answer)
}

func echoUnix(b *bed) {
	b.k = b.open(theLoop)
	l, err := b.sys.Listen(b.context(), "unix", b.TempDir()+"/s")
	if err != nil {
		b.Skipf("no unix sockets here: %v", err)
	}
	b.listeners = append(b.listeners, l)
	b.listener, b.l = l, b.listenOn(b.k, l)
	p, c := b.connect()
	b.exchange(p, c)
	b.closed(c)
	b.until("the peer sees the end", p.Ended)
}

func addresses(b *bed) {
	b.start()
	var local, remote driver.Addr
	accepted := false
	b.k.OnAccepted = func(_ *Conn, s driver.Socket) {
		local, remote, accepted = s.Local(), s.Remote(), true
		if err := s.Close(); err != nil {
			b.Errorf("Socket.Close: %v", err)
		}
	}
	p := b.h.Dial(b.listener.Addr())
	b.until("a peer is accepted and knows it", func() bool { return accepted && p.Open() })
	if local != p.Remote() || remote != p.Local() {
		b.Errorf("socket from %v to %v, the peer sees %v to %v", remote, local, p.Local(), p.Remote())
	}
	if want := driver.AddrOf(b.listener.Addr()); local != want {
		b.Errorf("local address %v, the listener has %v", local, want)
	}
	b.until("the peer sees that the socket was closed", func() bool { return p.Ended() || p.Err() != nil })
}

func receivesInOrder(b *bed) {
	b.start()
	p, c := b.connect()
	want := pattern(200_000, 9)
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 1+len(rest)%7919)
		p.Write(rest[:n])
		rest = rest[n:]
	}
	p.CloseWrite()
	b.until("Ended", func() bool { return c.Ended })
	b.same("received", c.In, want)
	b.closed(c)
}

func halfClosedByPeer(b *bed) {
	b.start()
	p, c := b.connect()
	p.Write([]byte("last words"))
	p.CloseWrite()
	b.until("Ended", func() bool { return c.Ended })
	b.same("received", c.In, []byte("last words"))
	answer := pattern(100_000, 4)
	c.Send(answer)
	b.arrives(p, answer)
	b.until("everything is reported sent", func() bool { return c.Left() == 0 })
	b.settle()
	b.closed(c)
	b.until("the peer sees the end", p.Ended)
}

func endedWithoutAByte(b *bed) {
	b.start()
	p, c := b.connect()
	p.CloseWrite()
	b.until("Ended", func() bool { return c.Ended })
	b.settle()
	b.closed(c)
}

func endedDoesNotSpin(b *bed) {
	b.start()
	p, c := b.connect()
	p.CloseWrite()
	b.until("Ended", func() bool { return c.Ended })
	b.idles("after the peer's FIN")
	c.CloseWrite()
	b.until("the peer sees the end", p.Ended)
	b.idles("after FIN both ways")
	b.closed(c)
}

func pauseHoldsBack(b *bed) {
	b.start()
	p, c := b.connect()
	want := pattern(60_000, 5)
	c.OnReceived = func([]byte) { c.OnReceived = nil; c.Pause() }
	p.Write(want)
	p.CloseWrite()
	b.until("the first bytes", func() bool { return len(c.In) > 0 })
	b.settle()
	if len(c.In) > 3*readBuffer {
		b.Errorf("%d bytes received in spite of Pause", len(c.In))
	}
	if c.Ended {
		b.Errorf("Ended in front of %d bytes", len(want)-len(c.In))
	}
	c.Resume()
	b.until("Ended", func() bool { return c.Ended })
	b.same("received", c.In, want)
	b.closed(c)
}

func pauseInEveryEvent(b *bed) {
	b.start()
	p, c := b.connect()
	want := pattern(60_000, 6)
	c.OnReceived = func([]byte) { c.Pause() }
	p.Write(want)
	p.CloseWrite()
	b.until("Ended", func() bool {
		c.Resume()
		return c.Ended
	})
	b.same("received", c.In, want)
	c.Pause()
	c.Pause()
	c.Resume()
	c.Resume()
	b.closed(c)
}

func pauseBeforeTheFirstByte(b *bed) {
	b.start()
	p, c := b.connect()
	c.Pause()
	b.settle()
	want := pattern(3*readBuffer, 7)
	p.Write(want)
	b.settle()
	c.Resume()
	b.receive(c, want)
	b.closed(c)
}

func pausedEndDoesNotSpin(b *bed) {
	b.start()
	p, c := b.connect()
	c.Pause()
	p.CloseWrite()
	b.idles("paused, after the peer's FIN")
	c.Resume()
	b.until("Ended", func() bool { return c.Ended })
	b.closed(c)
}

func pausedWithBytesDoesNotSpin(b *bed) {
	b.start()
	p, c := b.connect()
	c.Pause()
	want := pattern(3*readBuffer, 8)
	p.Write(want)
	p.CloseWrite()
	b.idles("paused, with bytes and FIN")
	c.Resume()
	b.receive(c, want)
	b.until("Ended", func() bool { return c.Ended })
	b.closed(c)
}

// look serves connections before their turn: with bytes and without, paused, and gone.
func look(b *bed) {
	b.start()
	look := b.k.Capabilities().Look
	if look == nil {
		return // a Poll leaves nothing for the next one
	}
	silent, quiet := b.connect()
	p, c := b.connect()
	_, paused := b.connect()
	_, gone := b.connect()
	b.closed(gone)
	paused.Pause()
	b.poll(0)
	for range 50 {
		look(quiet.ID)
		look(paused.ID)
		look(gone.ID)
		look(b.l.ID)
		b.poll(-1) // does not wait
	}
	if len(quiet.In) > 0 || quiet.Ended || quiet.Over {
		b.Errorf("Look at a silent connection: %v", quiet)
	}
	want := pattern(3000, 1)
	p.Write(want)
	b.until("a look finds the bytes", func() bool {
		look(c.ID)
		return bytes.Equal(c.In, want)
	})
	silent.Close()
	b.until("a look finds the end", func() bool {
		look(quiet.ID)
		return quiet.Ended
	})
	paused.Resume()
	b.exchange(p, c)
	b.closed(c, quiet, paused)
}
