package websocket

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// overTLS serves o over TLS, without web, and gives a client behind its handshake.
func overTLS(t *testing.T, o *Options) *tls.Conn {
	t.Helper()
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.StartTLS()
	defer borrowed.Close()
	ln, err := startEngine(t, myriad.Config{}).Listen("tcp", "127.0.0.1:0", tlsloop.Handler(
		&tls.Config{Certificates: borrowed.TLS.Certificates},
		func(tls.ConnectionState) myriad.Handler { return Handler(o) }))
	must(t, err)
	tc, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	_ = tc.SetDeadline(time.Now().Add(hangs))
	t.Cleanup(func() { tc.Close() })
	return tc
}

// A peer whose FIN comes behind its close frame, but without a close_notify, has ended in order:
// what its messages lead to is sent, then the
// close frame, as over TCP. One without a close frame has not.
func TestPeerEndsTLSByFIN(t *testing.T) {
	for _, closes := range []bool{true, false} {
		ended := make(chan error, 1)
		o := &Options{Workers: startPool(t), PingInterval: -1, OnClose: func(_ *Conn, err error) { ended <- err }}
		o.OnMessage = func(c *Conn, op Op, p []byte) {
			for end := time.Now().Add(hangs); closes && !finSeen(c) && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // until the FIN has come
			}
			_ = c.Write(op, p)
		}
		tc := overTLS(t, o)
		frames := clientFrame(true, OpText, "last words")
		if closes {
			frames += clientFrame(true, OpClose, closeWith(1000, ""))
		}
		io.WriteString(tc, sampleRequest+frames)
		_ = tc.NetConn().(*net.TCPConn).CloseWrite()
		in := bufio.NewReader(tc)
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		got, err := io.ReadAll(in)
		end := <-ended
		if !closes {
			if !errors.Is(end, io.ErrUnexpectedEOF) {
				t.Errorf("without a close frame: OnClose(%v)", end)
			}
			continue
		}
		if want := "\x81\x0alast words\x88\x02\x03\xe8"; string(got) != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		if CloseStatus(end) != 1000 {
			t.Errorf("OnClose(%v)", end)
		}
	}
}

func finSeen(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold != nil && c.cold.fin
}
