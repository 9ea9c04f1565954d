package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp/wire"
)

// A server whose options are drawn at random, with peers that send commands, subscribe, change
// their protocol, turn off replies, read slowly, or not at all, and end in several ways. At the
// same time others push messages to them and publish. In all of it:
//
//   - each command is answered once, in order, as its connection's state wants it;
//   - messages come whole and in the order of their sender, and none to a subscription that ended;
//   - of the messages that Push has taken, a peer gets all but those that Dropped counts;
//   - no more output waits than WriteLimit allows;
//   - Push, Publish, Shutdown and Close return in bounded time;
//   - nothing of a connection is left behind its end.
func TestPushWorlds(t *testing.T) {
	usual := uint64(200)
	if raceEnabled {
		usual = 40 // they take ten times as long
	}
	for seed := range soak.Size(t, usual, 4_000) {
		if l := runPushWorlds(seed); len(l.problems) > 0 {
			t.Errorf("seed %d, %s:\n%s", seed, l.drawn, strings.Join(l.problems, "\n"))
		}
	}
}

// A pushWorld is one run. All of it runs one goroutine at a time: the world sees to that.
type pushWorld struct {
	w        *sim.World
	r        *rand.Rand
	s        *Server
	channels PubSub
	client   *myriad.Engine
	tls      *tls.Config // of peers; nil: none
	addr     string

	// What was drawn:
	drawn    string
	lossless bool
	over     Overflow
	largest  int // the longest message
	changes  bool
	cured    time.Time // peers read, and nothing begins, from here on

	peers    []*pushPeer
	open     map[*Conn][][][]byte // transactions
	opened   int
	closed   int
	pushed   int // messages of all kinds
	ending   bool
	ended    bool // Shutdown or Close has returned
	problems []string
}

func (l *pushWorld) wrong(format string, args ...any) {
	if len(l.problems) < 10 {
		l.problems = append(l.problems, fmt.Sprintf("at %v: ", l.w.Now().Sub(sim.Epoch))+fmt.Sprintf(format, args...))
	}
}

// Errorf and Helper are for World.Check.
func (l *pushWorld) Errorf(format string, args ...any) { l.wrong(format, args...) }
func (*pushWorld) Helper()                             {}

// longestPause is how long the world may hold up what is to happen at once.
const longestPause = time.Second

func runPushWorlds(seed uint64) *pushWorld {
	goroutines := runtime.NumGoroutine()
	r := rand.New(rand.NewPCG(seed, 0x70757368))
	faults := sim.Lossless()
	if r.IntN(4) == 0 {
		faults = sim.Options{}
	}
	l := &pushWorld{w: sim.New(seed, faults), r: r, lossless: faults.Reset < 0, open: map[*Conn][][][]byte{}}
	server := l.engine()
	l.client = l.engine()
	l.drawServer(server)
	l.drawPeers()
	l.cured = l.w.Now().Add(time.Duration(1+r.IntN(20)) * time.Second)
	l.begin()
	l.w.RunFor(l.cured.Sub(l.w.Now()) + time.Millisecond)
	for _, p := range l.peers {
		p.read(true)
	}
	l.w.RunFor(2 * time.Minute)
	for _, p := range l.peers {
		p.check()
	}
	if !l.ending {
		l.end(true)
	}
	for _, p := range l.peers {
		p.do(func(nc *myriad.Conn) { nc.Abort(nil) })
	}
	l.w.RunFor(time.Minute)
	l.checkEnd()
	for _, e := range []*myriad.Engine{server, l.client} {
		l.w.Go(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				l.wrong("shutdown of an engine: %v", err)
			}
		})
	}
	l.w.Run()
	l.w.Check(l)
	for deadline := time.Now().Add(soak.Patience(10 * time.Second)); runtime.NumGoroutine() > goroutines; {
		if time.Now().After(deadline) {
			l.wrong("%d goroutines are left", runtime.NumGoroutine()-goroutines)
			break
		}
		runtime.Gosched()
	}
	return l
}

