package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	written "github.com/myriad-go/myriad/internal/parts"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// A house is an engine with a server of WebSockets that move. What a connection is told comes back
// with the name of the house and the number of messages so far, which is its Value.
type house struct {
	name   string
	engine *myriad.Engine
	o      *Options
	events chan string
	thawed func(c *Conn) error
	blocks chan struct{} // a message waits for it
}

func newHouse(t *testing.T, name string, o *Options) *house {
	t.Helper()
	return newHouseOn(t, 2, name, o)
}

func newHouseOn(t *testing.T, loops int, name string, o *Options) *house {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: loops})
	if err != nil {
		t.Fatal(err)
	}
	o.Workers = workers.New(workers.Config{})
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.Shutdown(over)
		_ = o.Workers.Close(context.Background())
	})
	h := &house{name: name, engine: e, o: o, events: make(chan string, 1024)}
	o.OnOpen = func(c *Conn) { c.SetValue(0); h.events <- "open" }
	o.OnMessage = func(c *Conn, op Op, p []byte) {
		if h.blocks != nil {
			<-h.blocks
		}
		n := c.Value().(int) + 1
		c.SetValue(n)
		_ = c.Write(op, fmt.Appendf(nil, "%s %d %s", h.name, n, p))
	}
	o.OnClose = func(*Conn, error) { h.events <- "close" }
	o.OnMoved = func(*Conn) { h.events <- "moved" }
	o.FreezeValue = func(c *Conn, dst []byte) ([]byte, error) { return fmt.Append(dst, c.Value()), nil }
	o.ThawValue = func(c *Conn, state []byte) error {
		n := 0
		if _, err := fmt.Sscan(string(state), &n); err != nil {
			return err
		}
		c.SetValue(n)
		if h.thawed != nil {
			return h.thawed(c)
		}
		return nil
	}
	return h
}

func (h *house) thawer(t *testing.T) myriad.Thawer {
	t.Helper()
	th, err := h.o.Thawer()
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// freeze freezes all connections of the house, which have to be so many.
func (h *house) freeze(t *testing.T, want int) (*myriad.Frozen, []myriad.Record) {
	t.Helper()
	f, err := h.engine.Freeze(10*time.Second, h.thawer(t))
	if err != nil {
		t.Fatal(err)
	}
	records := f.Records()
	if len(records) != want || f.Left() != 0 {
		t.Fatalf("%d connections move, %d are left", len(records), f.Left())
	}
	return f, records
}

// thaw makes the records frozen connections of the house.
func (h *house) thaw(t *testing.T, records []myriad.Record) (*myriad.Frozen, error) {
	t.Helper()
	for i := range records {
		s, err := h.engine.Sockets().Share(records[i].Socket)
		if err != nil {
			t.Fatal(err)
		}
		records[i].Socket, records[i].Thawer = s, h.thawer(t)
	}
	f, err := h.engine.Thaw()
	if err != nil {
		t.Fatal(err)
	}
	return f, f.Add(records)
}

func (h *house) moveTo(t *testing.T, to *house, n int) {
	t.Helper()
	here, records := h.freeze(t, n)
	there, err := to.thaw(t, records)
	if err != nil {
		t.Fatal(err)
	}
	here.Moved()
	there.GoOn()
}

func (h *house) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-h.events:
		if got != want {
			t.Fatalf("%s: %s, want %s", h.name, got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: no %s", h.name, want)
	}
}

// served listens for connections, by this package alone or behind a web.Server.
func (h *house) served(t *testing.T, viaWeb bool) (url string) {
	t.Helper()
	if !viaWeb {
		ln, err := h.engine.Listen("tcp", "127.0.0.1:0", Handler(h.o))
		if err != nil {
			t.Fatal(err)
		}
		return "ws://" + ln.Addr().String()
	}
	s := &web.Server{Engine: h.engine, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		_, _ = Accept(w, r, h.o)
	})}
	t.Cleanup(func() { _ = s.Close() })
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return "ws://" + ln.Addr().String()
}

// caller is a client that is read by Read.
func caller(t *testing.T, url string, compression Compression, subprotocols ...string) *Conn {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	pool := workers.New(workers.Config{})
	o := &DialOptions{Options: Options{Engine: e, Workers: pool, Pull: true, Compression: compression,
		Subprotocols: subprotocols}}
	c, _, err := Dial(ctx, url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Abort(nil)
		cancel()
		_ = e.Shutdown(context.Background())
		_ = pool.Close(context.Background())
	})
	return c
}

