package resp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"
	"weak"

	"github.com/myriad-go/myriad/resp/wire"
)

// This file is what TestClientLiveness does with a client: commands and subscriptions.

// A livenessCall is one command.
type livenessCall struct {
	l       *livenessWorld
	id      int
	kind    int       // of its reply
	size    int       // of its reply
	padding int       // of its last argument
	start   bool      // by Start
	well    bool      // it has begun when the world was cured
	end     time.Time // of its context; zero: none
	owned   weak.Pointer[token]

	came  int // so often to the server
	conn  *sickConn
	ended int
	err   error
}

// A token is what a command or a subscription of the user's refers to.
type token struct{ _ [64]byte }

// want is the reply to a command.
func (x *livenessCall) want() Value {
	text := []byte(strconv.Itoa(x.id) + ":" + strings.Repeat("r", x.size))
	bulk := Value{Kind: wire.Bulk, Str: text}
	id := Value{Kind: wire.Integer, Int: int64(x.id)}
	switch x.kind {
	case 0:
		return bulk
	case 1:
		return id
	case 2:
		return Value{Kind: wire.Simple, Str: []byte(strconv.Itoa(x.id))}
	case 3:
		return Value{Kind: wire.Array, Elems: []Value{id, bulk, {Kind: wire.Array, Elems: []Value{bulk, id}}}}
	case 4:
		return Value{Kind: wire.Map, Elems: []Value{{Kind: wire.Bulk, Str: []byte("k")}, bulk}}
	case 5:
		return Value{Kind: wire.Failure, Str: []byte("ERR " + strconv.Itoa(x.id))}
	case 6:
		return Value{Kind: wire.Array, Elems: []Value{}}
	case 7:
		return Value{Kind: wire.Failure, Str: []byte("READONLY " + strconv.Itoa(x.id))}
	}
	return Value{Kind: wire.Null}
}

func (l *livenessWorld) newCall() *livenessCall {
	r := l.r
	x := &livenessCall{l: l, id: len(l.calls), kind: r.IntN(9), padding: r.IntN(60), well: l.well}
	switch r.IntN(20) {
	case 0:
		x.size = r.IntN(min(l.largest, 40_000) / 3)
	case 1:
		x.padding = r.IntN(100_000)
	case 2:
		if l.huge > 0 {
			l.huge--
			x.padding = clientWriteLimit + 1<<20
		}
	default:
		x.size = r.IntN(40)
	}
	l.calls = append(l.calls, x)
	return x
}

func (x *livenessCall) args() []string {
	return []string{"CMD", strconv.Itoa(x.id), strings.Repeat("p", x.padding)}
}

func (x *livenessCall) done(v Value, err error) {
	l := x.l
	x.ended++
	x.err = err
	l.note("command %d has ended: %.60v", x.id, err)
	if x.ended != 1 {
		l.wrong("once", "command %d has ended %d times", x.id, x.ended)
	}
	l.checkDeadline(fmt.Sprint("command ", x.id), x.end, err)
	_, answered := errors.AsType[Error](err)
	switch {
	case x.conn != nil && x.conn.liar || x.conn == nil && l.server.lies():
	case x.came > 0 && (err == nil || answered):
		x.checkReply(v, err)
	case answered && strings.HasPrefix(err.Error(), "ERR Protocol error") && x.padding > 1000: // refusesEarly
	case answered && !strings.HasPrefix(err.Error(), "resp: the server refuses"), err == nil:
		l.wrong("reply", "command %d, which has not come to the server, is answered: %v", x.id, err)
	case errors.Is(err, ErrPending):
		if n, most := l.underWay(), cmp.Or(l.client.MaxPending, DefaultMaxPending); n < most {
			l.wrong("pending", "command %d ends with ErrPending, and %d are under way, of %d", x.id, n, most)
		}
	}
	if x.well && err != nil && !answered && l.closed.IsZero() {
		l.wrong("well", "command %d ends with %v in a cured world", x.id, err)
	}
}

// checkReply compares a reply with what the server has sent.
func (x *livenessCall) checkReply(v Value, err error) {
	l := x.l
	if err != nil {
		v = Value{Kind: wire.Failure, Str: []byte(err.Error())}
	}
	if got, want := wire.AppendValue(nil, v, RESP2), wire.AppendValue(nil, x.want(), RESP2); !bytes.Equal(got, want) {
		l.wrong("reply", "command %d (kind %d) is answered %.80q, not %.80q", x.id, x.kind, got, want)
	}
	if l.client.Conns == 1 && x.start {
		if x.conn.number == l.orderOf && x.id < l.order {
			l.wrong("order", "command %d has ended behind %d", x.id, l.order)
		}
		l.order, l.orderOf = x.id, x.conn.number
	}
}

