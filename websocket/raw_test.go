package websocket

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A badOpening is a change to the sample request, and the status it is refused with.
type badOpening struct {
	name     string
	old, new string
	status   int
	header   string // in the answer
}

var badOpenings = []badOpening{
	{"method", "GET /", "POST /", 405, "Allow: GET"},
	{"HTTP/1.0", "HTTP/1.1", "HTTP/1.0", 426, "Upgrade: websocket"},
	{"no Upgrade", "Upgrade: websocket\r\n", "", 426, "Upgrade: websocket"},
	{"another Upgrade", "Upgrade: websocket", "Upgrade: h2c", 426, "Upgrade: websocket"},
	{"no Connection", "Connection: Upgrade\r\n", "", 426, "Connection: Upgrade"},
	{"no version", "Sec-WebSocket-Version: 13\r\n", "", 426, "Sec-WebSocket-Version: 13"},
	{"version 8", "Version: 13", "Version: 8", 426, "Sec-WebSocket-Version: 13"},
	{"two versions", "Sec-WebSocket-Version: 13\r\n", "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 8\r\n", 426,
		"Sec-WebSocket-Version: 13"},
	{"no key", "Sec-WebSocket-Key: " + sampleKey + "\r\n", "", 400, ""},
	{"bad key", sampleKey, "c2hvcnQ=", 400, ""},
	{"two keys", "Connection", "Sec-WebSocket-Key: " + sampleKey + "\r\nConnection", 400, ""},
	{"foreign origin", "Connection", "Origin: https://evil.example\r\nConnection", 403, ""},
	{"null origin", "Connection", "Origin: null\r\nConnection", 403, ""},
	{"two origins", "Connection", "Origin: http://example.com\r\nOrigin: http://example.com\r\nConnection", 400, ""},
	{"body", "Connection", "Content-Length: 1\r\nConnection", 400, ""},
	{"chunked body", "Connection", "Transfer-Encoding: chunked\r\nConnection", 400, ""},
}

func (b badOpening) request() string { return strings.Replace(sampleRequest, b.old, b.new, 1) }

// malformed are requests that net/http's servers refuse before a handler sees them.
var malformed = []badOpening{
	{"no host", "Host: example.com\r\n", "", 400, ""},
	{"two hosts", "Host: ", "Host: a\r\nHost: ", 400, ""},
	{"empty host", "Host: example.com", "Host:", 400, ""},
	{"folded line", "Connection", " folded\r\nConnection", 400, ""},
	{"space before colon", "Host:", "Host :", 400, ""},
	{"no colon", "Connection: Upgrade", "Connection", 400, ""},
	{"empty name", "Connection", ": x\r\nConnection", 400, ""},
	{"bare line feed", "example.com\r\n", "example.com\n", 400, ""},
	{"bare carriage return", "example.com", "exam\rple.com", 400, ""},
	{"NUL in a value", "example.com", "exam\x00ple.com", 400, ""},
	{"two spaces", "GET /chat", "GET  /chat", 400, ""},
	{"no target", "GET /chat ", "GET ", 400, ""},
	{"control in target", "/chat", "/ch\x01at", 400, ""},
	{"another protocol", "HTTP/1.1", "HTTQ/1.1", 400, ""},
	{"HTTP/2", "HTTP/1.1", "HTTP/2.0", 505, ""},
	{"empty lines", "GET", strings.Repeat("\r\n", 5) + "GET", 400, ""},
	{"lower case", "GET", "get", 405, "Allow: GET"},
	{"two lengths", "Connection", "Content-Length: 0\r\nContent-Length: 1\r\nConnection", 400, ""},
	{"length and chunks", "Connection", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\nConnection", 400, ""},
	{"endless target", "/chat", "/" + strings.Repeat("x", maxHead), 414, ""},
	{"TLS", "GET /chat HTTP/1.1", "\x16\x03\x01\x02\x00\x01\x00", 400, ""},
	{"endless", "example.com", strings.Repeat("x", maxHead), 431, ""},
}

func TestRawRefuses(t *testing.T) {
	for _, b := range append(slices.Clone(badOpenings), malformed...) {
		t.Run(b.name, func(t *testing.T) {
			for seed := range uint64(4) {
				o, heard := recorded(&Options{})
				w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(o))
				c := w.client(b.request() + strings.Repeat("and goes on sending", 100))
				c.CloseWrite()
				w.Run()
				got := string(c.Received())
				if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d %s\r\n", b.status, http.StatusText(b.status))) ||
					!strings.Contains(got, b.header) {
					t.Errorf("seed %d: the client read %q, want status %d", seed, got, b.status)
				}
				if !c.Ended() || len(heard.all()) > 0 {
					t.Errorf("seed %d: ended %v, heard %q", seed, c.Ended(), heard.all())
				}
				w.stop()
			}
		})
	}
}

