package drivertest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	readBuffer = 4 << 10
	theLoop    = 3
	otherLoop  = 7

	pollWait  = 5 * time.Millisecond
	longWait  = 100 * time.Millisecond // when nothing has happened for idlePolls
	idlePolls = 200

	mostPolls  = 200_000         // until something must have happened
	mostTime   = time.Minute     // of the real clock
	systemTime = 5 * time.Minute // of the system's, which may be faster
)

// A bed is what a case works with: one driver with a listener, unless it asks for more.
type bed struct {
	T
	sys driver.System
	h   Harness

	k         *Checker // the first driver
	checkers  []*Checker
	listener  driver.Listener
	l         *Conn // the listener in k
	listeners []driver.Listener
}

// start opens the driver and listens.
func (b *bed) start() {
	b.Helper()
	b.k = b.open(theLoop)
	b.listener = b.listen("tcp", "127.0.0.1:0")
	b.l = b.listenOn(b.k, b.listener)
}

func (b *bed) open(loop uint8) *Checker {
	b.Helper()
	d, err := b.sys.Open(loop, driver.Options{ReadBuffer: readBuffer, Helpers: 2})
	if err != nil {
		b.Fatalf("Open: %v", err)
	}
	if d.Capabilities().ThreadBound {
		runtime.LockOSThread()
		b.Cleanup(runtime.UnlockOSThread)
	}
	k := Check(b.T, d, loop, readBuffer)
	b.checkers = append(b.checkers, k)
	return k
}

func (b *bed) listen(network, addr string) driver.Listener {
	b.Helper()
	l, err := b.sys.Listen(b.context(), network, addr)
	if err != nil {
		b.Fatalf("Listen(%s, %s): %v", network, addr, err)
	}
	b.listeners = append(b.listeners, l)
	return l
}

// listenAgain listens where another one has left. Another process may be given the port meanwhile;
// then there are other ports.
func (b *bed) listenAgain(left driver.Listener, leave func(driver.Listener)) driver.Listener {
	b.Helper()
	for tries := 0; ; tries++ {
		l, err := b.sys.Listen(b.context(), "tcp", left.Addr().String())
		if err == nil {
			b.listeners = append(b.listeners, l)
			return l
		}
		if tries == 3 {
			b.Fatalf("Listen(%v), which is free: %v", left.Addr(), err)
		}
		left = b.listen("tcp", "127.0.0.1:0")
		leave(left)
	}
}

func (b *bed) context() context.Context { return context.Background() }

func (b *bed) listenOn(k *Checker, l driver.Listener) *Conn {
	b.Helper()
	c, err := k.ListenOn(l)
	if err != nil {
		b.Fatalf("driver Listen: %v", err)
	}
	return c
}

// finish shuts everything down that a case left open.
func (b *bed) finish() {
	for _, k := range b.checkers {
		k.Shutdown()
	}
	for _, l := range b.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			b.Errorf("Listener.Close: %v", err)
		}
	}
}

// poll polls each driver once, and returns how many events there were. Only the last one waits.
func (b *bed) poll(wait time.Duration) int {
	b.Helper()
	n := 0
	for i, k := range b.checkers {
		switch {
		case k.down:
		case i == len(b.checkers)-1:
			n += k.Poll(wait)
		default:
			n += k.Poll(0)
		}
	}
	return n
}

// until polls until done, and fails the case when that takes too long.
func (b *bed) until(what string, done func() bool) {
	b.Helper()
	begin, systemBegin := time.Now(), b.sys.Now()
	idle, wait := 0, pollWait
	for range mostPolls {
		if done() {
			return
		}
		if b.Failed() || time.Since(begin) > mostTime || b.sys.Now().Sub(systemBegin) > systemTime {
			break
		}
		if b.poll(wait) > 0 {
			idle, wait = 0, pollWait
		} else if idle++; idle > idlePolls {
			wait = longWait
		}
	}
	if !done() {
		b.Fatalf("it never happened: %s", what)
	}
}

// settle polls for a while in which nothing is expected.
func (b *bed) settle() {
	b.Helper()
	for range 20 {
		b.poll(pollWait)
	}
}

// connect makes one connection that a peer dials.
func (b *bed) connect() (Peer, *Conn) {
	b.Helper()
	return b.connectTo(b.k, b.listener)
}

func (b *bed) connectTo(k *Checker, l driver.Listener) (Peer, *Conn) {
	b.Helper()
	n := len(k.Accepted)
	p := b.h.Dial(l.Addr())
	b.until("a peer is accepted", func() bool { return len(k.Accepted) > n })
	return p, k.Accepted[n]
}

// receive waits until c has received want in all.
func (b *bed) receive(c *Conn, want []byte) {
	b.Helper()
	b.until("all bytes are received", func() bool { return len(c.In) >= len(want) || c.Over })
	b.same("received", c.In, want)
}

// arrives waits until the peer has received want in all.
func (b *bed) arrives(p Peer, want []byte) {
	b.Helper()
	b.until("all bytes reach the peer", func() bool { return p.Count() >= len(want) || p.Err() != nil })
	b.same("the peer received", p.Received(), want)
}

func (b *bed) same(what string, got, want []byte) {
	b.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	b.Fatalf("%s %d bytes, want %d; they differ from byte %d on", what, len(got), len(want), at)
}

// over waits for the last event of c and checks that it was Closed in the way that is wanted.
func (b *bed) over(c *Conn, broken bool) {
	b.Helper()
	b.until("the last event", func() bool { return c.Over })
	if (c.Err != nil) != broken {
		b.Errorf("Closed with error %v, broken is %v", c.Err, broken)
	}
}

// closed closes c and waits for its last event.
func (b *bed) closed(conns ...*Conn) {
	b.Helper()
	for _, c := range conns {
		c.Close()
	}
	for _, c := range conns {
		b.over(c, false)
	}
}

// idles checks that polling waits: it must not spin on a condition that will not change.
func (b *bed) idles(when string) {
	b.Helper()
	const rounds, wait = 10, 20 * time.Millisecond
	k := b.k
	b.settle()
	begin, events := b.sys.Now(), 0
	for range rounds {
		events += k.Poll(wait)
	}
	if took := b.sys.Now().Sub(begin); events == 0 && took < rounds*wait/2 {
		b.Fatalf("%s: %d polls of %v without an event took %v in all: it spins", when, rounds, wait, took)
	}
}

// pattern is n bytes in which a loss or a swap shows.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = seed + byte(i*7) + byte(i>>8)*3 + byte(i>>16)
	}
	return p
}
