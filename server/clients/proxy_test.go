package clients

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// A proxy forwards connections from clients to the server, and can reset them in the middle of a
// message.
type proxy struct {
	addr     string
	listener net.Listener
	target   string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), listener: l, target: target, conns: make(map[net.Conn]bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		down := p.down
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		if down {
			client.Close()
			server.Close()
		}
		p.wg.Go(func() { p.copy(server, client) })
		p.wg.Go(func() { p.copy(client, server) })
	}
}

// copy forwards small pieces, so that a reset leaves an incomplete message. When one side ends, it
// closes both.
func (p *proxy) copy(to, from net.Conn) {
	b := make([]byte, 1+rand.IntN(200))
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, b) // how it ends does not matter
	to.Close()
	from.Close()
	p.mu.Lock()
	delete(p.conns, to)
	delete(p.conns, from)
	p.mu.Unlock()
}

// cut resets all connections. If down is set, the proxy refuses new ones.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok && rand.IntN(2) == 0 {
			_ = tcp.SetLinger(0) // a reset, as from a network failure
		}
		c.Close()
	}
}

// up accepts connections again.
func (p *proxy) up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}
