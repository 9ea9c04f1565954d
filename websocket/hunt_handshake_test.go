package websocket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// Requests with which others were made to crash, to loop or to open what they must not.
func TestHostileOpenings(t *testing.T) {
	extensions := func(value string) string {
		return strings.Replace(sampleRequest, "Connection", "Sec-WebSocket-Extensions: "+value+"\r\nConnection", 1)
	}
	var names strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&names, "x%d: x\r\n", i)
	}
	for name, c := range map[string]struct {
		request string
		status  int
		packed  bool
	}{
		"constructor":              {extensions("constructor"), 101, false},
		"an empty one, and so on":  {extensions(",;constructor"), 400, false},
		"__proto__ as a parameter": {extensions("permessage-deflate; __proto__=1"), 101, false},
		"a quote without an end":   {extensions(`permessage-deflate; x="` + strings.Repeat(`\"`, 3000)), 400, false},
		"blanks":                   {extensions("permessage-deflate" + strings.Repeat(" ", 7000) + ";"), 400, false},
		"blanks in order":          {extensions(strings.Repeat(" ", 7000) + "permessage-deflate"), 101, true},
		"many offers": {extensions(strings.Repeat("permessage-deflate;x,", 300) + "permessage-deflate"), 101,
			true},
		"window bits of nine digits": {extensions("permessage-deflate; client_max_window_bits=000000015"), 101,
			false},
		"window bits below": {extensions("permessage-deflate; server_max_window_bits=7"), 101, false},
		"the same twice": {extensions("permessage-deflate; server_max_window_bits=9; server_max_window_bits=9"), 101,
			false},
		"many fields": {strings.Replace(sampleRequest, "Upgrade:", names.String()+"Upgrade:", 1), 431, false},
		"a subprotocol of blanks": {strings.Replace(sampleRequest, "Connection", "Sec-WebSocket-Protocol: b"+
			strings.Repeat(" ", 7000)+"x\r\nConnection", 1), 101, false},
		"no Upgrade": {strings.Replace(sampleRequest, "Upgrade: websocket\r\n", "", 1), 426, false},
	} {
		o := &Options{Subprotocols: []string{"b"}, Compression: Compression{Enabled: true}}
		got, h, _ := AppendUpgrade(nil, []byte(c.request), o)
		if !strings.HasPrefix(string(got), fmt.Sprintf("HTTP/1.1 %d ", c.status)) || h.Compressed != c.packed ||
			h.Subprotocol != "" {
			t.Errorf("%s: %.60q, %+v", name, got, h)
		}
	}
}

// Origins that others have taken for an allowed one.
func TestOriginsThatLookAlike(t *testing.T) {
	patterns := []string{"mydomain.com", "localhost:9000", "https://exact.example", "*.sub.example"}
	for origin, allowed := range map[string]bool{
		"https://mydomain.com":                      true,
		"https://MYDOMAIN.com":                      true,
		"https://mydomain.com:443":                  true,
		"https://amydomain.com":                     false,
		"https://mydomain.com.evil.example":         false,
		"https://mydomain.com@evil.example":         false,
		"https://evil.example/mydomain.com":         false,
		"https://evil.example#mydomain.com":         false,
		"https://mydomain.com:8443":                 false,
		"http://localhost:90000":                    false,
		"http://localhost:9000":                     true,
		"http://localhost:9000.evil.example":        false,
		"http://exact.example":                      false,
		"https://exact.example":                     true,
		"null":                                      false,
		"file://":                                   false,
		"https://sub.example":                       false,
		"https://a.sub.example":                     true,
		"https://asub.example":                      false,
		"https://example.com.":                      false,
		"https://example.com":                       true,
		"https://example.com:80":                    false,
		" https://example.com":                      false,
		"https://evil.example, https://example.com": false,
		"wss://example.com":                         true,
		"ws://example.com:80":                       true,
		"capacitor://example.com":                   false,
		"chrome-extension://example.com":            false,
	} {
		if got := originAllowed(origin, "example.com", patterns); got != allowed {
			t.Errorf("%q: %v", origin, got)
		}
	}
}

// dialScripted dials a server that answers the handshake with answer, and then ends the connection.
func dialScripted(t *testing.T, o *DialOptions, answer func(key string) string) (*world, *Conn, error) {
	t.Helper()
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		answered := false
		p.OnReceived = func([]byte) {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(p.Received())))
			if err != nil || answered {
				return
			}
			answered = true
			p.Write([]byte(answer(r.Header.Get("Sec-WebSocket-Key"))))
			p.CloseWrite()
		}
	})
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	o.Random, o.Engine, o.PingInterval = seeded(1), w.e, quiet
	c, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o)
	return w, c, err
}

