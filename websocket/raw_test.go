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

// An openingCase is a case of testdata/openings.txt.
type openingCase struct {
	name       string
	request    string
	status     int
	header     string // in the answer
	says       string
	compressed bool
	raw        bool
}

func openingCases(t *testing.T) (all []openingCase) {
	t.Helper()
	eachLine(t, "openings.txt", func(word string, p *script) {
		if word == "case" {
			all = append(all, openingCase{name: p.all()})
			return
		}
		switch c := &all[len(all)-1]; word {
		case "replace":
			old := p.term()
			p.skip(" ")
			c.request = strings.Replace(sampleRequest, old, p.payload(0), 1)
		case "answer":
			c.status, c.header = p.number(), p.all()
		case "says":
			c.says = p.all()
		case "compressed":
			c.compressed = true
		case "raw":
			c.raw = true
		default:
			p.wrong()
		}
	})
	return all
}

func (c *openingCase) options() *Options {
	return &Options{PingInterval: quiet, Subprotocols: []string{"v2", "v1"}, Compression: Compression{Enabled: true},
		OriginPatterns: []string{"*.friend.example"}}
}

// check looks at the answer's head.
func (c *openingCase) check(t *testing.T, answer string) {
	t.Helper()
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	head += "\r\n"
	want := []string{fmt.Sprintf("HTTP/1.1 %d %s\r\n", c.status, http.StatusText(c.status)), c.header}
	if c.says != "" {
		want = append(want, "\r\nSec-WebSocket-Protocol: "+c.says+"\r\n")
	}
	if c.compressed {
		want = append(want, "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "+
			"client_no_context_takeover\r\n")
	}
	for _, part := range want {
		if !strings.Contains(head, part) {
			t.Errorf("%s: the answer has no %q: %.300q", c.name, part, head)
		}
	}
	if strings.Contains(head, "-Protocol:") != (c.says != "") ||
		strings.Contains(head, "-Extensions:") != c.compressed {
		t.Errorf("%s: the answer says too much: %.300q", c.name, head)
	}
}

// Each opening on a raw connection that is cut anywhere, and gets no more than its answer.
func TestRawOpenings(t *testing.T) {
	for _, c := range openingCases(t) {
		for seed := range uint64(4) {
			o := c.options()
			says := "not opened"
			o.OnOpen = func(opened *Conn) { says = opened.Subprotocol() }
			o, heard := recorded(o)
			w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(o))
			p := w.client(c.request)
			if c.status != http.StatusSwitchingProtocols {
				p.Write([]byte(strings.Repeat("and goes on sending", 100)))
			}
			p.CloseWrite()
			w.Run()
			c.check(t, string(p.Received()))
			if opens := c.status == http.StatusSwitchingProtocols; opens != (len(heard.all()) > 0) ||
				opens && says != c.says || !p.Ended() {
				t.Errorf("%s, seed %d: heard %q, subprotocol %s, ended %v", c.name, seed, heard.all(), says, p.Ended())
			}
			w.stop()
		}
	}
}

func TestAcceptRefuses(t *testing.T) {
	for _, c := range openingCases(t) {
		if c.raw || c.status == http.StatusSwitchingProtocols {
			continue
		}
		o, heard := recorded(c.options())
		w := httptest.NewRecorder()
		conn, err := Accept(w, requestOf(t, c.request), o)
		if conn != nil || err == nil || !strings.Contains(err.Error(), fmt.Sprint(c.status)) || len(heard.all()) > 0 {
			t.Errorf("%s: %v, %v; heard %q", c.name, conn, err, heard.all())
		}
		if name, value, ok := strings.Cut(c.header, ": "); w.Code != c.status || ok && w.Header().Get(name) != value {
			t.Errorf("%s: status %d and %v, want %d and %s", c.name, w.Code, w.Header(), c.status, c.header)
		}
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
	cases := openingCases(t)
	for range 300 {
		b := cases[rng.IntN(len(cases))]
		wire := []byte(b.request)
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
	for _, c := range openingCases(t) {
		got, h, err := AppendUpgrade(nil, []byte(c.request), c.options())
		c.check(t, string(got))
		if (err == nil) != (c.status == http.StatusSwitchingProtocols) || h.Subprotocol != c.says ||
			h.Compressed != c.compressed {
			t.Errorf("%s: %+v, %v", c.name, h, err)
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
