package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// A home is a hub with its bus, in one process after the other.
type home struct {
	*Hub
	bus *membus.Bus
}

// movingRules are those of the worlds here.
var movingRules = []policy.Namespace{
	{Name: "kept", HistorySize: 20, HistoryAge: time.Minute, Recovery: true},
	{Name: "seen", Presence: true, JoinLeave: true, PushJoinLeave: true},
	{Name: "drop", Slow: policy.SlowDropOldest, SlowQueue: 4096},
}

// newHome returns a hub that is open. change, if any, adjusts its settings.
func newHome(t testing.TB, clock *pushtest.Clock, random, epochs io.Reader, change ...func(*Config)) *home {
	t.Helper()
	rules, err := policy.NewNamespaces(movingRules, true)
	if err != nil {
		t.Fatal(err)
	}
	table := &policy.Table{LongestName: 255}
	table.Set(rules)
	b := membus.New(membus.Config{Clock: clock, Random: epochs})
	c := Config{Bus: b, OwnsBus: true, Rules: table, Forms: FormsOf(testDoors()), Clock: clock, Random: random,
		Logger: slog.New(slog.DiscardHandler), Version: "test",
		Rates: policy.Rates{UserCommands: policy.Rate{Count: 3, Per: time.Minute}}}
	for _, f := range change {
		f(&c)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	h.StartClock(nil)
	return &home{h, b}
}

// freeze freezes the hub and its bus.
func (h *home) freeze(t testing.TB) {
	t.Helper()
	if err := errors.Join(h.Freeze(context.Background()), h.bus.Freeze(context.Background())); err != nil {
		t.Fatal(err)
	}
}

func (h *home) thaw() {
	h.bus.Thaw()
	h.Thaw()
}

// end ends a hub whose clients have gone.
func (h *home) end(t testing.TB) {
	t.Helper()
	if n := h.open.Load(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	if n := h.channels.held(); n != 0 {
		t.Errorf("%d channels are left", n)
	}
	if err := h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// sharedState moves what sessions share.
func (h *home) sharedState(t testing.TB, to *home) {
	t.Helper()
	var stream bytes.Buffer
	parts := append(membus.StateParts(), StateParts()...)
	w := snapshot.NewWriter(&stream, parts)
	if err := errors.Join(h.bus.WriteState(w), h.WriteState(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	histories, wrong := to.bus.Restore()
	rest, err := to.Restore()
	if err = errors.Join(wrong, err); err != nil {
		t.Fatal(err)
	}
	r, err := snapshot.NewReader(&stream, parts)
	for err == nil {
		var part string
		var body []byte
		if part, body, err = r.Next(); err != nil {
			break
		}
		if slices.Contains(membus.StateParts(), part) {
			err = histories.Record(part, body)
		} else {
			err = rest.Record(part, body)
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
}

// A laterReader reads from nothing until it is set: a new hub takes its random id from that, so
// that the randomness of the world is used by clients alone.
type laterReader struct{ from io.Reader }

func (r *laterReader) Read(p []byte) (int, error) {
	if r.from == nil {
		return len(p), nil
	}
	return r.from.Read(p)
}

// A moveWorld is a hub, its clients, and the time. Two of them do the same: one moves now and then.
type moveWorld struct {
	t       *testing.T
	clock   *pushtest.Clock
	random  io.Reader
	epochs  io.Reader
	home    *home
	clients []*mover
	counts  Counts
}

// A mover is a client. Its transport is another one in each process.
type mover struct {
	*fakeTransport
	form  Form
	heard []string
	left  bool
}

func newMoveWorld(t *testing.T, seed uint64) *moveWorld {
	w := &moveWorld{t: t, clock: pushtest.NewClock(), random: rand.NewChaCha8([32]byte{byte(seed)}),
		epochs: rand.NewChaCha8([32]byte{byte(seed), 1})}
	w.home = w.settle()
	w.home.secret.get(w.home.random)
	return w
}

func (w *moveWorld) settle() *home {
	later := new(laterReader)
	h := newHome(w.t, w.clock, later, w.epochs)
	later.from = w.random
	return h
}

// move moves everything to another process, or with back finds that this fails, and goes on.
func (w *moveWorld) move(back bool) {
	w.home.freeze(w.t)
	to := w.settle()
	to.freeze(w.t)
	w.home.sharedState(w.t, to)
	next := make([]*fakeTransport, len(w.clients))
	for i, c := range w.clients {
		if c.left {
			continue
		}
		state, ok := c.s.AppendState(nil)
		if !ok {
			w.t.Fatalf("client %d cannot move", i)
		}
		f := new(fakeTransport)
		s, err := to.ThawSession(f, c.form, state)
		if err != nil {
			w.t.Fatalf("client %d: %v", i, err)
		}
		f.s, next[i] = s, f
		if again, ok := s.AppendState(nil); !ok || !bytes.Equal(again, state) {
			w.t.Fatalf("client %d: its state is\n%q\nand was\n%q", i, again, state)
		}
	}
	from := w.home
	if back {
		from, to = to, from
	}
	for i, c := range w.clients {
		if c.left {
			continue
		}
		c.hear()
		if next[i].Want(w.t, "a client that has moved"); back {
			next[i].s.Moved()
			continue
		}
		c.s.Moved()
		c.fakeTransport = next[i]
	}
	from.Leave()
	to.thaw()
	from.end(w.t)
	w.home = to
}

// hear notes what the client has received, and answers pings.
func (c *mover) hear() (fresh []string) {
	for more := c.Take(); len(more) > 0; more = c.Take() {
		fresh = append(fresh, more...)
		for _, message := range more {
			if message == "{}" && !c.left {
				c.frame([]byte("{}"))
			}
		}
	}
	for i, message := range fresh {
		var reply any
		if strings.Contains(message, `"presence"`) && json.Unmarshal([]byte(message), &reply) == nil {
			sorted, _ := json.Marshal(reply) // clients present have no order
			fresh[i] = string(sorted)
		}
	}
	c.heard = append(c.heard, fresh...)
	return fresh
}

// check looks whether counters fall, or a session has ended.
func (w *moveWorld) check() {
	w.t.Helper()
	for i, c := range w.clients {
		c.hear()
		if c.WantOpen(w.t, fmt.Sprintf("client %d", i)); w.t.Failed() {
			w.t.FailNow()
		}
	}
	now := w.home.Counts()
	if now.Publishes < w.counts.Publishes || now.Messages < w.counts.Messages {
		w.t.Fatalf("counters fell from %+v to %+v", w.counts, now)
	}
	w.counts = now
}

// step makes one random step, which rng decides about.
func (w *moveWorld) step(rng *rand.Rand, i int) {
	channel := []string{"kept:a", "kept:b", "seen:a", "drop:a", "plain"}[rng.IntN(5)]
	if len(w.clients) == 0 || rng.IntN(12) == 0 {
		w.connect(rng)
		return
	}
	c := w.clients[rng.IntN(len(w.clients))]
	if c.left {
		return
	}
	command := func(text string, args ...any) {
		if c.form == jsonForm {
			c.frame(fmt.Appendf(nil, `{"id":`+fmt.Sprint(i)+`,`+text+`}`, args...))
		}
	}
	switch rng.IntN(14) {
	case 0:
		for range rng.IntN(40) {
			w.clock.Advance(time.Second)
			w.check() // clients answer pings
		}
	case 1:
		command(`"subscribe":{"channel":%q,"delta":"fossil"}`, channel)
	case 2:
		command(`"subscribe":{"channel":%q,"tf":{"key":"k","cmp":"eq","val":"1"}}`, channel)
	case 3:
		command(`"subscribe":{"channel":%q,"recover":true,"join_leave":true,"offset":%d}`, channel, rng.IntN(9))
	case 4:
		command(`"unsubscribe":{"channel":%q}`, channel)
	case 5:
		command(`"publish":{"channel":%q,"data":{"from":%d}}`, channel, i)
	case 6:
		command(`"presence":{"channel":%q}`, channel)
	case 7:
		command(`"history":{"channel":%q,"limit":5}`, channel)
	case 8:
		if rng.IntN(4) == 0 {
			c.left = true
			c.hangUp()
		}
	case 9:
		if c.form == jsonForm {
			c.s.EndSubscription(channel)
		}
	default:
		p := bus.Publication{Data: fmt.Appendf(nil, `{"text":"something that is long enough for a delta","n":%d}`, i),
			Tags: map[string]string{"k": fmt.Sprint(rng.IntN(2))}}
		if _, err := w.home.Publish(context.Background(), channel, p, false, false); err != nil {
			w.t.Fatal(err)
		}
	}
}

// connect adds a client.
func (w *moveWorld) connect(rng *rand.Rand) {
	c := &mover{fakeTransport: new(fakeTransport), form: jsonForm}
	w.clients = append(w.clients, c)
	if rng.IntN(3) > 0 {
		c.s = w.home.Start(c, jsonForm, nil)
		c.frame([]byte(`{"id":1,"connect":{}}`))
		return
	}
	c.form = eventForm
	g := Grant{User: fmt.Sprint("user", rng.IntN(3)), info: []byte(`{"a":1}`), Channels: []string{"kept:a"}}
	c.s = w.home.StartConnected(c, eventForm, g, nil)
	for _, name := range []string{"kept:a", "plain"} {
		if err := c.s.Subscribe(name, SubscribeCommand{}, func(Welcome) {}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *moveWorld) end() {
	for _, c := range w.clients {
		if !c.left {
			c.hangUp()
		}
	}
	w.home.end(w.t)
}

// Clients of a hub that moves receive what those of one that stays do: no session ends, nothing is
// missing, twice or in another order, and pings come at the same times.
func TestHubMovesUnnoticed(t *testing.T) {
	for seed := range soak.Size(t, uint64(6), uint64(500)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			buf.CheckLeaks(t)
			still, goes := newMoveWorld(t, seed), newMoveWorld(t, seed)
			rngs := [2]*rand.Rand{rand.New(rand.NewPCG(seed, 2)), rand.New(rand.NewPCG(seed, 2))}
			moves := rand.New(rand.NewPCG(seed, 3))
			for i := range 300 {
				if moves.IntN(15) == 0 {
					goes.move(moves.IntN(4) == 0)
				}
				still.step(rngs[0], i)
				goes.step(rngs[1], i)
				still.check()
				goes.check()
				for j := range still.clients {
					a, b := still.clients[j], goes.clients[j]
					if !slices.Equal(a.heard, b.heard) {
						t.Fatalf("step %d: client %d of the hub that stays has received\n%s\nof the one that moves\n%s",
							i, j, strings.Join(a.heard, "\n"), strings.Join(b.heard, "\n"))
					}
				}
				if a, b := still.home.Counts(), goes.home.Counts(); a != b {
					t.Fatalf("step %d: the counts are %+v, want %+v", i, b, a)
				}
			}
			still.end()
			goes.end()
		})
	}
}

// Publications of programs meet moves: each reaches every subscriber once, in its publisher's
// order.
func TestPublicationsMeetMoves(t *testing.T) {
	const publishers, each, moves, subscribers = 3, 300, 10, 8
	buf.CheckLeaks(t)
	clock := pushtest.NewClock()
	first := newHome(t, clock, pushtest.Random(), pushtest.Seeded())
	clients := make([]*mover, subscribers)
	for i := range clients {
		c := &mover{fakeTransport: new(fakeTransport), form: eventForm}
		c.s = first.StartConnected(c, eventForm, Grant{}, nil)
		if err := c.s.Subscribe("kept:a", SubscribeCommand{}, func(Welcome) {}); err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	var current atomic.Pointer[home]
	current.Store(first)
	var wg sync.WaitGroup
	var published atomic.Int64
	for p := range publishers {
		wg.Go(func() {
			for i := 0; i < each; {
				data := fmt.Appendf(nil, "[%d,%d]", p, i)
				_, err := current.Load().Publish(t.Context(), "kept:a", bus.Publication{Data: data}, false, false)
				switch {
				case err == nil:
					i++
					published.Add(1)
				case !errors.Is(err, answer.ErrDraining):
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range moves {
		for published.Load() < int64(i*publishers*each/moves) {
			time.Sleep(10 * time.Microsecond) // the moves are spread over the publications
		}
		from := current.Load()
		from.freeze(t)
		to := newHome(t, clock, pushtest.Random(), pushtest.Seeded())
		to.freeze(t)
		from.sharedState(t, to)
		for _, c := range clients {
			state, ok := c.s.AppendState(nil)
			if !ok {
				t.Fatal("a client cannot move")
			}
			f := new(fakeTransport)
			s, err := to.ThawSession(f, c.form, state)
			if err != nil {
				t.Fatal(err)
			}
			f.s = s
			c.heard = append(c.heard, c.Take()...)
			c.s.Moved()
			c.fakeTransport = f
		}
		from.Leave()
		to.thaw()
		current.Store(to)
		from.end(t)
	}
	wg.Wait()
	for i, c := range clients {
		c.heard = append(c.heard, c.Take()...)
		var next [publishers]int
		for _, event := range c.heard {
			_, data, _ := strings.Cut(event, "data: ")
			for _, line := range strings.Split(data, "data: ") {
				var got [2]int
				line, _, _ = strings.Cut(line, "\n")
				if err := json.Unmarshal([]byte(line), &got); err != nil {
					t.Fatalf("%q: %v", event, err)
				}
				if next[got[0]] != got[1] {
					t.Fatalf("client %d received %v when %d was next", i, got, next[got[0]])
				}
				next[got[0]]++
			}
		}
		for p, n := range next {
			if n != each {
				t.Errorf("client %d received %d of publisher %d, want %d", i, n, p, each)
			}
		}
		c.hangUp()
	}
	current.Load().end(t)
}

// A client that has used up a rate has to wait in the next process, too; and one with rights by
// hooks and tokens has them.
func TestSessionsKeepWhatTheyMay(t *testing.T) {
	buf.CheckLeaks(t)
	clock := pushtest.NewClock()
	hooks := func(c *Config) {
		c.Hooks.Headers = []string{"X-Team"}
		c.RPC = func(_ context.Context, client Caller, _ string, _ []byte) ([]byte, error) {
			return fmt.Appendf(nil, "%s %s %v", client.User, client.Meta, client.Header), nil
		}
	}
	from := newHome(t, clock, pushtest.Random(), pushtest.Seeded(), hooks)
	caps, err := from.admission.regexes.Capabilities([]policy.Capability{{Channels: []string{"x*"}, Match: "wildcard",
		Allow: []string{"sub", "pub"}}})
	if err != nil {
		t.Fatal(err)
	}
	f := new(fakeTransport)
	no := false
	g := Grant{User: "ann", Ends: clock.Now().Add(time.Hour), info: []byte(`{"i":1}`), meta: []byte(`{"m":1}`),
		caps: caps}
	f.s = from.StartConnected(f, jsonForm, g, &RequestInfo{header: http.Header{"X-Team": {"a", "b"}}})
	var w SubscribeCommand
	w.GrantByServer([]byte(`{"c":1}`), nil, clock.Now().Add(time.Minute).Unix(), &Override{JoinLeave: &no,
		Presence: &no})
	if told, err := f.s.SubscribeByServer("plain", w); !told || err != nil {
		t.Fatal(told, err)
	}
	for range 3 {
		f.s.MayCommandNow("test")
	}
	f.Take()
	from.freeze(t)
	to := newHome(t, clock, pushtest.Random(), pushtest.Seeded(), hooks)
	to.freeze(t)
	from.sharedState(t, to)
	state, _ := f.s.AppendState(nil)
	moved := new(fakeTransport)
	if moved.s, err = to.ThawSession(moved, jsonForm, state); err != nil {
		t.Fatal(err)
	}
	f.s.Moved()
	from.Leave()
	to.thaw()
	from.end(t)
	s := moved.s
	if err := s.MayCommandNow("test"); err != answer.ErrTooManyRequests {
		t.Errorf("a rate that is used up: %v", err)
	}
	if got, err := s.RPC("", nil); string(got) != `ann {"m":1} map[X-Team:[a b]]` || err != nil {
		t.Errorf("hooks see %q, %v", got, err)
	}
	if !s.can(policy.RightPublish, "xyz") || s.can(policy.RightPublish, "yz") || s.SessionID() != f.s.SessionID() {
		t.Error("the client has other rights")
	}
	if m := s.member("plain"); m == nil || !m.absent() || m.announced() || string(m.info().ChanInfo) != `{"c":1}` ||
		string(m.info().ConnInfo) != `{"i":1}` {
		t.Errorf("the subscription is another")
	}
	for i := range 62 {
		if has := s.member("plain") != nil; has != (i < 60) && i != 60 {
			t.Errorf("after %d s: subscribed: %v", i, has)
		}
		clock.Advance(time.Second)
		if slices.Contains(moved.Take(), "{}") {
			moved.frame([]byte("{}"))
		}
	}
	moved.hangUp()
	to.end(t)
}

// What a client has not answered when it moves, it may answer in the next process, once more in
// time. One that does not is disconnected there.
func TestPongsAfterAMove(t *testing.T) {
	for _, answers := range []bool{true, false} {
		w := newMoveWorld(t, 1)
		c := &mover{fakeTransport: new(fakeTransport), form: jsonForm}
		c.s = w.home.Start(c, jsonForm, nil)
		c.frame([]byte(`{"id":1,"connect":{}}`))
		w.clients = append(w.clients, c)
		for !slices.Contains(c.Take(), "{}") {
			w.clock.Advance(time.Second)
		}
		w.clock.Advance(9 * time.Second) // of 10
		w.move(false)
		w.clock.Advance(5 * time.Second)
		c.WantOpen(t, "a client whose answer is due")
		if answers {
			c.frame([]byte(`{}`))
		}
		w.clock.Advance(9 * time.Second)
		if c.IsClosed() == answers {
			t.Errorf("answers: %v, closed: %v", answers, c.IsClosed())
		}
		w.end()
	}
}

// A slow client with publications that wait in the hub gets them before it moves, or does not move.
func TestSlowClientsDoNotMove(t *testing.T) {
	w := newMoveWorld(t, 1)
	c := &mover{fakeTransport: new(fakeTransport), form: eventForm}
	c.s = w.home.StartConnected(c, eventForm, Grant{}, nil)
	w.clients = append(w.clients, c)
	if err := c.s.Subscribe("drop:a", SubscribeCommand{}, func(Welcome) {}); err != nil {
		t.Fatal(err)
	}
	c.Stick()
	data, _ := json.Marshal(strings.Repeat("x", 60<<10))
	for i := range 4 {
		if i == 2 {
			data = []byte("2")
		}
		if _, err := w.home.Publish(t.Context(), "drop:a", bus.Publication{Data: data}, false, false); err != nil {
			t.Fatal(err)
		}
	}
	w.home.freeze(t)
	if _, ok := c.s.AppendState(nil); ok {
		t.Error("a client moves for which publications wait")
	}
	c.ReadOn()
	if _, ok := c.s.AppendState(nil); !ok || c.s.isLagging() {
		t.Error("a client that has caught up does not move")
	}
	if got := c.Take(); len(got) != 4 || got[3] != "data: 2\n\n" {
		t.Errorf("received %d messages", len(got))
	}
	w.home.thaw()
	w.end()
}

// Calls of programs and clients wait while the hub is frozen, and are refused when it has moved.
func TestCallsWaitForTheHub(t *testing.T) {
	w := newMoveWorld(t, 1)
	c := &mover{fakeTransport: new(fakeTransport), form: jsonForm}
	c.s = w.home.Start(c, jsonForm, nil)
	w.clients = append(w.clients, c)
	c.frame([]byte(`{"id":1,"connect":{}}`))
	for _, moves := range []bool{false, true} {
		w.home.freeze(t)
		done := make(chan error, 2)
		from := w.home
		go func() { done <- from.BeginChange(t.Context()) }()
		go func() {
			_, err := from.Publish(t.Context(), "plain", bus.Publication{Data: []byte("1")}, false, false)
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(time.Millisecond): // what does not wait returns at once, as a rule
		}
		if moves {
			from.Leave()
		} else {
			from.thaw()
		}
		for range 2 {
			if err := <-done; (err != nil) != moves || moves && err != answer.ErrDraining {
				t.Errorf("moves: %v, %v", moves, err)
			}
		}
		if !moves {
			from.EndChange()
		}
	}
	w.end()
}

func TestWrongStatesAreRefused(t *testing.T) {
	w := newMoveWorld(t, 1)
	c := &mover{fakeTransport: new(fakeTransport), form: jsonForm}
	c.s = w.home.Start(c, jsonForm, nil)
	w.clients = append(w.clients, c)
	c.frame([]byte("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"kept:a\",\"delta\":\"fossil\"}}"))
	if _, ok := c.s.AppendState(nil); ok {
		t.Error("a session of a hub that is not frozen moves")
	}
	if err := w.home.WriteState(snapshot.NewWriter(io.Discard, StateParts())); err != errNotFrozen {
		t.Error(err)
	}
	if _, err := w.home.Restore(); err != errNotFrozen {
		t.Error(err)
	}
	if _, err := w.home.ThawSession(c, jsonForm, nil); err != errNotFrozen {
		t.Error(err)
	}
	w.home.freeze(t)
	if _, err := w.home.Restore(); err != errInUse {
		t.Error(err)
	}
	state, ok := c.s.AppendState(nil)
	if !ok {
		t.Fatal("it does not move")
	}
	w.home.thaw()
	to := w.settle()
	to.freeze(t)
	for n := range state {
		if s, err := to.ThawSession(new(fakeTransport), jsonForm, state[:n]); s != nil || !snapshot.IsMalformed(err) {
			t.Fatalf("the first %d bytes of a state: %v", n, err)
		}
	}
	if _, err := to.ThawSession(new(fakeTransport), jsonForm, append(state, 0)); !snapshot.IsMalformed(err) {
		t.Errorf("a state that goes on: %v", err)
	}
	other := bytes.Replace(state, []byte("kept:a"), []byte("kept:\x00"), 1)
	if _, err := to.ThawSession(new(fakeTransport), jsonForm, other); !errors.Is(err, answer.ErrBadRequest) {
		t.Errorf("a channel that there cannot be: %v", err)
	}
	r, err := to.Restore()
	if err != nil {
		t.Fatal(err)
	}
	for part, body := range map[string]string{nodePart: "short", countPart: "\x03no!", channelPart: "\xff",
		sessionPart: "", "hub.node.9": ""} {
		if err := r.Record(part, []byte(body)); !snapshot.IsMalformed(err) {
			t.Errorf("%s: %v", part, err)
		}
	}
	to.thaw()
	to.end(t)
	w.end()
}

// A transport waits for an answer in the next process only if a ping has been sent.
func TestMovedClientsAnswerPingsAlone(t *testing.T) {
	for _, pinged := range []bool{false, true} {
		clock := pushtest.NewClock()
		from := newHome(t, clock, pushtest.Random(), pushtest.Seeded())
		c, moved := new(fakeTransport), new(fakeTransport)
		c.s = from.Start(&timedTransport{Transport: c}, jsonForm, nil)
		c.frame([]byte(`{"id":1,"connect":{}}`))
		want := 0
		if pinged {
			clock.Advance(from.timing.Ping)
			want = 1
		}
		from.freeze(t)
		state, _ := c.s.AppendState(nil)
		to := newHome(t, clock, pushtest.Random(), pushtest.Seeded())
		to.freeze(t)
		from.sharedState(t, to)
		timed := &timedTransport{Transport: moved}
		s, err := to.ThawSession(timed, jsonForm, state)
		if err != nil {
			t.Fatal(err)
		}
		moved.s = s
		c.s.Moved()
		from.Leave()
		to.thaw()
		if timed.asked != want {
			t.Errorf("pinged: %v: the transport is asked to wait %d times, want %d", pinged, timed.asked, want)
		}
		moved.hangUp()
		from.end(t)
		to.end(t)
	}
}

// A pong by a request of its own may have been refused by the process that the client has left. So
// the client is asked once more, and may answer both pings.
func TestMovedClientsArePingedAgain(t *testing.T) {
	for _, answers := range []int{0, 1, 2, 3} {
		clock := pushtest.NewClock()
		homes := []*home{newHome(t, clock, pushtest.Random(), pushtest.Seeded())}
		c := new(fakeTransport)
		c.s = homes[0].Start(c, jsonForm, nil)
		c.frame([]byte(`{"id":1,"connect":{}}`))
		c.Take()
		clock.Advance(homes[0].timing.Ping)
		c.Want(t, "ping", "{}")
		move := func() {
			from, to := homes[len(homes)-1], newHome(t, clock, pushtest.Random(), pushtest.Seeded())
			from.freeze(t)
			to.freeze(t)
			from.sharedState(t, to)
			state, _ := c.s.AppendState(nil)
			moved := new(fakeTransport)
			s, err := to.ThawSession(moved, jsonForm, state)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := s.AppendState(nil); !bytes.Equal(again, state) {
				t.Errorf("the state is\n%q\nand was\n%q", again, state)
			}
			c.s.Moved()
			moved.s, c = s, moved
			from.Leave()
			to.thaw()
			from.end(t)
			homes = append(homes, to)
		}
		move()
		pong := homes[0].timing.Pong
		clock.Advance(pong + 2*wheelSlot)
		c.WantOpen(t, "after a time in which its answer may have been lost")
		c.Want(t, "another ping", "{}")
		for i := range answers {
			if i == 1 {
				move()
			}
			c.frame([]byte("{}"))
		}
		if answers == 0 {
			clock.Advance(pong + 2*wheelSlot)
		}
		switch answers {
		case 0:
			c.WantClosed(t, "a client that does not answer", answer.DisconnectNoPong)
		case 3:
			c.WantClosed(t, "a client that answers too often", answer.DisconnectBadRequest)
		default:
			clock.Advance(pong + 2*wheelSlot)
			c.WantOpen(t, fmt.Sprint("after answer ", answers))
		}
		c.hangUp()
		homes[len(homes)-1].end(t)
	}
}

// Counters of another version do not keep a hub from moving.
func TestRestorePassesOverUnknownCounters(t *testing.T) {
	h := newHome(t, pushtest.NewClock(), pushtest.Random(), pushtest.Seeded())
	h.freeze(t)
	r, err := h.Restore()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"\x03new\x01", "\x09publishes\x07"} {
		if err := r.Record(countPart, []byte(body)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
	if got := h.Counts().Publishes; got != 7 {
		t.Errorf("%d publications are counted, want 7", got)
	}
	h.thaw()
	h.end(t)
}

// A state is refused, or is that of a session that writes down all that this hub has of it.
func FuzzThawSession(f *testing.F) {
	clock := pushtest.NewClock()
	one := newHome(f, clock, pushtest.Random(), pushtest.Seeded())
	c, other := new(fakeTransport), new(fakeTransport)
	c.s = one.Start(c, jsonForm, nil)
	c.frame([]byte(`{"id":1,"connect":{}}` + "\n" +
		`{"id":2,"subscribe":{"channel":"kept:a","delta":"fossil"}}` + "\n" +
		`{"id":3,"subscribe":{"channel":"a","tf":{"op":"not","nodes":[{"key":"k","cmp":"lt","val":"1"}]}}}`))
	one.freeze(f)
	state, _ := c.s.AppendState(nil)
	f.Add(state)
	one.thaw()
	other.s = one.StartConnected(other, eventForm, Grant{User: "ann", Channels: []string{"a"}}, nil)
	one.freeze(f)
	state, _ = other.s.AppendState(nil)
	f.Add(state)
	one.thaw()
	c.hangUp()
	other.hangUp()
	one.end(f)
	to := newHome(f, clock, pushtest.Random(), pushtest.Seeded())
	to.freeze(f)
	f.Cleanup(func() {
		to.thaw()
		to.end(f)
	})
	f.Fuzz(func(t *testing.T, state []byte) {
		s, err := to.ThawSession(new(fakeTransport), jsonForm, state)
		if err != nil {
			if n := to.open.Load(); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
			return
		}
		again, ok := s.AppendState(nil)
		s.Moved()
		if !ok || len(again) > len(state) {
			t.Fatalf("%q became %q, %v", state, again, ok)
		}
		if s, err = to.ThawSession(new(fakeTransport), jsonForm, again); err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if last, ok := s.AppendState(nil); !ok || !bytes.Equal(last, again) {
			t.Errorf("%q became %q, %v", again, last, ok)
		}
		s.Moved()
	})
}
