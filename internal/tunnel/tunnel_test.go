package tunnel

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// TestMain fails when goroutines of this module or blocks are left behind.
func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

func dialFor(t testing.TB, proxy, target string) *Dial {
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	return &Dial{Proxy: u, Target: target, Timeout: Timeout, Limits: h1.Limits{HeadBytes: 1000, LineBytes: 1000}}
}

// runSocks gives a proxy's bytes to a client, in two parts, and says all that comes of it.
func runSocks(t testing.TB, p []byte, split int, login bool) string {
	proxy := "socks5://p"
	if login {
		proxy = "socks5://me:secret@p"
	}
	h, err := Socks(dialFor(t, proxy, "example.com:443"))
	if err != nil {
		t.Fatal(err)
	}
	s := h.(*socks)
	var said []byte
	for _, part := range [][]byte{p[:split], p[split:]} {
		if s.done || err != nil {
			s.kept = append(s.kept, part...)
			continue
		}
		var reply []byte
		reply, err = s.advance(part)
		said = append(said, reply...)
	}
	if err != nil {
		return fmt.Sprintf("%q, %v", said, err)
	}
	if len(s.kept) > 262 && !s.done {
		t.Errorf("%d bytes are kept", len(s.kept))
	}
	return fmt.Sprintf("%q, %v, %q", said, s.done, s.kept)
}

// What a proxy sends means the same however it is split.
func FuzzSocks(f *testing.F) {
	for _, answer := range []string{
		"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50",
		"\x05\x02\x01\x00\x05\x00\x00\x03\x04name\x00\x50rest",
		"\x05\x00\x05\x00\x00\x04" + strings.Repeat("a", 18),
		"\x05\x02\x01\x01", "\x05\xff", "\x04\x00", "\x05\x00\x05\x05\x00\x01", "\x05\x00\x05\x77\x00\x01\x00",
		"\x05\x00\x05\x00\x00\x02\x00", "\x05\x00\x04\x00\x00\x01\x00", "",
	} {
		f.Add([]byte(answer), true)
		f.Add([]byte(answer), false)
	}
	f.Fuzz(func(t *testing.T, p []byte, login bool) {
		if len(p) > 600 {
			return
		}
		whole := runSocks(t, p, 0, login)
		for split := range len(p) + 1 {
			if got := runSocks(t, p, split, login); got != whole {
				t.Fatalf("%q split at %d: %s, want %s", p, split, got, whole)
			}
		}
	})
}

// What SOCKS5 has no form for is refused before anything is sent.
func TestSocksRequests(t *testing.T) {
	for _, tt := range []struct{ proxy, target, want string }{
		{"socks5://p", "127.0.0.1:80", "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"},
		{"socks5://p", "[::1]:80", "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x50"},
		{"socks5://p", "a.b:443", "\x05\x01\x00\x03\x03a.b\x01\xbb"},
		{"socks5://p", strings.Repeat("a", 256) + ":1", "too long"},
		{"socks5://p", "a:65536", "out of range"},
		{"socks5://p", "a", "missing port"},
		{"socks5://:x@p", "a:1", "255 bytes"},
		{"socks5://" + strings.Repeat("a", 256) + "@p", "a:1", "255 bytes"},
	} {
		h, err := Socks(dialFor(t, tt.proxy, tt.target))
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s %.20s: %v, want %s", tt.proxy, tt.target, err, tt.want)
			}
			continue
		}
		if got := string(h.(*socks).request); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.proxy, tt.target, got, tt.want)
		}
	}
}

// next is what speaks behind the tunnel.
type next chan error

func (n next) Opened(c *myriad.Conn)             { n <- nil; c.Abort(nil) }
func (n next) Received(_ *myriad.Conn, p []byte) { n <- fmt.Errorf("received %q", p) }
func (n next) Closed(*myriad.Conn, error)        {}

func refuse(head *h1.ResponseHead) error { return fmt.Errorf("status %d", head.Status) }
func agree(*h1.ResponseHead) error       { return nil }
func never(*h1.ResponseHead) error       { panic("there is no answer") }

// Each dial ends once: the tunnel stands, or Failed says why it does not.
func TestConnect(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(t.Context())
	interim := "HTTP/1.1 103 Early Hints\r\n\r\n"
	for name, tt := range map[string]struct {
		answer string
		judge  func(*h1.ResponseHead) error
		want   string
	}{
		"stands":  {interim + "HTTP/1.1 200 OK\r\n\r\n", agree, "<nil>"},
		"early":   {"HTTP/1.1 200 OK\r\n\r\nx", agree, ErrEarly.Error()},
		"refused": {"HTTP/1.1 407 No\r\n\r\n", refuse, "status 407"},
		"garbage": {"SSH-2.0\r\n\r\n", never, "h1: "},
		"endless": {strings.Repeat(interim, 50), never, "h1: "},
		"silent":  {"", never, ErrTimeout.Error()},
	} {
		in, out := net.Pipe()
		go func() {
			defer out.Close()
			go io.WriteString(out, tt.answer)
			io.Copy(io.Discard, out)
		}()
		got := make(chan error, 2)
		d := dialFor(t, "http://p", "a:1")
		if d.Next, d.Failed = next(got), func(err error) { got <- err }; tt.answer == "" {
			d.Timeout = time.Millisecond
		}
		if _, err := e.Adopt(in, nil, Connect(d, []byte("CONNECT a:1 HTTP/1.1\r\n\r\n"), tt.judge)); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// A dial that was given up sends nothing and reports nothing.
func TestGivenUp(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(t.Context())
	for _, make := range []func(*Dial) (myriad.Handler, error){
		Socks, func(d *Dial) (myriad.Handler, error) { return Connect(d, []byte("x"), never), nil },
	} {
		in, out := net.Pipe()
		d := dialFor(t, "socks5://p", "a:1")
		d.Over = func() bool { return true }
		d.Failed = func(err error) { t.Errorf("Failed(%v)", err) }
		h, err := make(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = e.Adopt(in, nil, h); err != nil {
			t.Fatal(err)
		}
		if p, err := io.ReadAll(out); len(p) > 0 {
			t.Errorf("the proxy got %q, %v", p, err)
		}
		out.Close()
	}
}