// checkDeadline is for what ends now, and had to at the end of its context.
func (l *livenessWorld) checkDeadline(what string, end time.Time, err error) {
	if late := l.w.Now().Sub(end); !end.IsZero() && late > l.tolerance() {
		l.wrong("deadline", "%s has ended %v too late: %v", what, late, err)
	}
}

// tolerance is a millisecond. Where bytes are long under way, the world lets deliveries of the next
// 5 ms come before goroutines that can run, so that none of these is exact.
func (l *livenessWorld) tolerance() time.Duration {
	switch {
	case l.calm:
		return time.Millisecond + l.burst
	case l.fast:
		return 3*time.Millisecond + l.burst
	}
	return 40 * time.Millisecond
}

// underWay is how many commands have not ended, or have ended by their context.
func (l *livenessWorld) underWay() (n int) {
	for _, x := range l.calls {
		if x.ended == 0 || errors.Is(x.err, context.Canceled) || errors.Is(x.err, context.DeadlineExceeded) {
			n++
		}
	}
	return n
}

// context draws one; end is when it ends, the zero time if it does not.
func (l *livenessWorld) context() (ctx context.Context, s *simContext, end time.Time) {
	r := l.r
	kind := r.IntN(6)
	if l.well {
		kind = 0
	}
	switch kind {
	case 0, 1:
		return context.Background(), nil, end
	case 2:
		s = newSimContext(l.w, context.Canceled)
		s.finish()
		return s, s, l.w.Now()
	}
	d := time.Duration(1 + r.Int64N(int64(10*time.Second))>>r.IntN(12))
	end = l.w.Now().Add(d)
	s = newSimContext(l.w, draw(r, context.Canceled, context.DeadlineExceeded))
	s.endIn(d)
	return s, s, end
}

// goCaller begins a goroutine that sends commands.
func (l *livenessWorld) goCaller() {
	r := l.r
	rest := time.Duration(r.Int64N(int64(time.Second)) >> r.IntN(14))
	n := 5 + r.IntN(30)
	p := l.w.NewParker()
	l.w.Go(func() {
		for range n {
			if rest > 0 {
				p.ParkFor(1 + time.Duration(r.Int64N(int64(rest))))
			}
			l.command(r.IntN(3) == 0)
		}
	})
}

// command makes one command, in one of the ways.
func (l *livenessWorld) command(start bool) {
	x := l.newCall()
	x.start = start
	l.note("command %d, %d bytes, Start %v", x.id, x.padding, start)
	if start {
		x.begin()
	} else {
		x.do()
	}
}

func (x *livenessCall) begin() {
	l, r, owned, returned := x.l, x.l.r, new(token), false
	x.owned = weak.Make(owned)
	chain, fails, asBytes := r.IntN(4) == 0, r.IntN(10) == 0, r.IntN(2) == 0
	done := func(v Value, err error) {
		runtime.KeepAlive(owned)
		x.done(v, err)
		if chain && l.closed.IsZero() {
			l.command(true)
		}
		if fails && returned {
			panic("as the test wants") // before Start has returned, it would be the caller's
		}
	}
	if asBytes {
		args := toBytes(x.args())
		l.client.StartBytes(done, args...)
		scramble(args)
	} else {
		l.client.Start(done, x.args()...)
	}
	returned = true
}

func (x *livenessCall) do() {
	l, owned := x.l, new(token)
	x.owned = weak.Make(owned)
	ctx, sc, end := l.context()
	x.end = end
	if sc != nil {
		sc.owned = owned
		defer sc.release()
	}
	if l.r.IntN(2) == 0 {
		args := toBytes(x.args())
		v, err := l.client.DoBytes(ctx, args...)
		scramble(args)
		x.done(v, err)
		return
	}
	x.done(l.client.Do(ctx, x.args()...))
}

func toBytes(args []string) [][]byte {
	all := make([][]byte, len(args))
	for i := range args {
		all[i] = []byte(args[i])
	}
	return all
}

// scramble changes arguments that the client may not use any more.
func scramble(args [][]byte) {
	for _, a := range args {
		for i := range a {
			a[i] = '!'
		}
	}
}

// A livenessSub is one subscription.
type livenessSub struct {
	l      *livenessWorld
	number int
	kind   int
	names  []string
	owned  weak.Pointer[token]

	sub       *Subscription
	confirmed time.Time // zero: not yet
	closed    bool
	// Of each channel:
	from   map[string]int // what had been published when it was confirmed
	last   map[string]int // the last message
	toldAt map[string]int // how often it had been told of losses before that
}

var channelNames = []string{"a", "b", "ab"}