// A client reads all that comes in one segment with the 101, although its peer has ended the
// connection meanwhile, and whenever it begins to read.
func TestFramesWithTheAnswer(t *testing.T) {
	var wire []byte
	var want []string
	for i := range 200 {
		text := fmt.Sprint(i)
		wire = appendFrame(wire, frameHeader{fin: true, op: OpText}, []byte(text))
		wire = appendFrame(wire, frameHeader{fin: true, op: OpPing}, nil)
		want = append(want, text)
	}
	wire = appendFrame(wire, frameHeader{fin: true, op: OpClose}, appendCloseBody(nil, 1000, ""))
	answer := func(key string) string { return switching(key) + string(wire) }
	for _, pull := range []bool{false, true} {
		var got []string
		var end error
		o := &DialOptions{}
		if o.Pull = pull; !pull {
			o.OnMessage = func(_ *Conn, _ Op, p []byte) { got = append(got, string(p)) }
			o.OnClose = func(_ *Conn, err error) { end = err }
		}
		w, c, err := dialScripted(t, o, answer)
		must(t, err)
		w.RunFor(time.Second)
		if pull {
			w.Go(func() {
				for {
					_, p, err := c.Read(context.Background())
					if end = err; err != nil {
						return
					}
					got = append(got, string(p))
				}
			})
		}
		w.RunFor(time.Minute)
		if !slices.Equal(got, want) || CloseStatus(end) != StatusNormalClosure {
			t.Errorf("pull %v: %d of %d messages, and the end %v", pull, len(got), len(want), end)
		}
		w.stop()
	}
}

// Proxies add fields that frame a body to a 101, which has none.
func TestSwitchingWithALength(t *testing.T) {
	for field, opens := range map[string]bool{"Content-Length: 0": true, "Transfer-Encoding: chunked": true,
		"Sec-WebSocket-Extensions: ": true, "Sec-WebSocket-Protocol: chat": false, "Sec-WebSocket-Accept: x": false} {
		frame := string(appendFrame(nil, frameHeader{fin: true, op: OpText}, []byte("text")))
		var got []string
		o := &DialOptions{}
		o.OnMessage = func(_ *Conn, _ Op, p []byte) { got = append(got, string(p)) }
		w, _, err := dialScripted(t, o, func(key string) string {
			return strings.Replace(switching(key), "\r\n\r\n", "\r\n"+field+"\r\n\r\n", 1) + frame
		})
		w.RunFor(time.Minute)
		if opens != (err == nil) || opens != slices.Equal(got, []string{"text"}) {
			t.Errorf("%s: %v, %q", field, err, got)
		}
		w.stop()
	}
}

// Each frame of a client has a mask of its own.
func TestMasksAreFresh(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
	var peer *sim.Peer
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		peer = p
		p.OnReceived = func([]byte) {
			if r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(p.Received()))); err == nil {
				p.OnReceived = nil
				p.Write([]byte(switching(r.Header.Get("Sec-WebSocket-Key"))))
			}
		}
	})
	must(t, err)
	o := &DialOptions{}
	o.Engine, o.PingInterval = w.e, quiet // Random is crypto/rand
	c, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o)
	must(t, err)
	const frames = 1000
	prepared, err := Prepare(OpText, []byte("same"))
	must(t, err)
	for range frames / 2 {
		must(t, c.Write(OpText, []byte("same")))
		must(t, c.WritePrepared(prepared))
	}
	prepared.Release()
	w.Settle()
	_, wire, _ := bytes.Cut(peer.Received(), []byte("\r\n\r\n"))
	keys := map[uint32]int{}
	for ; len(wire) >= 10; wire = wire[10:] {
		keys[binary.BigEndian.Uint32(wire[2:])]++
	}
	if len(keys) < frames-1 { // two of 2^32 may be equal
		t.Errorf("%d masks for %d frames", len(keys), frames)
	}
	c.Abort(nil)
	w.Run()
	_ = ln.Close()
	w.stop()
}

// The server's limits for requests end with the upgrade, over both versions of HTTP.
func TestServerTimeoutsEndWithTheUpgrade(t *testing.T) {
	limit := func(s *web.Server) {
		s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = time.Second, time.Second, time.Second
		s.ReadHeaderTimeout = time.Second
	}
	o, heard := recorded(&Options{PingInterval: quiet, OnMessage: echoBack})
	check := func(w *world, speak func()) {
		for range 5 {
			w.RunFor(time.Minute)
			speak()
		}
		w.RunFor(time.Minute)
		if got := heard.all(); !slices.Equal(got, append([]string{"open"}, slices.Repeat([]string{`text "x"`}, 5)...)) {
			t.Errorf("heard %q", got)
		}
		heard.lines = nil
	}
	mux := newMuxWorld(t, 1, sim.Calm(), o)
	limit(mux.s)
	two := mux.dial(plenty)
	two.open(1)
	check(mux.world, func() { two.frames(1, clientFrame(true, OpText, "x"), 1, false) })
	if got := two.lines(1); len(got) != 5 {
		t.Errorf("HTTP/2: read %q", got)
	}
	mux.stop(two)

	heard.lines = nil
	o, heard = recorded(&Options{PingInterval: quiet, OnMessage: echoBack})
	w := &world{World: sim.New(1, sim.Calm()), t: t}
	var err error
	if w.e, err = myriad.Start(myriad.Config{Loops: 1, System: w.World}); err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Engine: w.e, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = Accept(rw, r, o)
	})}
	limit(s)
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	one := &client{w.Dial(ln.Addr())}
	one.Write([]byte(sampleRequest))
	check(w, func() { one.send(OpText, "x") })
	if got := one.lines(t); len(got) != 5 {
		t.Errorf("HTTP/1: read %q", got)
	}
	w.finish(one)
}
