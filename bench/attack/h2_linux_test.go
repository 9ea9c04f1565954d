package attack

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// A victim is a server with what attackers ask for.
type victim struct {
	engine *myriad.Engine
	addr   string
}

func newVictim(t *testing.T) victim {
	t.Helper()
	engine, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Engine: engine, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols.SetUnencryptedHTTP2(true)
	answer := make([]byte, 1<<20)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == Large {
			_, _ = w.Write(answer)
		}
	})
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		if err := engine.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return victim{engine, ln.Addr().String()}
}

// figures are what the engine counts of HTTP/2, by name.
func (v victim) figures() map[string]int64 {
	all := map[string]int64{}
	for _, f := range v.engine.Figures() {
		for _, c := range f.Counts {
			all[c.Name] = c.Count
		}
	}
	return all
}

// A peer is a connection of an attacker, or of an ordinary client.
type peer struct {
	net.Conn
	frames *http2.Framer
	got    int // bytes
}

func (v victim) dial(t *testing.T) *peer {
	t.Helper()
	c, err := net.Dial("tcp", v.addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Conn: c}
	p.frames = http2.NewFramer(nil, p)
	p.frames.SetReuseFrames()
	t.Cleanup(func() { _ = c.Close() })
	return p
}

// Read counts what comes.
func (p *peer) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.got += n
	return n, err
}

// A cost is what a peer has sent and got, until the server has ended its connection or answered
// all.
type cost struct {
	code      http2.ErrCode // of GOAWAY; NO_ERROR: there was none
	sent, got int           // bytes
	cpu       time.Duration // of both ends
}

// send sends pieces and a PING, and reads until that is answered or the server says GOAWAY.
func (p *peer) send(t *testing.T, pieces ...string) (c cost) {
	t.Helper()
	began, got := spent(t), p.got
	sent := make(chan int)
	go func() {
		n := 0
		for _, piece := range append(pieces, frame(typePing, 0, 0, lastPing)) {
			k, err := io.WriteString(p, piece)
			if n += k; err != nil {
				break
			}
		}
		sent <- n
	}()
	for over := false; !over; {
		f, err := p.frames.ReadFrame()
		if err != nil {
			t.Errorf("neither GOAWAY nor the PING's answer: %v", err)
			break
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			c.code, over = f.ErrCode, true
			_ = p.Close() // so that the writer ends
		case *http2.PingFrame:
			over = string(f.Data[:]) == lastPing
		}
	}
	c.sent, c.got, c.cpu = <-sent, p.got-got, spent(t)-began
	return c
}

const lastPing = "the last"