// goSubscriber begins a goroutine that subscribes, and ends most of its subscriptions.
func (l *livenessWorld) goSubscriber() {
	r := l.r
	n := 1 + r.IntN(12)
	rest := time.Duration(1 + r.Int64N(int64(4*time.Second))>>r.IntN(14))
	p := l.w.NewParker()
	l.w.Go(func() {
		for range n {
			p.ParkFor(1 + time.Duration(r.Int64N(int64(rest))))
			if !l.closed.IsZero() {
				return
			}
			s := l.subscribe()
			if s == nil || r.IntN(5) == 0 {
				continue // one stays
			}
			stay := time.Duration(r.Int64N(int64(4*time.Second)) >> r.IntN(14))
			if r.IntN(2) == 0 {
				l.w.AfterFunc(stay, s.close)
				continue
			}
			p.ParkFor(1 + stay)
			s.close()
		}
	})
}

// subscribe makes a subscription, and returns nil if that fails.
func (l *livenessWorld) subscribe() *livenessSub {
	r := l.r
	s := &livenessSub{l: l, number: len(l.subs), kind: r.IntN(2), names: []string{"a", "b", "ab"},
		from: map[string]int{}, last: map[string]int{}, toldAt: map[string]int{}}
	l.subs = append(l.subs, s)
	subscribe := l.client.Subscribe
	if s.kind == byPattern {
		subscribe, s.names = l.client.PSubscribe, []string{"a*", "*b", "?"}
	}
	r.Shuffle(3, func(i, j int) { s.names[i], s.names[j] = s.names[j], s.names[i] })
	s.names = s.names[:draw(r, 1, 1, 1, 2, 3)]
	if r.IntN(5) == 0 {
		s.names = append(s.names, s.names[0])
	}
	ctx, sc, end := l.context()
	l.note("subscription %d: %d %q", s.number, s.kind, s.names)
	owned := new(token)
	s.owned = weak.Make(owned)
	sub, err := subscribe(ctx, func(channel string, message []byte) {
		runtime.KeepAlive(owned)
		s.receive(channel, message)
	}, s.names...)
	l.note("subscription %d: confirmed, or %v", s.number, err)
	l.checkDeadline(fmt.Sprint("subscription ", s.number), end, err)
	if sc != nil {
		sc.release()
	}
	if err != nil {
		s.closed = true
		if l.well && l.closed.IsZero() {
			l.wrong("well", "subscription %d ends with %v in a cured world", s.number, err)
		}
		return nil
	}
	s.sub, s.confirmed = sub, l.w.Now()
	for _, channel := range channelNames {
		s.from[channel] = l.server.published[channel]
	}
	return s
}

// gets reports how often the subscription gets a message of a channel.
func (s *livenessSub) gets(channel string) (n int) {
	seen := map[string]bool{}
	for _, name := range s.names {
		if !seen[name] && (name == channel || s.kind == byPattern && wire.Match(name, channel)) {
			n++
		}
		seen[name] = true
	}
	return n
}

func (s *livenessSub) receive(channel string, message []byte) {
	l := s.l
	text := string(message)
	n, err := strconv.Atoi(text)
	if err != nil || s.gets(channel) == 0 {
		if !l.server.lies() {
			l.wrong("message", "subscription %d gets %q of %q", s.number, text, channel)
		}
		return
	}
	l.note("subscription %d gets %s of %s", s.number, text, channel)
	if s.closed {
		l.wrong("closed", "subscription %d gets a message after Close", s.number)
		return
	}
	if s.confirmed.IsZero() {
		return
	}
	switch l.r.IntN(100) {
	case 0:
		defer s.close()
	case 1:
		defer l.command(true)
	}
	s.check(channel, n)
}

// check is for message n of a channel: it comes behind the last one, or the subscription was told.
func (s *livenessSub) check(channel string, n int) {
	l := s.l
	last, known := s.last[channel]
	if !known {
		last = s.from[channel]
		if n <= last {
			return // published before it was confirmed
		}
	}
	lost := l.lost[s.sub]
	switch {
	case known && n == last && s.gets(channel) > 1: // by another pattern
	case n <= last:
		l.wrong("message", "subscription %d gets %d of %q behind %d", s.number, n, channel, last)
	case n > last+1 && lost == s.toldAt[channel]:
		l.wrong("lost", "subscription %d gets %d of %q behind %d, and is not told", s.number, n, channel, last)
	}
	s.last[channel], s.toldAt[channel] = n, lost
}

func (s *livenessSub) close() {
	if s.closed {
		return
	}
	s.l.note("subscription %d: Close", s.number)
	s.sub.Close()
	delete(s.l.lost, s.sub)
	s.closed, s.sub = true, nil
}
