package clients

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A relay passes TCP connections on to a server, and counts what the server sends on each.
type relay struct {
	addr string

	mu    sync.Mutex
	conns []net.Conn
	sent  []*atomic.Int64 // by connection, in the order in which they came
}

func startRelay(t *testing.T, server string) *relay {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp4", server)
			if err != nil {
				in.Close()
				continue
			}
			sent := new(atomic.Int64)
			r.mu.Lock()
			r.conns, r.sent = append(r.conns, in, out), append(r.sent, sent)
			r.mu.Unlock()
			all.Go(func() { io.Copy(out, in); out.Close() })
			all.Go(func() { io.Copy(counting{in, sent}, out); in.Close() })
		}
	})
	return r
}

type counting struct {
	io.Writer
	n *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.Writer.Write(p)
}

// counts are the bytes that the server has sent, by connection.
func (r *relay) counts() (all []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.sent {
		all = append(all, n.Load())
	}
	return all
}

// A page of Chromium has twenty event streams and a WebSocket by wss on one HTTP/2 connection: what
// is published for them leaves the server on that one. With HTTP/1.1 a browser has at most six
// event streams of a server, and each has its connection, as the WebSocket has.
func TestBrowserSharesAConnection(t *testing.T) {
	const streams, size = 20, 10_000
	cert, key := certificate(t)
	s := start(t, nil, binary, "serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	addr := s.want(`url=https://([0-9.:]+)`)[1]
	r := startRelay(t, addr)
	b := startBrowser(t)
	b.open("https://" + r.addr + "/health")
	b.run(fmt.Sprintf(`window.got = new Array(%d).fill(0); window.open = 0; window.said = 0
		window.streams = got.map((_, i) => {
			const s = new EventSource('/events?channel=news')
			s.onopen = () => open++
			s.onmessage = (e) => got[i] += e.data.length
			return s
		})
		window.socket = new WebSocket('wss://' + location.host + '/connection/websocket')
		socket.onopen = () => socket.send('{"id":1,"connect":{"subs":{}}}\n{"id":2,"subscribe":{"channel":"news"}}')
		socket.onmessage = (e) => { window.first ??= e.data; if (e.data.includes('"id":2')) window.ready = true
			if (e.data.includes('"pub"')) said += e.data.length }
		socket.onclose = (e) => { window.first = 'closed ' + e.code }`, streams), nil)
	b.until(fmt.Sprintf("open === %d && window.ready", streams))
	before := r.counts()
	var status string
	b.run(fmt.Sprintf(`const r = await fetch('/api/publish', { method: 'POST', body: JSON.stringify(
		{ channel: 'news', data: 'x'.repeat(%d) }) }); return r.status + ' ' + socket.readyState`, size), &status)
	if status != "200 1" {
		t.Fatalf("the publication's status, and the socket's state: %s", status)
	}
	b.until(fmt.Sprintf("got.every((n) => n >= %d) && said >= %d", size, size))
	// a browser may open a connection in advance; nothing is sent on it
	var busy []string
	for i, n := range r.counts() {
		if i >= len(before) {
			before = append(before, 0)
		}
		if n -= before[i]; n > size {
			busy = append(busy, fmt.Sprint(n))
		}
	}
	if len(busy) != 1 {
		t.Errorf("the server has sent %s bytes on its connections, want them on one", strings.Join(busy, " and "))
	}
	var protocols string
	b.run(`return [...new Set(performance.getEntriesByType('resource').map((e) => e.nextHopProtocol))].join()`,
		&protocols)
	if protocols != "h2" {
		t.Errorf("the page has used %q", protocols)
	}
	b.run("streams.forEach((s) => s.close()); socket.close()", nil)
	b.until("socket.readyState === 3")
}