func (l *pushWorld) engine() *myriad.Engine {
	e, err := myriad.Start(myriad.Config{Loops: 1 + l.r.IntN(2), System: l.w, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	return e
}

func (l *pushWorld) drawServer(e *myriad.Engine) {
	r := l.r
	mux := simStore(func() *myriad.Engine { return e })
	mux.Handle("JOIN", 2, func(w *Reply, c *Command) {
		n, _ := wire.ParseInt(c.Args[1])
		l.peers[n].conn = c.Conn
		w.OK()
	}, "Say which peer this is.")
	l.channels.Register(mux)
	l.over = Overflow(r.IntN(int(outbox.Policies)))
	l.s = &Server{Engine: e, Handler: mux, Logger: quiet(), Overflow: l.over, Dispatch: draw(r, dispatches...),
		WriteLimit: draw(r, 0, 512, 2<<10, 8<<10, 64<<10), PushTimeout: draw(r, 0, -1, 50*time.Millisecond,
			time.Second),
		OnOpen: func(*Conn) { l.opened++ }, OnClose: func(*Conn, error) { l.closed++ }}
	if r.IntN(2) == 0 {
		l.s.Handler = l.transact(mux)
	}
	l.changes = r.IntN(4) == 0
	l.largest = draw(r, 100, 1000, 20_000)
	var err error
	var ln *Listener
	if r.IntN(3) == 0 {
		pair, pool := simPair()
		l.s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
		l.tls = &tls.Config{ServerName: "redis.test", RootCAs: pool}
		ln, err = l.s.ListenTLS("tcp", "127.0.0.1:0")
	} else {
		ln, err = l.s.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		panic(err)
	}
	l.addr = ln.Addr().String()
	l.drawn = fmt.Sprintf("%v, %v, limit %d, timeout %v, TLS %v, transactions %v, changes %v, lossless %v", l.over,
		l.s.Dispatch, l.s.WriteLimit, l.s.PushTimeout, l.tls != nil, l.s.Handler != mux, l.changes, l.lossless)
}

// transact is a handler with MULTI and EXEC.
func (l *pushWorld) transact(mux *Mux) Handler {
	return HandlerFunc(func(w *Reply, c *Command) {
		kept, open := l.open[c.Conn]
		switch {
		case c.Is(0, "MULTI"):
			l.open[c.Conn] = nil
			c.Conn.SetTransaction(true)
			conn := c.Conn
			conn.OnEnd(func() { delete(l.open, conn) })
			w.OK()
		case c.Is(0, "EXEC") && open:
			delete(l.open, c.Conn)
			c.Conn.SetTransaction(false)
			w.Array(len(kept))
			for _, args := range kept {
				k := &Command{args, c.Conn}
				if own, _ := w.CheckOwn(k); own {
					w.ServeOwn(k)
				} else {
					mux.ServeRESP(w, k)
				}
			}
		case open:
			if own, good := w.CheckOwn(c); own && !good {
				return
			}
			var args [][]byte
			for _, a := range c.Args {
				args = append(args, []byte(string(a)))
			}
			l.open[c.Conn] = append(kept, args)
			w.Simple("QUEUED")
		default:
			mux.ServeRESP(w, c)
		}
	})
}

// begin starts all that happens until the world is cured.
func (l *pushWorld) begin() {
	r := l.r
	for range 1 + r.IntN(3) {
		l.loop(l.push)
		l.loop(l.publish)
	}
	for _, p := range l.peers {
		p.begin()
	}
	if l.changes {
		l.loop(func(int) {
			if c := l.peers[r.IntN(len(l.peers))].conn; c != nil {
				l.change(c)
			}
		})
	}
	if r.IntN(4) == 0 {
		l.w.AfterFunc(time.Duration(r.Int64N(int64(l.cured.Sub(l.w.Now())))), func() { l.end(r.IntN(2) == 0) })
	}
}

// loop has f called at random times, with a number of its own.
func (l *pushWorld) loop(f func(n int)) {
	rest := int64(time.Second) >> l.r.IntN(12)
	n := l.pushed
	l.pushed++
	l.w.Go(func() {
		p := l.w.NewParker()
		for i := 0; i < 200 && l.w.Now().Before(l.cured); i++ {
			f(n)
			p.ParkFor(time.Duration(1 + l.r.Int64N(rest)))
		}
	})
}

func (l *pushWorld) change(c *Conn) {
	policy, limit := Overflow(l.r.IntN(int(outbox.Policies))), draw(l.r, 0, 1000, 10_000)
	for _, p := range l.peers {
		if p.conn == c {
			p.closes = p.closes || policy == OverflowClose
			p.limit = max(p.limit, cmp.Or(limit, defaultWriteLimit))
		}
	}
	if err := c.SetOverflow(policy, limit); err != nil {
		l.wrong("SetOverflow: %v", err)
	}
}

// text is the next message of a sender to a receiver.
func (l *pushWorld) text(sender, number int) string {
	return fmt.Sprintf("%d.%d.%s", sender, number, strings.Repeat("m", l.r.IntN(l.largest)))
}

// push pushes a message to one connection.
func (l *pushWorld) push(sender int) {
	r := l.r
	p := l.peers[r.IntN(len(l.peers))]
	c := p.conn
	if c == nil {
		return
	}
	p.sent[sender]++
	b := wire.AppendBulk(wire.AppendPush(nil, 2, c.Protocol()), "news")
	b = wire.AppendBulk(b, l.text(sender, p.sent[sender]))
	begun := l.w.Now()
	var err error
	kind := r.IntN(3)
	switch kind {
	case 0:
		err = c.Push(b)
	case 1:
		err = c.PushBlock(blockOf(b))
	default:
		err = c.TryPush(blockOf(b))
	}
	l.checkTime("Push", begun)
	switch {
	case err == nil:
		p.taken++
	case errors.Is(err, net.ErrClosed):
		if !p.mayEnd() {
			l.wrong("peer %d: Push says %v", p.number, err)
		}
	case !errors.Is(err, myriad.ErrFull):
		l.wrong("peer %d: Push fails with %v", p.number, err)
	case errors.Is(err, os.ErrDeadlineExceeded) && (kind == 2 || !l.changes && l.over != OverflowBlock):
		l.wrong("peer %d: Push without a wait fails with %v", p.number, err)
	case kind < 2 && !l.changes && l.over != OverflowBlock && l.over != OverflowFail:
		l.wrong("peer %d: Push fails with %v", p.number, err)
	}
	p.checkLimit()
}

// publish publishes a message.
func (l *pushWorld) publish(sender int) {
	l.pushed++
	begun := l.w.Now()
	l.channels.Publish(draw(l.r, channelNames...), []byte(l.text(sender, l.pushed)))
	l.checkTime("Publish", begun)
}

// checkTime is for a call that may wait for PushTimeout, and only with OverflowBlock.
func (l *pushWorld) checkTime(what string, begun time.Time) {
	most := longestPause
	if l.over == OverflowBlock || l.changes {
		switch d := l.s.PushTimeout; {
		case d < 0:
			most += time.Minute // the cured world lets it end
		case d == 0:
			most += DefaultPushTimeout
		default:
			most += d
		}
	}
	if took := l.w.Now().Sub(begun); took > most {
		l.wrong("%s took %v", what, took)
	}
}

// end ends the server.
func (l *pushWorld) end(orderly bool) {
	l.ending = true
	l.w.Go(func() {
		begun := l.w.Now()
		var err error
		if orderly {
			err = l.s.Shutdown(context.Background())
		} else {
			err = l.s.Close()
		}
		if err != nil {
			l.wrong("the end of the server: %v", err)
		}
		if took := l.w.Now().Sub(begun); took > longestPause && !orderly {
			l.wrong("Close took %v", took)
		}
		if n := l.s.Conns(); n != 0 && orderly {
			l.wrong("%d connections behind Shutdown", n)
		}
		l.ended = true
	})
}

// checkEnd looks whether anything is left when all connections have ended.
func (l *pushWorld) checkEnd() {
	if !l.ended || l.opened != l.closed || l.s.Conns() != 0 || len(l.open) > 0 {
		l.wrong("the end: returned %v; %d opened, %d closed, %d there; %d transactions", l.ended, l.opened, l.closed,
			l.s.Conns(), len(l.open))
	}
	p := &l.channels
	if len(p.conns) > 0 || len(p.names[byChannel])+len(p.names[byPattern]) > 0 || p.bytes != [2]int{} {
		l.wrong("subscriptions are left: %d connections, %d bytes", len(p.conns), p.bytes)
	}
	for _, p := range l.peers {
		if p.conn == nil {
			continue
		}
		if all := p.conn.get(); all.outbox.Len() > 0 || all.outbox.Waiters() > 0 || p.conn.hasWork() {
			l.wrong("peer %d: %d messages, %d waiters, work %v are left", p.number, all.outbox.Len(),
				all.outbox.Waiters(), p.conn.hasWork())
		}
	}
}