func says(t *testing.T, c *Conn, text, want string) {
	t.Helper()
	if err := c.Write(OpText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	hears(t, c, want)
}

func hears(t *testing.T, c *Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, p, err := c.Read(ctx)
	if err != nil || string(p) != want {
		t.Fatalf("%.80q (%v), want %.80q", p, err, want)
	}
}

// kept has both sides keep their windows.
var kept = Compression{Enabled: true, Threshold: 1, ReadWindowBits: 15, WriteWindowBits: 15}

// A WebSocket moves there and back with its value, its subprotocol and the windows of compression;
// its client notices nothing, and no callback of an end or a beginning is called.
func TestConnectionsMove(t *testing.T) {
	for _, viaWeb := range []bool{false, true} {
		for name, compression := range map[string]Compression{"plain": {}, "compressed": kept} {
			t.Run(fmt.Sprintf("%s web %v", name, viaWeb), func(t *testing.T) {
				options := func() *Options {
					return &Options{Compression: compression, Subprotocols: []string{"a", "b"}}
				}
				houses := []*house{newHouse(t, "A", options()), newHouse(t, "B", options())}
				c := caller(t, houses[0].served(t, viaWeb), compression, "b")
				houses[0].expect(t, "open")
				long := strings.Repeat("a window of text ", 50)
				for i := range 6 {
					says(t, c, long, fmt.Sprintf("%s %d %s", houses[i%2].name, i+1, long))
					houses[(i+1)%2].thawed = func(there *Conn) error {
						if there.Subprotocol() != "b" || there.Compressed() != compression.Enabled ||
							there.RemoteAddr().String() != c.LocalAddr().String() {
							return fmt.Errorf("%q, %v, %v", there.Subprotocol(), there.Compressed(), there.RemoteAddr())
						}
						return there.Write(OpText, []byte("thawed"))
					}
					houses[i%2].moveTo(t, houses[(i+1)%2], 1)
					houses[i%2].expect(t, "moved")
					hears(t, c, "thawed")
				}
				_ = c.Close(StatusNormalClosure, "")
				houses[0].expect(t, "close")
			})
		}
	}
}

// What cannot go on in the other engine is refused with a reason, and goes on where it was.
func TestThawRefuses(t *testing.T) {
	here := newHouse(t, "A", &Options{Compression: kept, Subprotocols: []string{"a"}})
	c := caller(t, here.served(t, false), kept, "a")
	here.expect(t, "open")
	says(t, c, "first", "A 1 first")
	for name, tc := range map[string]struct {
		o     *Options
		spoil func(h *house, r *myriad.Record)
		says  string
	}{
		"compression": {&Options{Subprotocols: []string{"a"}}, nil, "Compression is off"},
		"subprotocol": {&Options{Compression: kept}, nil, `speaks "a"`},
		"program": {&Options{Compression: kept, Subprotocols: []string{"a"}}, func(h *house, _ *myriad.Record) {
			h.thawed = func(*Conn) error { return errors.New("full house") }
		}, "full house"},
		"state": {&Options{Compression: kept, Subprotocols: []string{"a"}}, func(_ *house, r *myriad.Record) {
			r.State = bytes.Replace(r.State, []byte("value"), []byte("Value"), 1)
		}, "value"},
	} {
		there := newHouse(t, "B", tc.o)
		frozen, records := here.freeze(t, 1)
		if tc.spoil != nil {
			tc.spoil(there, &records[0])
		}
		if thawed, err := there.thaw(t, records); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		} else {
			thawed.Drop(nil)
		}
		frozen.GoOn()
	}
	says(t, c, "second", "A 2 second")
}

// A thawed connection that does not move after all ends with OnMoved alone.
func TestDropOfThawed(t *testing.T) {
	here, there := newHouse(t, "A", &Options{}), newHouse(t, "B", &Options{})
	c := caller(t, here.served(t, false), Compression{})
	here.expect(t, "open")
	frozen, records := here.freeze(t, 1)
	thawed, err := there.thaw(t, records)
	if err != nil {
		t.Fatal(err)
	}
	thawed.Drop(nil)
	there.expect(t, "moved")
	frozen.GoOn()
	says(t, c, "on", "A 1 on")
}

