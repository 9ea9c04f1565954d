package drivertest

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
)

var resetCases = []testCase{
	{"ResetInEveryState", resetInEveryState},
	{"ResetInBacklog", resetInBacklog},
	{"ResetMany", resetMany},
	{"SendToClosedPeer", sendToClosedPeer},
	{"SendFailsAfterInput", sendFailsAfterInput},
	{"SendInsideClosed", sendInsideClosed},
	{"CloseAfterAFailedSend", closeAfterAFailedSend},
}

// A state is what a connection is brought into before its peer resets it.
type resetState struct {
	name  string
	enter func(b *bed, p Peer, c *Conn)
}

var resetStates = []resetState{
	{"fresh", func(*bed, Peer, *Conn) {}},
	{"idle", func(b *bed, p Peer, c *Conn) { b.exchange(p, c) }},
	{"paused", func(b *bed, _ Peer, c *Conn) { c.Pause(); b.settle() }},
	{"paused with bytes", func(b *bed, p Peer, c *Conn) {
		c.Pause()
		p.Write(pattern(3*readBuffer, 1))
		b.settle()
	}},
	{"output queued", func(b *bed, p Peer, c *Conn) { p.StopReading(); b.press(c) }},
	{"paused, output queued", func(b *bed, p Peer, c *Conn) { c.Pause(); p.StopReading(); b.press(c) }},
	{"closed for writing", func(b *bed, p Peer, c *Conn) {
		c.CloseWrite()
		b.until("the peer sees the end", p.Ended)
	}},
	{"closed for writing, output queued",
		func(b *bed, p Peer, c *Conn) { p.StopReading(); b.press(c); c.CloseWrite() }},
	{"ended", func(b *bed, p Peer, c *Conn) {
		p.CloseWrite()
		b.until("Ended", func() bool { return c.Ended })
	}},
	{"ended, output queued", func(b *bed, p Peer, c *Conn) {
		p.StopReading()
		p.CloseWrite()
		b.until("Ended", func() bool { return c.Ended })
		b.press(c)
	}},
	{"ended, paused", func(b *bed, p Peer, c *Conn) {
		p.CloseWrite()
		b.until("Ended", func() bool { return c.Ended })
		c.Pause()
		b.settle()
	}},
}

func resetInEveryState(b *bed) {
	b.start()
	for _, s := range resetStates {
		p, c := b.connect()
		s.enter(b, p, c)
		if c.Over {
			b.Fatalf("%s: over before the reset: %v", s.name, c)
		}
		p.Reset()
		b.until(fmt.Sprintf("Closed of a connection that was reset while %s", s.name), func() bool { return c.Over })
		if c.Err == nil {
			b.Errorf("%s: Closed without an error", s.name)
		}
	}
	b.idles("after the resets")
}

func resetInBacklog(b *bed) {
	b.start()
	b.l.StopAccept()
	b.settle()
	for range 5 {
		p := b.h.Dial(b.listener.Addr())
		b.until("the kernel takes the peer", p.Open)
		p.Write([]byte("hello"))
		b.settle()
		p.Reset()
	}
	b.l.ResumeAccept()
	p, c := b.connectLast()
	b.exchange(p, c)
	for _, other := range b.k.Accepted {
		if other != c {
			b.over(other, true)
		}
	}
	b.closed(c)
}

// connectLast connects behind others that are accepted perhaps.
func (b *bed) connectLast() (Peer, *Conn) {
	b.Helper()
	p := b.h.Dial(b.listener.Addr())
	p.Write([]byte("I am the last"))
	var found *Conn
	b.until("the last peer is accepted", func() bool {
		for _, c := range b.k.Accepted {
			if string(c.In) == "I am the last" {
				found = c
			}
		}
		return found != nil
	})
	found.In = nil
	return p, found
}

func resetMany(b *bed) {
	b.start()
	var peers []Peer
	for range 40 {
		p, _ := b.connect()
		p.Write(pattern(100, 1))
		peers = append(peers, p)
	}
	for _, p := range peers {
		p.Reset()
	}
	for _, c := range b.k.Accepted {
		b.over(c, true)
	}
	p, c := b.connect()
	b.exchange(p, c)
	b.closed(c)
}

func sendToClosedPeer(b *bed) {
	b.start()
	p, c := b.connect()
	p.Write([]byte("bye"))
	p.Close()
	b.until("Ended", func() bool { return c.Ended || c.Over })
	for range 10_000 {
		if c.Over {
			break
		}
		c.Send(pattern(1000, 1))
		b.poll(pollWait)
	}
	b.over(c, true)
	b.same("received", c.In, []byte("bye"))
}

// Sending fails outside Poll, and the owner closes the connection before it is told so: then it
// need not know any more.
func closeAfterAFailedSend(b *bed) {
	b.start()
	for _, end := range []func(*Conn){(*Conn).Close, (*Conn).Abort} {
		p, c := b.connect()
		c.Pause()
		b.settle()
		p.Reset()
		b.sendUntilStale(c)
		end(c)
		b.over(c, false)
	}
}

// sendUntilStale sends, and does not poll, until the driver has given the connection up, if it can
// be asked about that.
func (b *bed) sendUntilStale(c *Conn) {
	control := b.k.Capabilities().Control
	if control == nil {
		c.Send(pattern(100, 1))
		return
	}
	for range 10_000 { // the peer's reset may take some time, and one driver sends many together
		c.Send(pattern(10, 1))
		if errors.Is(control(c.ID, func(uintptr) {}), driver.ErrStale) {
			return
		}
		runtime.Gosched()
	}
}

// The peer has sent something and gone. What it sent arrives although sending fails.
func sendFailsAfterInput(b *bed) {
	b.start()
	p, c := b.connect()
	want := pattern(3*readBuffer, 1)
	c.Pause()
	b.settle()
	p.Write(want)
	p.Close()
	b.until("the peer has written everything", func() bool { return p.Unsent() == 0 })
	b.settle()
	had := len(c.In)
	c.Resume()
	c.Send(pattern(1000, 1))
	c.Send(pattern(1000, 2))
	for range 10_000 {
		if c.Over {
			break
		}
		c.Send(pattern(1000, 1))
		b.poll(pollWait)
	}
	b.over(c, true)
	b.same(fmt.Sprintf("received (%d while paused)", had), c.In, want)
}

func sendInsideClosed(b *bed) {
	b.start()
	p, c := b.connect()
	called := false
	c.OnClosed = func(error) {
		called = true
		if n := c.Send([]byte("too late")); n != 0 {
			b.Errorf("Send inside Closed queued %d bytes", n)
		}
	}
	p.Reset()
	b.over(c, true)
	if !called {
		b.Errorf("Closed was not told")
	}
}
