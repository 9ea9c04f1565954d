package drivertest

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

var acceptCases = []testCase{
	{"StopAccept", stopAccept},
	{"AcceptFails", acceptFails},
	{"CloseListener", closeListener},
	{"RefuseWhileListening", refuseWhileListening},
	{"TwoDriversOneListener", twoDriversOneListener},
	{"HandOver", handOver},
	{"ListenerAddress", listenerAddress},
	{"ListenerFile", listenerFile},
	{"ListenerFileIsLent", listenerFileIsLent},
	{"ListenOnAForeignListener", listenOnAForeignListener},
	{"ListenOnOtherNetworks", listenOnOtherNetworks},
}

func stopAccept(b *bed) {
	b.start()
	p, c := b.connect()
	b.l.StopAccept()
	b.settle()
	n := len(b.k.Accepted)
	late := b.h.Dial(b.listener.Addr())
	b.until("the kernel takes the peer", late.Open)
	late.Write([]byte("patience"))
	b.idles("with a peer in the backlog")
	if len(b.k.Accepted) != n {
		b.Fatalf("accepted after StopAccept")
	}
	b.exchange(p, c)
	b.l.ResumeAccept()
	b.until("the waiting peer is accepted", func() bool { return len(b.k.Accepted) > n })
	b.receive(b.k.Accepted[n], []byte("patience"))
	b.closed(b.k.Accepted...)
}

// Descriptors run out: accepting stops until it is resumed, waiting peers stay, and open
// connections are served.
func acceptFails(b *bed) {
	b.start()
	p, c := b.connect()
	b.l.StopAccept()
	b.settle()
	n := len(b.k.Accepted)
	late := b.h.Dial(b.listener.Addr())
	b.until("the kernel takes the peer", late.Open)
	restore, ok := b.h.Exhaust()
	if !ok {
		b.Skipf("accepting cannot be made to fail here")
	}
	defer restore()
	var err error
	b.k.OnAcceptFailed = func(_ *Conn, e error) { err = e }
	for range 2 {
		failures := b.l.Failures
		b.l.ResumeAccept()
		b.until("AcceptFailed", func() bool { return b.l.Failures > failures })
		if !errors.Is(err, syscall.EMFILE) {
			b.Errorf("AcceptFailed with %v, want EMFILE", err)
		}
		b.idles("after AcceptFailed")
	}
	b.exchange(p, c)
	restore()
	b.k.OnAcceptFailed = nil
	b.l.ResumeAccept()
	b.until("the waiting peer is accepted", func() bool { return len(b.k.Accepted) > n })
	b.exchange(late, b.k.Accepted[n])
	b.closed(b.k.Accepted...)
}

func closeListener(b *bed) {
	b.start()
	p, c := b.connect()
	b.l.CloseListener()
	b.over(b.l, false)
	if err := b.listener.Close(); err != nil {
		b.Errorf("Listener.Close: %v", err)
	}
	b.exchange(p, c)
	late := b.h.Dial(b.listener.Addr())
	b.until("a late peer is refused", func() bool { return late.Err() != nil })
	b.closed(c)
	again := b.listenAgain(b.listener, func(l driver.Listener) { _ = l.Close() })
	b.listener, b.l = again, b.listenOn(b.k, again)
	p, c = b.connect()
	b.exchange(p, c)
	b.closed(c)
}

func refuseWhileListening(b *bed) {
	b.start()
	p, c := b.connect()
	b.listener.Refuse()
	b.settle()
	late := b.h.Dial(b.listener.Addr())
	b.until("a late peer is refused", func() bool { return late.Err() != nil })
	b.idles("with a listener that refuses")
	again := b.listenAgain(b.listener, driver.Listener.Refuse)
	l := b.listenOn(b.k, again)
	b.exchange(p, c)
	b.l.CloseListener()
	b.over(b.l, false)
	p, c2 := b.connectTo(b.k, again)
	b.exchange(p, c2)
	l.CloseListener()
	b.over(l, false)
	b.closed(c, c2)
}

