package sim

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	firstPort    = 30000
	lastPort     = 65535
	dialRetry    = time.Second
	dialAttempts = 5
	dialTimeout  = 75 * time.Second // of the fault, and of Silence
)

// A Listener is what drivers of the world accept from, or the test itself (see ListenPeer). Like a
// descriptor it can be shared: the Listeners of one address have one backlog.
type Listener struct {
	*address
	readers []*conn // drivers' listeners
	shared  int     // duplicates: see driver.Listener
	refused bool    // no more connections, unless they are the duplicates'
	closed  bool
}

// address is one on which something listens.
type address struct {
	w         *World
	addr      net.Addr
	backlog   []*end
	coming    int         // connections on their way to the backlog
	listeners []*Listener // those that are not closed
	accept    func(*Peer)
	ended     bool // no more connections
	silent    bool // see Silence
}

// Listen implements driver.System. It knows tcp, tcp4, tcp6 and unix; nothing leaves the world.
func (w *World) Listen(_ context.Context, network, addr string) (driver.Listener, error) {
	l, err := w.listen(network, addr, nil)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ListenPeer lets the test accept what is dialled: accept runs for every connection, in a step, and
// must not wait.
func (w *World) ListenPeer(network, addr string, accept func(p *Peer)) (*Listener, error) {
	return w.listen(network, addr, accept)
}

func (w *World) listen(network, addr string, accept func(*Peer)) (*Listener, error) {
	na, err := resolve(network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if tcp, ok := na.(*net.TCPAddr); ok && tcp.Port == 0 {
		tcp.Port = w.freePort()
	}
	if w.findListener(na) != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: na,
			Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	b := &address{w: w, addr: na, accept: accept}
	w.addresses = append(w.addresses, b)
	w.note("listener", "listen "+na.String(), 0, 0)
	return b.listener(), nil
}

func (b *address) listener() *Listener {
	l := &Listener{address: b}
	b.listeners = append(b.listeners, l)
	return l
}

// shareListener is what dup is for a descriptor.
func (w *World) shareListener(dl driver.Listener) (driver.Listener, error) {
	l, ok := dl.(*Listener)
	if !ok || l.w != w {
		return nil, fmt.Errorf("sim: share of %T: %w", dl, driver.ErrUnsupported)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case l.refused || l.closed:
		return nil, net.ErrClosed
	case w.noFiles:
		return nil, syscall.EMFILE
	}
	w.note("listener", "share "+l.addr.String(), 0, 0)
	twin := l.listener()
	l.shared, twin.shared = l.shared+1, 1
	return twin, nil
}

func (w *World) freePort() int {
	w.nextPort++
	if w.nextPort > lastPort {
		w.nextPort = firstPort + 1
	}
	return w.nextPort
}

// findListener looks for one that takes connections to addr, a wildcard among them.
func (w *World) findListener(addr net.Addr) *address {
	for _, l := range w.addresses {
		switch la := l.addr.(type) {
		case *net.TCPAddr:
			if a, ok := addr.(*net.TCPAddr); ok && a.Port == la.Port && (la.IP.IsUnspecified() || la.IP.Equal(a.IP)) {
				return l
			}
		case *net.UnixAddr:
			if a, ok := addr.(*net.UnixAddr); ok && a.Name == la.Name {
				return l
			}
		}
	}
	return nil
}

// Addr is the address, with the port that was picked.
func (l *Listener) Addr() net.Addr { return l.addr }

// File fails with driver.ErrUnsupported: there is no descriptor.
func (l *Listener) File() (*os.File, error) {
	return nil, fmt.Errorf("sim: listener %v: file: %w", l.addr, driver.ErrUnsupported)
}

// Unshare implements driver.Listener.
func (l *Listener) Unshare() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.shared--
}

// Refuse ends listening, unless l is shared: clients that wait in the backlog are reset, and the
// address is free. It implements driver.Listener.
func (l *Listener) Refuse() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.refuse()
}

func (l *Listener) refuse() {
	if l.refused {
		return
	}
	if l.refused = true; l.shared <= 0 {
		l.end()
	}
}

// end is the end of listening on the address, for all Listeners.
func (b *address) end() {
	if b.ended {
		return
	}
	w := b.w
	b.ended = true
	for _, e := range b.backlog {
		e.abort()
	}
	b.backlog = nil
	w.addresses = slices.DeleteFunc(w.addresses, func(other *address) bool { return other == b })
	w.note("listener", "refuse "+b.addr.String(), 0, 0)
}

// Close panics if a driver still accepts from l, which the contract forbids.
func (l *Listener) Close() error {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	if len(l.readers) > 0 {
		w.mu.Unlock()
		defer w.mu.Lock()
		w.fail("contract: listener %v is closed while a driver accepts from it: CloseListener comes first", l.addr)
	}
	l.closed = true
	l.refuse()
	l.listeners = slices.DeleteFunc(l.listeners, func(other *Listener) bool { return other == l })
	if len(l.listeners) == 0 {
		l.end()
	}
	return nil
}

// Silence has every dial to l wait as long as on is true: no SYN is answered, as behind a firewall
// that drops it. A dial is sent again each second, and fails with ETIMEDOUT after 75 seconds.
func (l *Listener) Silence(on bool) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.silent = on
}