// spent is the processor time of this process.
func spent(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perByte is the processor time of a byte that was sent, at both ends.
func (c cost) perByte() float64 { return float64(c.cpu) / float64(c.sent) }

// ordinary is what small requests cost, a hundred at a time.
func (v victim) ordinary(t *testing.T) (all cost) {
	t.Helper()
	p := v.dial(t)
	p.send(t, preface(""))
	for round := range uint32(20) {
		requests := ""
		for i := range uint32(100) {
			requests += request2(100*round+i, get)
		}
		one := p.send(t, requests)
		all.sent, all.got, all.cpu = all.sent+one.sent, all.got+one.got, all.cpu+one.cpu
	}
	return all
}

const (
	figureFloods     = "connections ended for floods"
	figurePeerResets = "streams reset by clients"
	figureResets     = "streams reset for mistakes"
	figureRefused    = "streams refused"
	figureStreams    = "streams"
	figureTooLarge   = "heads too large"
)

// ends says how web.Server ends each attack, and which figure of its engine counts it.
var ends = map[Kind]struct {
	code   http2.ErrCode
	figure string
}{
	RapidReset:        {http2.ErrCodeEnhanceYourCalm, figurePeerResets},
	MadeResetZero:     {http2.ErrCodeEnhanceYourCalm, figureResets},
	MadeResetOverflow: {http2.ErrCodeEnhanceYourCalm, figureResets},
	MadeResetLength:   {http2.ErrCodeEnhanceYourCalm, figureResets},
	MadeResetSelf:     {http2.ErrCodeEnhanceYourCalm, figureResets},
	MadeResetData:     {http2.ErrCodeEnhanceYourCalm, figureResets},
	MadeResetHeaders:  {http2.ErrCodeEnhanceYourCalm, figureResets},
	Refused:           {http2.ErrCodeEnhanceYourCalm, figureRefused},
	Continuations:     {http2.ErrCodeEnhanceYourCalm, figureFloods},
	LongBlocks:        {http2.ErrCodeEnhanceYourCalm, figureFloods},
	Pings:             {http2.ErrCodeEnhanceYourCalm, figureFloods},
	Settings:          {http2.ErrCodeEnhanceYourCalm, figureFloods},
	EmptyData:         {http2.ErrCodeEnhanceYourCalm, figureFloods},
	Priorities:        {http2.ErrCodeEnhanceYourCalm, figureFloods},
	PriorityUpdates:   {http2.ErrCodeEnhanceYourCalm, figureFloods},
	Windows:           {http2.ErrCodeEnhanceYourCalm, figureFloods},
	Names:             {http2.ErrCodeEnhanceYourCalm, figureFloods},
	Thrash:            {http2.ErrCodeNo, figureStreams},
	Bomb:              {http2.ErrCodeNo, figureTooLarge},
}

// dear is how many times the time of an ordinary byte an attacker's byte may take. The most that it
// takes is 0.4 of it; the rest is for a machine that does other work.
const dear = 2

// cheap runs a measurement again if it was dear: other work may have been in between.
func cheap(t *testing.T, v victim, measure func() cost) {
	t.Helper()
	for try := range 5 {
		ordinary := v.ordinary(t).perByte()
		c := measure()
		t.Logf("%d bytes, %d in answer, %.3f of an ordinary byte's time", c.sent, c.got, c.perByte()/ordinary)
		switch {
		case t.Failed() || c.perByte() < dear*ordinary:
			return
		case try == 4:
			t.Errorf("a byte takes %.2f of the time of an ordinary one", c.perByte()/ordinary)
		}
	}
}

// An attack over HTTP/2 is understood by the server, which ends it or serves it, and counts it. A
// byte of it takes no more time than a byte of ordinary requests, and is answered by less.
func TestAttacksCostLittle(t *testing.T) {
	v := newVictim(t)
	for _, p := range slices.Concat(floods, costly) {
		t.Run(string(p.kind), func(t *testing.T) {
			want := ends[p.kind]
			cheap(t, v, func() cost {
				pieces := []string{p.first}
				for i := range uint32(5) {
					pieces = append(pieces, p.next(i))
				}
				before := v.figures()
				c := v.dial(t).send(t, pieces...)
				if c.code != want.code {
					t.Errorf("it ends with %v, want %v", c.code, want.code)
				}
				if c.got > c.sent {
					t.Errorf("%d bytes are answered by %d", c.sent, c.got)
				}
				after := v.figures()
				if after[want.figure] <= before[want.figure] {
					t.Errorf("no %s are counted", want.figure)
				}
				if n := after[figureFloods] - before[figureFloods]; (n == 1) != (want.code != http2.ErrCodeNo) {
					t.Errorf("%d connections ended for floods", n)
				}
				return c
			})
		})
	}
}

// holds is what a connection may occupy, with its hundred streams: a handler each, and what a
// stream may have queued.
var holds = map[Kind]int{
	Unfinished: 100 * (16 << 10), ClosedWindows: 100 * (80 << 10), ByteWindows: 100 * (80 << 10), SlowHeads: 64 << 10,
}

// settles is how long a busy machine may take to run the handlers of an attack.
const settles = 20 * time.Second

// Attackers that stay occupy no more than the limits of their streams, and cost no time but for
// what they send. When they have gone, so has what they occupied.
func TestAttackersHoldLittle(t *testing.T) {
	const conns = 5
	v := newVictim(t)
	v.ordinary(t)
	for _, p := range held {
		t.Run(string(p.kind), func(t *testing.T) {
			before := occupied()
			var peers []*peer
			for range conns {
				c := v.dial(t)
				peers = append(peers, c)
				if p.kind == SlowHeads { // in which a PING is no frame that may come
					if _, err := io.WriteString(c, p.first); err != nil {
						t.Fatal(err)
					}
				} else if got := c.send(t, p.first); got.code != http2.ErrCodeNo {
					t.Fatalf("it is ended with %v", got.code)
				}
			}
			each := func() int { return (occupied() - before) / conns }
			n := each()
			// a PING may be answered while handlers are still filling the queues of their streams
			for began := time.Now(); n > holds[p.kind] && time.Since(began) < settles; n = each() {
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("a connection occupies %d bytes", n)
			if n > holds[p.kind] {
				t.Errorf("a connection occupies %d bytes, of at most %d", n, holds[p.kind])
			}
			if p.kind != SlowHeads { // whose frames are those of Continuations
				cheap(t, v, func() cost { return peers[0].send(t, strings.Repeat(p.next(0), 500)) })
			}
			for _, c := range peers {
				_ = c.Close()
			}
			for occupied()-before > 1<<20 { // goroutines of the pool wait for work
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// occupied is the heap after a collection. Pools need two.
func occupied() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Each attack has a kind, and its time in a scenario.
func TestEachAttackHasAKind(t *testing.T) {
	var all, listed []Kind
	for _, p := range slices.Concat(floods, costly, held) {
		all = append(all, p.kind)
		if len(mixes[p.kind]) != 1 {
			t.Errorf("%s: %d parts", p.kind, len(mixes[p.kind]))
		}
	}
	for _, a := range OverHTTP2 {
		listed = append(listed, a.Kind)
	}
	if !slices.Equal(all, listed) {
		t.Errorf("there are %q, listed are %q", all, listed)
	}
}