func twoDriversOneListener(b *bed) {
	b.start()
	other := b.open(otherLoop)
	b.listenOn(other, b.listener)
	const n = 30
	peers := make([]Peer, n)
	for i := range peers {
		peers[i] = b.h.Dial(b.listener.Addr())
	}
	b.until("everybody is accepted", func() bool { return len(b.k.Accepted)+len(other.Accepted) >= n })
	b.settle()
	all := append(append([]*Conn(nil), b.k.Accepted...), other.Accepted...)
	if len(all) != n {
		b.Errorf("%d peers were accepted %d times", n, len(all))
	}
	for _, c := range all {
		c.Send([]byte("welcome"))
	}
	for _, p := range peers {
		b.arrives(p, []byte("welcome"))
	}
	b.closed(all...)
}

func handOver(b *bed) {
	b.start()
	other := b.open(otherLoop)
	var handed []*Conn
	b.k.OnAccepted = func(_ *Conn, s driver.Socket) {
		c, err := other.AttachTo(s)
		if err != nil {
			b.Errorf("Attach to the other driver: %v", err)
			return
		}
		handed = append(handed, c)
	}
	const n = 10
	for i := range n {
		p := b.h.Dial(b.listener.Addr())
		p.Write([]byte("early"))
		b.until("the peer is handed over", func() bool { return len(handed) == i+1 })
		b.receive(handed[i], []byte("early"))
		handed[i].Send(pattern(5000, 1))
		b.arrives(p, pattern(5000, 1))
	}
	b.closed(handed...)
}

func listenerAddress(b *bed) {
	b.start()
	addr, ok := b.listener.Addr().(*net.TCPAddr)
	if !ok || addr.Port == 0 {
		b.Errorf("address %v of a listener on port 0", b.listener.Addr())
	}
	if l, err := b.sys.Listen(b.context(), "tcp", b.listener.Addr().String()); err == nil {
		b.Errorf("a second listener on %v", l.Addr())
		l.Close()
	}
	if _, err := b.sys.Listen(b.context(), "carrier pigeon", "x"); err == nil {
		b.Errorf("a listener on an unknown network")
	}
}

// listenerFile is a duplicate of the bed's listener. Where there is none the case is left out.
func (b *bed) listenerFile() *os.File {
	b.Helper()
	f, err := b.listener.File()
	if errors.Is(err, driver.ErrUnsupported) {
		b.Skipf("Listener.File: %v", err)
	}
	if err != nil {
		b.Fatalf("Listener.File: %v", err)
	}
	return f
}

func listenerFile(b *bed) {
	b.start()
	f := b.listenerFile()
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		b.Fatalf("net.FileListener: %v", err)
	}
	defer l.Close()
	b.l.CloseListener()
	b.over(b.l, false)
	if err := b.listener.Close(); err != nil {
		b.Errorf("Listener.Close: %v", err)
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(mostTime))
	p := b.h.Dial(l.Addr())
	nc, err := l.Accept()
	if err != nil {
		b.Fatalf("accepting from the duplicate: %v", err)
	}
	nc.Close()
	b.until("the peer sees the end", func() bool { return p.Ended() || p.Err() != nil })
}

// What is done with the duplicate to give it to another process, which package os/exec does by Fd,
// leaves the listener as it is: its owner can stop accepting at any time.
func listenerFileIsLent(b *bed) {
	b.start()
	f := b.listenerFile()
	defer f.Close()
	_ = f.Fd()
	p, c := b.connect() // so that the kernel is asked for another one now
	b.exchange(p, c)
	b.settle()
	b.l.CloseListener()
	b.over(b.l, false)
	b.closed(c)
}

func listenOnAForeignListener(b *bed) {
	b.start()
	if _, err := b.k.ListenOn(foreignListener{b.listener}); !errors.Is(err, driver.ErrUnsupported) {
		b.Errorf("Listen on another system's listener: %v, want ErrUnsupported", err)
	}
}

type foreignListener struct{ driver.Listener }

// Packets are no streams: what does not fit into a read would be lost.
func listenOnOtherNetworks(b *bed) {
	for _, network := range []string{"unixpacket", "unixgram", "udp", "", "nonsense"} {
		l, err := b.sys.Listen(b.context(), network, b.TempDir()+"/s")
		if !errors.Is(err, driver.ErrUnsupported) {
			b.Errorf("Listen on network %q: %v, want ErrUnsupported", network, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}
