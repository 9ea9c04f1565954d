package clustertest

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/internal/soak"
)

// A link is the way to a node for those that share it: a proxy that can be cut. With several
// addresses it is a load balancer: it takes the first of them that accepts.
type link struct {
	listener net.Listener
	to       []string
	mu       sync.Mutex
	open     sync.Cond // for its connections, to go on
	cut      bool
	closed   bool
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
}

func newLink(t *testing.T, at string, to ...string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, conns: map[net.Conn]struct{}{}}
	l.open.L = &l.mu
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		if !l.await() {
			near.Close()
			return
		}
		far := l.dial()
		if far == nil {
			near.Close()
			continue
		}
		if !l.keep(near, far) {
			return
		}
		l.running.Go(func() { l.pass(near, far) })
		l.running.Go(func() { l.pass(far, near) })
	}
}

func (l *link) dial() net.Conn {
	for _, to := range l.to {
		if far, err := net.Dial("tcp", to); err == nil {
			return far
		}
	}
	return nil
}

func (l *link) keep(pair ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range pair {
		if l.closed {
			c.Close()
			continue
		}
		l.conns[c] = struct{}{}
	}
	return !l.closed
}

// pass carries bytes one way. While the link is cut it carries none, and neither end learns of it,
// as with a cable that is pulled out.
func (l *link) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !l.await() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// await waits until the link is whole. It returns false at the end of the test.
func (l *link) await() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut && !l.closed {
		l.open.Wait()
	}
	return !l.closed
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	l.open.Broadcast()
}

// reset ends all connections that there are, as a switch does that has forgotten them.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
	clear(l.conns)
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.open.Broadcast()
	l.mu.Unlock()
	l.listener.Close()
	l.reset()
	l.running.Wait()
}

// linked starts a cluster whose nodes reach each other by links only. It returns the links that
// lead to the last node and away from it. A node tells others the address at which it sees one, and
// its port. So a link has its node's port at 127.0.0.1, from where it connects to the node, which
// listens at an address of its own.
func linked(t *testing.T, namespace string, more ...string) (nodes []*node, lonely []*link) {
	t.Helper()
	all := freeport.For(t, 8)
	public, shared, private := all[:3], all[3:6], all[6:]
	var listen []string
	for i, at := range shared {
		_, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		listen = append(listen, fmt.Sprintf("127.0.1.%d:%s", i+1, port))
	}
	for i, at := range shared {
		if way := newLink(t, at, listen[i]); i == 2 {
			lonely = append(lonely, way)
		}
	}
	for i, at := range private {
		lonely = append(lonely, newLink(t, at, listen[i]))
	}
	for i := range public {
		routes := shared
		if i == 2 {
			routes = private
		}
		nodes = append(nodes, newNode(t, i, public[i], listen[i], routes, namespace, more...))
	}
	begin(t, nodes)
	return nodes, lonely
}

// The cable of a node is pulled out, twice. The first time the connections survive; the second time
// they do not.
func TestLinkCut(t *testing.T) {
	soak.Only(t)
	nodes, links := linked(t, history, "--ping-interval", pings)
	l := start(t, nodes, 1000, 3000, 2000)
	time.Sleep(5 * time.Second)
	for _, forgotten := range []bool{false, true} {
		for _, way := range links {
			way.set(true)
		}
		nodes[2].awaitSick()
		if forgotten {
			for _, way := range links {
				way.reset()
			}
		}
		time.Sleep(5 * time.Second)
		for _, way := range links {
			way.set(false)
		}
		for _, n := range nodes {
			n.awaitHealthy()
		}
		time.Sleep(5 * time.Second)
	}
	l.finish().wantAll(t)
}