func TestAcceptRefuses(t *testing.T) {
	o, heard := recorded(&Options{})
	for _, b := range badOpenings {
		t.Run(b.name, func(t *testing.T) {
			r := requestOf(t, b.request())
			w := httptest.NewRecorder()
			c, err := Accept(w, r, o)
			if c != nil || err == nil || w.Code != b.status {
				t.Fatalf("got %v, %v and status %d, want %d", c, err, w.Code, b.status)
			}
			if name, value, ok := strings.Cut(b.header, ": "); ok && w.Header().Get(name) != value {
				t.Errorf("the header has no %s: %v", b.header, w.Header())
			}
			if !strings.Contains(err.Error(), fmt.Sprint(b.status)) {
				t.Errorf("the error does not tell: %v", err)
			}
		})
	}
	if len(heard.all()) > 0 {
		t.Errorf("heard %q", heard.all())
	}
}

func TestAcceptWithoutHijacker(t *testing.T) {
	w := httptest.NewRecorder()
	e := startEngine(t, myriad.Config{Loops: 1})
	if c, err := Accept(w, requestOf(t, sampleRequest), &Options{Engine: e}); c != nil || err == nil || w.Code != 500 {
		t.Errorf("got %v, %v and status %d, want 500", c, err, w.Code)
	}
}

// Any split of the request gives the same answer.
func TestRequestAnySplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := append(slices.Clone(badOpenings), malformed...)[rng.IntN(len(badOpenings)+len(malformed))]
		wire := []byte(b.request())
		if rng.IntN(2) == 0 {
			wire = []byte(sampleRequest)
		}
		var whole opening[[]byte]
		n, bad := parseRequest(wire, &whole)
		var p []byte
		for _, piece := range cutAtRandom(rng, wire) {
			p = append(p, piece...)
			var o opening[[]byte]
			gotN, gotBad := parseRequest(p, &o)
			if gotN == 0 && gotBad == nil {
				continue
			}
			if gotN != n || (gotBad == nil) != (bad == nil) || string(o.key) != string(whole.key) && bad == nil {
				t.Fatalf("%s: in pieces %d, %v; whole %d, %v", b.name, gotN, gotBad, n, bad)
			}
			break
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(sampleRequest), 10)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 3)
	f.Add([]byte("G"), 0)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		var o opening[[]byte]
		n, bad := parseRequest(p, &o)
		if n < 0 || n > len(p) || n > maxHead+4 || bad != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(p), bad)
		}
		if n == 0 && bad == nil && len(p) >= maxHead {
			t.Fatal("no end of an endless head")
		}
		if n == 0 || cut <= 0 || cut >= n {
			return
		}
		if early, bad := parseRequest(p[:cut], &o); early != 0 || bad != nil {
			t.Fatalf("complete with %d bytes (%v), and with %d", cut, bad, n)
		}
	})
}

func TestRawHandshakeTimeout(t *testing.T) {
	for _, wire := range []string{"", sampleRequest[:50]} {
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{HandshakeTimeout: 2 * time.Second}))
		c := w.client(wire)
		w.RunFor(1900 * time.Millisecond)
		if len(c.Received()) > 0 {
			t.Errorf("answered early: %q", c.Received())
		}
		w.RunFor(200 * time.Millisecond)
		if got := string(c.Received()); !strings.HasPrefix(got, "HTTP/1.1 408 ") || !c.Ended() {
			t.Errorf("after the timeout the client read %q", got)
		}
		w.Run()
		w.stop()
	}
}