// With half a message or a running callback a connection is not at rest.
func TestFreezeWaitsForRest(t *testing.T) {
	here := newHouse(t, "A", &Options{})
	ln, err := here.engine.Listen("tcp", "127.0.0.1:0", Handler(here.o))
	if err != nil {
		t.Fatal(err)
	}
	nc := dialRaw(t, ln.Addr().String())
	if _, err := nc.Write([]byte(sampleRequest)); err != nil {
		t.Fatal(err)
	}
	here.expect(t, "open")
	frame := clientFrame(true, OpText, "half")
	if _, err := nc.Write([]byte(frame[:len(frame)/2])); err != nil {
		t.Fatal(err)
	}
	frozen := func() int {
		f, err := here.engine.Freeze(0, here.thawer(t))
		if err != nil {
			t.Fatal(err)
		}
		defer f.GoOn()
		return f.Len()
	}
	waitUntil(t, "half a frame is there", func() bool { return frozen() == 0 })
	if _, err := nc.Write([]byte(frame[len(frame)/2:])); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the message is answered", func() bool { return frozen() == 1 })
	release := make(chan struct{})
	here.blocks = release
	if _, err := nc.Write([]byte(frame)); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "a callback runs", func() bool { return frozen() == 0 })
	close(release)
	waitUntil(t, "it has returned", func() bool { return frozen() == 1 })
}

func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(hangs); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// FuzzThaw holds any state against Thaw: it is refused, or makes a connection that can be frozen
// again.
func FuzzThaw(f *testing.F) {
	o := &Options{Compression: kept, Subprotocols: []string{"a"}}
	o.FreezeValue = func(_ *Conn, dst []byte) ([]byte, error) { return append(dst, 'v'), nil }
	o.ThawValue = func(*Conn, []byte) error { return nil }
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	th, err := o.Thawer()
	if err != nil {
		f.Fatal(err)
	}
	w := written.Begin(nil, frozenVersion)
	w.Bytes(partValue, []byte("v"))
	w.String(partSubprotocol, "a")
	w.Uint(partDeflate, 200)
	w.Bytes(partWindowIn, make([]byte, 100))
	w.Uint(partSilent, 7)
	w.Uint(partPing, 3)
	w.Uint(partAnswer, 9)
	w.Bool(partRefused, true)
	f.Add(w.End())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, state []byte) {
		near, far, err := e.System().Facilities().Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		record := written.Begin(nil, 1)
		record.Bytes("state", state)
		frozen, err := e.Thaw()
		if err != nil {
			t.Fatal(err)
		}
		_ = frozen.Add([]myriad.Record{{Thawer: th, Format: frozenFormat, State: record.End(), Socket: near}})
		for _, r := range frozen.Records() {
			if len(r.State) == 0 {
				t.Error("a thawed connection cannot be written down")
			}
		}
		frozen.Drop(nil)
		if n := e.Limits().Open; n != 0 {
			t.Fatalf("%d connections are left", n)
		}
	})
}

