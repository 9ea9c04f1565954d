package drivertest

import (
	"errors"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

var moveCases = []testCase{
	{"ShareGoesOn", shareGoesOn},
	{"ShareIsClosed", shareIsClosed},
	{"ShareKeepsWhatComes", shareKeepsWhatComes},
	{"ShareSeesTheEnd", shareSeesTheEnd},
	{"ShareForeign", shareForeign},
	{"ReceiveLent", receiveLent},
	{"CloseLent", closeLent},
	{"ReceiveForeign", receiveForeign},
	{"ShareListener", shareListener},
	{"ReceiveListener", receiveListener},
}

// moves are the means of the system, without which the case ends.
func (b *bed) moves() *driver.Moves {
	b.Helper()
	m := b.sys.Facilities().Moves
	if m == nil {
		b.Skipf("the system has no Moves")
	}
	return m
}

// share takes c out of its driver and shares it.
func (b *bed) share(c *Conn) (first, second driver.Socket) {
	b.Helper()
	m := b.moves()
	first = b.detached(c)
	second, err := m.Share(first)
	if err != nil {
		b.Fatalf("Share: %v", err)
	}
	if second.Remote() != first.Remote() || second.Local() != first.Local() {
		b.Errorf("a share of %v to %v is from %v to %v", first.Local(), first.Remote(), second.Local(), second.Remote())
	}
	return first, second
}

func (b *bed) attach(k *Checker, s driver.Socket) *Conn {
	b.Helper()
	c, err := k.AttachTo(s)
	if err != nil {
		b.Fatalf("Attach: %v", err)
	}
	return c
}

func (b *bed) closeSocket(s driver.Socket) {
	b.Helper()
	if err := s.Close(); err != nil {
		b.Fatalf("Socket.Close: %v", err)
	}
}

// The first one leaves, and the other one has the connection to its end.
func shareGoesOn(b *bed) {
	b.start()
	other := b.open(otherLoop)
	p, c := b.connect()
	b.exchange(p, c)
	first, second := b.share(c)
	b.closeSocket(first)
	b.settle()
	if p.Ended() || p.Err() != nil {
		b.Fatalf("the peer of a shared connection sees its end (%v) when one of two is closed", p.Err())
	}
	again := b.attach(other, second)
	already := p.Received()
	p.Write([]byte("question"))
	b.receive(again, []byte("question"))
	again.Send([]byte("answer"))
	b.arrives(p, append(already, "answer"...))
	b.closed(again)
	b.until("the peer sees the end", p.Ended)
}

// The share is given up, and the first one goes on; several times.
func shareIsClosed(b *bed) {
	b.start()
	p, c := b.connect()
	for range 3 {
		first, second := b.share(c)
		b.closeSocket(second)
		b.closeSocket(second) // which does nothing
		c = b.attach(b.k, first)
		p.Write([]byte("x"))
		b.receive(c, []byte("x"))
	}
	if p.Ended() || p.Err() != nil {
		b.Fatalf("the peer sees an end: %v", p.Err())
	}
	b.closed(c)
	b.until("the peer sees the end", p.Ended)
}

// What comes before and while no driver reads arrives once, in order.
func shareKeepsWhatComes(b *bed) {
	b.start()
	other := b.open(otherLoop)
	p, c := b.connect()
	c.Pause()
	want := pattern(3*readBuffer, 5)
	p.Write(want[:readBuffer])
	b.settle()
	first, second := b.share(c)
	got := append(c.In, b.moves().Unread(first)...)
	p.Write(want[readBuffer:])
	b.settle()
	b.closeSocket(first)
	again := b.attach(other, second)
	b.until("all bytes are received", func() bool { return len(got)+len(again.In) >= len(want) || again.Over })
	b.same("received here, unread and received there", append(got, again.In...), want)
	b.closed(again)
}

// A FIN that comes while no driver reads is reported to the next one.
func shareSeesTheEnd(b *bed) {
	b.start()
	other := b.open(otherLoop)
	p, c := b.connect()
	first, second := b.share(c)
	p.CloseWrite()
	b.settle()
	b.closeSocket(first)
	again := b.attach(other, second)
	b.until("Ended", func() bool { return again.Ended })
	again.Send([]byte("answer"))
	b.arrives(p, []byte("answer"))
	b.closed(again)
	b.until("the peer sees the end", p.Ended)
}

func shareForeign(b *bed) {
	b.start()
	m := b.moves()
	if _, err := m.Share(&foreignSocket{}); !errors.Is(err, driver.ErrUnsupported) {
		b.Errorf("Share of another system's socket: %v, want ErrUnsupported", err)
	}
	if p := m.Unread(&foreignSocket{}); p != nil {
		b.Errorf("Unread of another system's socket: %q", p)
	}
	_, c := b.connect()
	s := b.detached(c)
	b.closed(b.attach(b.k, s))
	if _, err := m.Share(s); !errors.Is(err, driver.ErrStale) {
		b.Errorf("Share of a socket that was given on: %v, want ErrStale", err)
	}
	if m.Lend == nil {
		return
	}
	never := func(uintptr) { b.Errorf("a descriptor of nothing") }
	if err := m.Lend(&foreignSocket{}, never); !errors.Is(err, driver.ErrUnsupported) {
		b.Errorf("Lend of another system's socket: %v, want ErrUnsupported", err)
	}
	if err := m.Lend(s, never); !errors.Is(err, driver.ErrStale) {
		b.Errorf("Lend of a socket that was given on: %v, want ErrStale", err)
	}
}

// A duplicate of the descriptor makes a socket of its own.
func receiveLent(b *bed) {
	b.start()
	m := b.moves()
	if m.Lend == nil || m.Receive == nil {
		b.Skipf("sockets have no descriptors")
	}
	p, c := b.connect()
	b.exchange(p, c)
	first := b.detached(c)
	fd, dupErr := -1, error(nil)
	if err := m.Lend(first, func(lent uintptr) { fd, dupErr = duplicateFD(int(lent)) }); err != nil {
		b.Fatalf("Lend: %v", err)
	}
	if dupErr != nil {
		b.Fatalf("dup: %v", dupErr)
	}
	second, err := m.Receive(uintptr(fd))
	if err != nil {
		b.Fatalf("Receive: %v", err)
	}
	if second.Remote() != p.Local() || second.Local() != p.Remote() {
		b.Errorf("received a socket from %v to %v, the peer sees %v to %v", second.Remote(), second.Local(), p.Local(),
			p.Remote())
	}
	b.closeSocket(first)
	again := b.attach(b.k, second)
	p.Write([]byte("question"))
	b.receive(again, []byte("question"))
	b.closed(again)
	b.until("the peer sees the end", p.Ended)
}

// A socket may be closed while its descriptor is lent, which is then open until the caller returns
// it.
func closeLent(b *bed) {
	b.start()
	m := b.moves()
	if m.Lend == nil {
		b.Skipf("sockets have no descriptors")
	}
	p, c := b.connect()
	s := b.detached(c)
	err := m.Lend(s, func(lent uintptr) {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			b.closeSocket(s)
		}()
		<-closed
		if !isOpen(int(lent)) {
			b.Errorf("a lent descriptor is closed")
		}
	})
	if err != nil {
		b.Errorf("Lend: %v", err)
	}
	if err = m.Lend(s, func(uintptr) { b.Errorf("a descriptor of what is closed") }); !errors.Is(err, driver.ErrStale) {
		b.Errorf("Lend of a closed socket: %v, want ErrStale", err)
	}
	b.until("the peer sees the end", p.Ended)
}