func TestRawNegotiates(t *testing.T) {
	for header, want := range map[string]string{
		"Origin: http://example.com":                              "",
		"Origin: HTTPS://EXAMPLE.com":                             "",
		"Origin: https://app.friend.example":                      "",
		"Sec-WebSocket-Protocol: v1":                              "v1",
		"Sec-WebSocket-Protocol: v1, v2":                          "v2",
		"sec-websocket-protocol: x\r\nSec-WebSocket-Protocol: v1": "v1",
		"Sec-WebSocket-Protocol: none":                            "",
	} {
		got := "not opened"
		o := &Options{PingInterval: quiet, Subprotocols: []string{"v2", "v1"},
			OriginPatterns: []string{"*.friend.example"},
			OnOpen:         func(c *Conn) { got = c.Subprotocol() }}
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		c := w.client(strings.Replace(sampleRequest, "Connection", header+"\r\nConnection", 1))
		w.Settle()
		if got != want {
			t.Errorf("%s: subprotocol %q, want %q; %q", header, got, want, c.Received())
		}
		if want != "" && !strings.Contains(string(c.Received()), "\r\nSec-WebSocket-Protocol: "+want+"\r\n") {
			t.Errorf("%s: answered %q", header, c.Received())
		}
		w.finish(c)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for text, o := range map[string]*Options{
		"nil":            nil,
		"Dispatch":       {Dispatch: 9},
		"MaxMessage":     {MaxMessage: -1},
		"WriteLimit":     {WriteLimit: -1},
		"256":            {Subprotocols: slices.Repeat([]string{"x"}, 256)},
		`"a b"`:          {Subprotocols: []string{"a b"}},
		"origin pattern": {OriginPatterns: []string{"[::1]:8080["}},
	} {
		w := httptest.NewRecorder()
		if _, err := Accept(w, requestOf(t, sampleRequest), o); err == nil || !strings.Contains(err.Error(), text) ||
			w.Code != 500 {
			t.Errorf("Accept: %v, status %d, want an error that names %s", err, w.Code, text)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Handler took options with a wrong %s", text)
				}
			}()
			Handler(o)
		}()
	}
}

func TestConnIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Conn{}); size > 96 {
		t.Errorf("a Conn has %d bytes", size)
	}
}

func TestAppendUpgrade(t *testing.T) {
	o := &Options{Subprotocols: []string{"v2", "v1"}, Compression: Compression{Enabled: true}}
	request := strings.Replace(compressingRequest(), "Connection", "Sec-WebSocket-Protocol: v1\r\nConnection", 1)
	for short := range len(request) {
		if got, _, err := AppendUpgrade(nil, []byte(request[:short]), o); !errors.Is(err, ErrIncomplete) ||
			len(got) > 0 {
			t.Fatalf("%d bytes: %q, %v", short, got, err)
		}
	}
	got, h, err := AppendUpgrade([]byte("before "), []byte(request+"behind"), o)
	if err != nil || h != (Handshake{len(request), "v1", true}) || !strings.HasPrefix(string(got),
		"before HTTP/1.1 101 ") {
		t.Errorf("%q, %+v, %v", got, h, err)
	}
	for _, b := range append(slices.Clone(badOpenings), malformed...) {
		got, _, err := AppendUpgrade(nil, []byte(b.request()), o)
		if err == nil || !strings.HasPrefix(string(got), fmt.Sprintf("HTTP/1.1 %d ", b.status)) {
			t.Errorf("%s: %q, %v", b.name, got, err)
		}
	}
	if _, _, err := AppendUpgrade(nil, nil, nil); err == nil {
		t.Error("nil Options were taken")
	}
}

func TestAppendUpgradeDoesNotAllocate(t *testing.T) {
	dst := make([]byte, 0, switchingRoom)
	for name, o := range map[string]*Options{"plain": {}, "compressed": {Compression: Compression{Enabled: true}}} {
		for _, request := range []string{sampleRequest, browserRequest} {
			p := []byte(request)
			if n := testing.AllocsPerRun(100, func() { _, _, _ = AppendUpgrade(dst, p, o) }); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

const browserRequest = "GET /chat HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, Upgrade\r\n" +
	"Pragma: no-cache\r\nCache-Control: no-cache\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0\r\nUpgrade: websocket\r\n" +
	"Origin: https://example.com\r\n" +
	"Sec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.5\r\n" +
	"Sec-WebSocket-Key: " + sampleKey +
	"\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"

func BenchmarkUpgrade(b *testing.B) {
	dst := make([]byte, 0, switchingRoom)
	for name, o := range map[string]*Options{"plain": {}, "compressed": {Compression: Compression{Enabled: true}}} {
		for kind, request := range map[string]string{"minimal": sampleRequest, "browser": browserRequest} {
			b.Run(kind+" "+name, func(b *testing.B) {
				p := []byte(request)
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := AppendUpgrade(dst, p, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