// What a group was sent until its members are written down arrives, although their loop has not
// come to it, and behind that what the group there is sent.
func TestMembersMove(t *testing.T) {
	const members, before, behind = 50, 20, 5
	var here, there Group
	houses := []*house{newHouseOn(t, 1, "A", &Options{}), newHouse(t, "B", &Options{})}
	freeze, frozen := houses[0].o.FreezeValue, false
	houses[0].o.FreezeValue = func(c *Conn, dst []byte) ([]byte, error) {
		if !frozen { // the last moment, on the loop
			frozen = true
			for i := range before {
				_ = here.Send(OpText, fmt.Appendf(nil, "here %d", i))
			}
		}
		return freeze(c, dst)
	}
	opened := houses[0].o.OnOpen
	houses[0].o.OnOpen = func(c *Conn) {
		if _, err := here.Join(c); err != nil {
			t.Error(err)
		}
		opened(c)
	}
	houses[1].thawed = func(c *Conn) error { _, err := there.Join(c); return err }
	url := houses[0].served(t, false)
	addr := strings.TrimPrefix(url, "ws://")
	var peers []*rawPeer
	for range members {
		p := dialRaw(t, addr)
		p.write(sampleRequest)
		p.head()
		houses[0].expect(t, "open")
		peers = append(peers, p)
	}
	houses[0].moveTo(t, houses[1], members)
	for i := range behind {
		_ = there.Send(OpText, fmt.Appendf(nil, "there %d", i))
	}
	for _, p := range peers {
		for i := range before + behind {
			want := fmt.Sprintf("text \"here %d\"", i)
			if i >= before {
				want = fmt.Sprintf("text \"there %d\"", i-before)
			}
			if got := p.frame(); !strings.Contains(got, strings.Trim(want[5:], "\"")) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	if here.Len() != 0 || there.Len() != members {
		t.Errorf("%d members here, %d there", here.Len(), there.Len())
	}
}

// What comes for a frozen connection above its limit waits, or is up to the policy: nothing that
// was queued is lost. This is so where it goes on, and where it is thawed.
func TestFrozenMemberAboveItsLimit(t *testing.T) {
	const messages, size, limit = 30, 1000, 8000
	var here Group
	a, b := newHouse(t, "A", &Options{WriteLimit: limit}), newHouse(t, "B", &Options{WriteLimit: limit})
	var member *Conn
	opened := a.o.OnOpen
	a.o.OnOpen = func(c *Conn) {
		if _, err := here.Join(c); err != nil {
			t.Error(err)
		}
		member = c
		opened(c)
	}
	text := func(i int) []byte { return fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", size)) }
	c := caller(t, a.served(t, false), Compression{})
	a.expect(t, "open")
	f, err := a.engine.Freeze(10*time.Second, a.thawer(t))
	if err != nil || f.Len() != 1 {
		t.Fatalf("%v, %v", f, err)
	}
	for i := range messages {
		if err := here.Send(OpText, text(i)); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, "the member is late", func() bool {
		member.mu.Lock()
		defer member.mu.Unlock()
		return member.cold != nil && member.cold.late.members != nil
	})
	if got := f.Records(); len(got) != 0 || f.Left() != 1 {
		t.Errorf("%d records of a connection for which messages wait, %d left", len(got), f.Left())
	}
	f.GoOn()
	for i := range messages {
		hears(t, c, string(text(i)))
	}

	a.o.FreezeValue = func(c *Conn, dst []byte) ([]byte, error) {
		for i := range limit / size {
			_ = c.Write(OpText, text(i)[:size-10])
		}
		return fmt.Append(dst, c.Value()), nil
	}
	refused := 0
	b.thawed = func(c *Conn) error {
		for i := range messages {
			if err := c.Write(OpText, text(100+i)); errors.Is(err, myriad.ErrFull) {
				refused++
			} else if err != nil {
				return err
			}
		}
		return nil
	}
	a.moveTo(t, b, 1)
	for i := range limit / size {
		hears(t, c, string(text(i)[:size-10]))
	}
	if refused == 0 {
		t.Error("ThawValue may write without a limit")
	}
}

// A connection that is closed while it is frozen, or whose peer is asked something, goes on where
// it is.
func TestFrozenConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(c *Conn, g *Group) error{
		"Close":       func(c *Conn, _ *Group) error { return c.Close(4001, "") },
		"Group.Close": func(_ *Conn, g *Group) error { return g.Close(4001, "") },
		"AwaitAnswer": func(c *Conn, _ *Group) error {
			if !c.AwaitAnswer() {
				return errors.New("it reports false")
			}
			return nil
		},
	} {
		var g Group
		var member *Conn
		h := newHouse(t, "A", &Options{AnswerTimeout: time.Hour})
		opened, freeze := h.o.OnOpen, h.o.FreezeValue
		h.o.OnOpen = func(c *Conn) {
			if _, err := g.Join(c); err != nil {
				t.Error(err)
			}
			member = c
			opened(c)
		}
		h.o.FreezeValue = func(c *Conn, dst []byte) ([]byte, error) { // the last moment
			if err := end(c, &g); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return freeze(c, dst)
		}
		c := caller(t, h.served(t, false), Compression{})
		h.expect(t, "open")
		f, err := h.engine.Freeze(10*time.Second, h.thawer(t))
		if err != nil || f.Len() != 1 {
			t.Fatalf("%v, %v", f, err)
		}
		if got := f.Records(); len(got) != 0 || f.Left() != 1 {
			t.Errorf("%s: %d records, %d left", name, len(got), f.Left())
		}
		f.GoOn()
		_ = member.Close(4001, "") // it may be closing already
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if _, _, err := c.Read(ctx); CloseStatus(err) != 4001 {
			t.Errorf("%s: the peer reads %v", name, err)
		}
		cancel()
		h.expect(t, "close")
	}
}

// A limit above what is written down moves as the highest that is.
func TestLargestLimitMoves(t *testing.T) {
	a, b := newHouse(t, "A", &Options{}), newHouse(t, "B", &Options{})
	opened := a.o.OnOpen
	a.o.OnOpen = func(c *Conn) {
		if err := c.SetOverflow(OverflowFail, math.MaxInt); err != nil {
			t.Error(err)
		}
		opened(c)
	}
	c := caller(t, a.served(t, false), Compression{})
	a.expect(t, "open")
	a.moveTo(t, b, 1)
	says(t, c, "on", "B 1 on")
}
