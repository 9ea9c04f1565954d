package drivertest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
)

// NetHarness makes peers of ordinary sockets. They are closed when the test ends.
func NetHarness(t T) Harness {
	h := &netHarness{}
	t.Cleanup(h.close)
	return h
}

type netHarness struct {
	mu     sync.Mutex
	peers  []*netPeer
	closed bool // what is accepted from now on is dropped
	work   sync.WaitGroup
}

func (h *netHarness) close() {
	h.mu.Lock()
	peers := h.peers
	h.closed = true
	h.mu.Unlock()
	for _, p := range peers {
		p.kill()
	}
	h.work.Wait()
}

func (h *netHarness) newPeer() *netPeer {
	p := &netPeer{h: h}
	p.cond = sync.NewCond(&p.mu)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers = append(h.peers, p)
	p.dead = h.closed
	return p
}

// Dial implements Harness.
func (h *netHarness) Dial(addr net.Addr) Peer {
	p := h.newPeer()
	h.work.Go(func() {
		nc, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			p.failed(err)
			return
		}
		p.start(nc)
	})
	return p
}

// Listen implements Harness.
func (h *netHarness) Listen(network, addr string) (Acceptor, error) {
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	a := &netAcceptor{Listener: l}
	h.work.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p := h.newPeer()
			p.start(nc)
			a.add(p)
		}
	})
	return a, nil
}

type netAcceptor struct {
	net.Listener
	mu    sync.Mutex
	peers []Peer
}

func (a *netAcceptor) add(p Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peers = append(a.peers, p)
}

func (a *netAcceptor) Accepted() []Peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Peer(nil), a.peers...)
}

// netPeer has one goroutine that reads and one that writes.
type netPeer struct {
	h        *netHarness
	mu       sync.Mutex
	cond     *sync.Cond
	nc       net.Conn
	out      []byte
	writing  int // bytes of the Write call that is under way
	fin      bool
	finSent  bool
	gone     bool // Close was called
	dead     bool // nothing is written any more
	stopped  bool
	received bytes.Buffer
	ended    bool
	err      error
}

func (p *netPeer) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.dead {
		p.err = err
	}
	p.dead = true
	p.cond.Broadcast()
}

func (p *netPeer) start(nc net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nc = nc
	if p.dead {
		p.reset()
		return
	}
	p.h.work.Go(p.read)
	p.h.work.Go(p.write)
}

func (p *netPeer) read() {
	b := make([]byte, 16<<10)
	for {
		p.mu.Lock()
		for p.stopped && !p.dead {
			p.cond.Wait()
		}
		p.mu.Unlock()
		n, err := p.nc.Read(b)
		p.mu.Lock()
		p.received.Write(b[:n])
		p.ended = p.ended || err == io.EOF
		p.mu.Unlock()
		if err != nil {
			if err != io.EOF && !errors.Is(err, net.ErrClosed) {
				p.failed(err)
			}
			return
		}
	}
}

// next waits for something to write, nil if that is FIN.
func (p *netPeer) next() (b []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.out) == 0 && !p.fin && !p.gone && !p.dead {
		p.cond.Wait()
	}
	b, p.out = p.out, nil
	p.writing = len(b)
	return b, !p.dead
}

func (p *netPeer) write() {
	for {
		b, ok := p.next()
		if !ok {
			return
		}
		if len(b) == 0 {
			p.end()
			return
		}
		_, err := p.nc.Write(b)
		p.set(func() { p.writing = 0 })
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.failed(err)
			}
			return
		}
	}
}

// end follows the last byte.
func (p *netPeer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finSent = true
	if p.gone {
		p.nc.Close()
		return
	}
	if half, ok := p.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only where the peer has gone, which the reader reports
	}
}

// reset drops the connection. The lock is held.
func (p *netPeer) reset() {
	p.dead = true
	p.cond.Broadcast()
	if p.nc == nil {
		return
	}
	if tcp, ok := p.nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	p.nc.Close()
}

func (p *netPeer) kill() { p.Reset() }

func (p *netPeer) Write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fin && !p.gone && !p.dead {
		p.out = append(p.out, b...)
		p.cond.Broadcast()
	}
}

func (p *netPeer) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.cond.Broadcast()
}

func (p *netPeer) CloseWrite()  { p.set(func() { p.fin = true }) }
func (p *netPeer) StopReading() { p.set(func() { p.stopped = true }) }
func (p *netPeer) Resume()      { p.set(func() { p.stopped = false }) }
func (p *netPeer) Reset()       { p.set(p.reset) }
func (p *netPeer) Close()       { p.set(func() { p.gone = true }) }
func (p *netPeer) Ended() bool  { return under(p, func() bool { return p.ended }) }
func (p *netPeer) Err() error   { return under(p, func() error { return p.err }) }
func (p *netPeer) Open() bool   { return under(p, func() bool { return p.nc != nil }) }
func (p *netPeer) Unsent() int  { return under(p, func() int { return len(p.out) + p.writing }) }
func (p *netPeer) Count() int   { return under(p, func() int { return p.received.Len() }) }
func (p *netPeer) Received() []byte {
	return under(p, func() []byte { return bytes.Clone(p.received.Bytes()) })
}

func (p *netPeer) Local() driver.Addr {
	return under(p, func() driver.Addr { return driver.AddrOf(p.nc.LocalAddr()) })
}

func (p *netPeer) Remote() driver.Addr {
	return under(p, func() driver.Addr { return driver.AddrOf(p.nc.RemoteAddr()) })
}

func under[T any](p *netPeer, f func() T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f()
}