// What is no connected stream is refused, and closed.
func receiveForeign(b *bed) {
	m := b.moves()
	if m.Receive == nil {
		b.Skipf("sockets have no descriptors")
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatalf("%v", err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		b.Fatalf("%v", err)
	}
	fd := -1
	if err := raw.Control(func(own uintptr) { fd, err = duplicateFD(int(own)) }); err != nil {
		b.Fatalf("%v", err)
	}
	if err != nil {
		b.Fatalf("dup: %v", err)
	}
	if s, err := m.Receive(uintptr(fd)); err == nil {
		b.Errorf("a file became the socket %T", s)
	}
	if isOpen(fd) {
		b.Errorf("a descriptor that was refused is open still")
		closeFD(fd)
	}
}

// Listeners share an address with its backlog, until the last of them is closed.
func shareListener(b *bed) {
	b.start()
	m := b.moves()
	if m.ShareListener == nil {
		b.Skipf("listeners cannot be shared")
	}
	if _, err := m.ShareListener(foreignListener{b.listener}); !errors.Is(err, driver.ErrUnsupported) {
		b.Errorf("a share of another system's listener: %v, want ErrUnsupported", err)
	}
	b.l.StopAccept()
	b.settle()
	b.h.Dial(b.listener.Addr()) // waits in the backlog
	b.settle()
	given, kept := b.shareOf(b.listener), b.shareOf(b.listener)
	if err := given.Close(); err != nil {
		b.Errorf("Listener.Close: %v", err)
	}
	b.listener.Unshare()
	b.listener.Refuse() // leaves the address to the other one
	other := b.open(otherLoop)
	l := b.listenOn(other, kept)
	b.until("what waited is accepted", func() bool { return len(other.Accepted) == 1 })
	p, c := b.connectTo(other, kept)
	b.exchange(p, c)
	if len(b.k.Accepted) > 0 {
		b.Errorf("the first listener accepts, too")
	}
	kept.Unshare()
	kept.Refuse()
	late := b.h.Dial(kept.Addr())
	b.until("a peer is refused", func() bool { return late.Err() != nil })
	l.CloseListener()
	b.until("the listener is closed", func() bool { return l.Over })
}

func (b *bed) shareOf(l driver.Listener) driver.Listener {
	b.Helper()
	share, err := b.moves().ShareListener(l)
	if err != nil {
		b.Fatalf("ShareListener: %v", err)
	}
	b.listeners = append(b.listeners, share)
	if share.Addr().String() != l.Addr().String() {
		b.Errorf("it listens on %v, the first one on %v", share.Addr(), l.Addr())
	}
	return share
}

// A received listener accepts what waits for the first one, which leaves without a word to its
// peers; and the other way round.
func receiveListener(b *bed) {
	b.start()
	m := b.moves()
	if m.Listener == nil {
		b.Skipf("listeners have no descriptors")
	}
	b.l.StopAccept()
	f, err := b.listener.File()
	if err != nil {
		b.Fatalf("File: %v", err)
	}
	second, err := m.Listener(f)
	if err != nil {
		b.Fatalf("Listener: %v", err)
	}
	if err := f.Close(); err != nil {
		b.Errorf("the file is not the caller's any more: %v", err)
	}
	b.listeners = append(b.listeners, second)
	if second.Addr().String() != b.listener.Addr().String() {
		b.Errorf("it listens on %v, the first one on %v", second.Addr(), b.listener.Addr())
	}
	other := b.open(otherLoop)
	l := b.listenOn(other, second)
	p, c := b.connectTo(other, second)
	b.exchange(p, c)
	b.listener.Refuse()
	p, c = b.connectTo(other, second)
	b.exchange(p, c)
	l.CloseListener()
	b.until("the listener is closed", func() bool { return l.Over })
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatalf("%v", err)
	}
	defer null.Close()
	if got, err := m.Listener(null); err == nil {
		b.Errorf("a file became the listener %T", got)
	}
}