// Dials is how many dials to addr are under way.
func (w *World) Dials(addr net.Addr) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.dials {
		if d.addr.String() == addr.String() {
			n++
		}
	}
	return n
}

// connect dials addr and tells done the outcome: an end, or an error. done runs with the lock held.
// The event it returns can be cancelled.
func (w *World) connect(addr net.Addr, done func(e *end, err error)) *dial {
	d := &dial{w: w, addr: addr, done: done, place: len(w.dials)}
	w.dials = append(w.dials, d)
	if w.chance(w.o.Dial) {
		d.fault = true
		if w.rng.IntN(3) == 0 {
			d.plan(dialTimeout, func() { d.fail(syscall.ETIMEDOUT) })
		} else {
			d.plan(w.latency(), func() { d.fail(syscall.ECONNREFUSED) })
		}
		return d
	}
	d.plan(w.latency(), d.attempt)
	return d
}

// A dial is an attempt to connect that is under way.
type dial struct {
	w        *World
	addr     net.Addr
	done     func(e *end, err error)
	attempts int
	place    int // in World.dials
	fault    bool
	ev       *event
	over     bool
}

func (d *dial) plan(after time.Duration, f func()) { d.ev = d.w.after(after, delivery, f) }

func (d *dial) cancel() {
	d.end()
	d.w.queue.remove(d.ev)
}

func (d *dial) end() {
	if d.over {
		return
	}
	d.over = true
	all := d.w.dials
	last := all[len(all)-1]
	all[d.place], last.place = last, d.place
	all[len(all)-1] = nil
	d.w.dials = all[:len(all)-1]
}

func (d *dial) fail(errno syscall.Errno) {
	d.end()
	d.done(nil, os.NewSyscallError("connect", errno))
}

func (d *dial) attempt() {
	w := d.w
	l := w.findListener(d.addr)
	switch {
	case l == nil && isUnix(d.addr):
		d.fail(syscall.ENOENT)
	case l == nil:
		d.fail(syscall.ECONNREFUSED)
	case l.silent:
		if d.attempts++; time.Duration(d.attempts)*dialRetry >= dialTimeout {
			d.fail(syscall.ETIMEDOUT)
			return
		}
		d.plan(dialRetry, d.attempt)
	case len(l.backlog)+l.coming >= w.o.Backlog:
		if d.attempts++; d.attempts >= dialAttempts {
			d.fail(syscall.ETIMEDOUT)
			return
		}
		d.plan(dialRetry, d.attempt)
	default:
		d.end()
		d.done(l.connected(d.addr), nil)
	}
}

func isUnix(addr net.Addr) bool {
	_, ok := addr.(*net.UnixAddr)
	return ok
}

// connected makes a link whose far end waits in the backlog, and returns the near one.
func (b *address) connected(addr net.Addr) *end {
	w := b.w
	server, client := driver.AddrOf(addr), driver.UnixAddr
	if tcp, ok := addr.(*net.TCPAddr); ok {
		client = driver.AddrOf(&net.TCPAddr{IP: tcp.IP, Port: w.freePort(), Zone: tcp.Zone})
	}
	near, far := w.newLink(client, server, isUnix(addr))
	w.note("net", "connected", near.id, 0)
	b.coming++
	w.after(w.latency(), delivery, func() { b.arrive(far) })
	return near
}

// arrive puts a connection where it is accepted.
func (b *address) arrive(e *end) {
	b.coming--
	switch {
	case b.ended:
		e.abort()
	case b.accept != nil:
		p := &Peer{w: b.w, e: e, open: true, slow: b.w.chance(b.w.o.SlowPeer)}
		e.holder = p
		b.w.callback(func() { b.accept(p) })
		p.endChanged()
	default:
		b.backlog = append(b.backlog, e)
		for _, one := range b.listeners {
			for _, c := range one.readers {
				c.endChanged()
			}
		}
	}
}

// ExhaustFiles makes every attempt to accept fail with EMFILE, until it is called with false.
func (w *World) ExhaustFiles(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noFiles = on
}

// Resolve knows literal addresses, localhost, and Unix paths. It implements driver.System.
func (w *World) Resolve(_ context.Context, network, addr string) ([]net.Addr, error) {
	na, err := resolve(network, addr)
	if err != nil {
		return nil, err
	}
	return []net.Addr{na}, nil
}

func resolve(network, addr string) (net.Addr, error) {
	switch network {
	case "unix":
		return &net.UnixAddr{Name: addr, Net: network}, nil
	case "tcp", "tcp4", "tcp6":
		return resolveTCP(network, addr)
	}
	return nil, fmt.Errorf("sim: network %q: %w (use tcp, tcp4, tcp6 or unix)", network, driver.ErrUnsupported)
}

func resolveTCP(network, addr string) (net.Addr, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("sim: address %q: the port must be a number", addr)
	}
	var ip netip.Addr
	switch {
	case host == "" && network == "tcp4":
		ip = netip.IPv4Unspecified()
	case host == "":
		ip = netip.IPv6Unspecified()
	case host == "localhost" && network == "tcp6":
		ip = netip.IPv6Loopback()
	case host == "localhost":
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if ip, err = netip.ParseAddr(host); err != nil {
			return nil, &net.DNSError{Err: "no such host in a simulated world", Name: host, IsNotFound: true}
		}
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(port))), nil
}
