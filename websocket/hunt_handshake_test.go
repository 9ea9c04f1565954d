package websocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

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
		w, c, _, err := dialScripted(t, 1, o, answer)
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

// Each frame of a client has a mask of its own.
func TestMasksAreFresh(t *testing.T) {
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
	var peer *sim.Peer
	ln := w.listenPeer(func(p *sim.Peer, key string) {
		peer = p
		p.Write([]byte(switching(key)))
	})
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
