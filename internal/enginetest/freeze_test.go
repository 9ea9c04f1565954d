package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/parts"
)

// A movable is a probe whose connections move, and the Thawer of them.
type movable struct {
	*probe
	busy      bool
	state     []byte // that Freeze appends
	freezeErr error
	frozen    func(c *myriad.Conn) // called behind that
	thaw      func(c *myriad.Conn, state []byte) error
	moves     chan *myriad.Conn
}

func newMovable() *movable {
	m := &movable{probe: newProbe(), state: []byte("state"), moves: make(chan *myriad.Conn, 16)}
	m.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
	m.ended = func(*myriad.Conn) {}
	return m
}

func (m *movable) Thawer() myriad.Thawer    { return m }
func (m *movable) AtRest(*myriad.Conn) bool { return !m.busy }
func (m *movable) Moved(c *myriad.Conn)     { m.moves <- c }
func (m *movable) Formats() []string        { return []string{"movable/1"} }
func (m *movable) Freeze(c *myriad.Conn, dst []byte) ([]byte, error) {
	state := append(dst, m.state...)
	if m.frozen != nil {
		m.frozen(c)
	}
	return state, m.freezeErr
}

func (m *movable) Thaw(c *myriad.Conn, format string, state []byte) (myriad.Handler, error) {
	if format != "movable/1" || string(state) != "state" {
		return nil, fmt.Errorf("%q is %q", format, state)
	}
	if m.thaw != nil {
		if err := m.thaw(c, state); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// eachDriver runs a test on every driver of this system.
func eachDriver(t *testing.T, f func(t *testing.T, driver string)) {
	for _, name := range []string{"", "std"} {
		t.Run("driver "+name, func(t *testing.T) { f(t, name) })
	}
}

// A removal is two engines, and a peer of the first.
type removal struct {
	t        *testing.T
	old, new *myriad.Engine
	from, to *movable
	nc       net.Conn
	c        *myriad.Conn
	frozen   *myriad.Frozen
	thawed   *myriad.Frozen
}

func newRemoval(t *testing.T, driver string, cfg myriad.Config) *removal {
	t.Helper()
	cfg.Driver, cfg.Logger = driver, quiet
	r := &removal{t: t, old: start(t, myriad.Config{Driver: driver, Logger: quiet}), new: start(t, cfg),
		from: newMovable(),
		to:   newMovable()}
	s := setting{wrap: bare, client: keep}
	r.nc = s.dial(t, s.listen(t, r.old, r.from))
	r.c = await(t, "Opened", r.from.opens)
	return r
}

func (r *removal) freeze() []myriad.Record {
	r.t.Helper()
	f, err := r.old.Freeze(patience, r.from)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.frozen = f; f.Len() != 1 || f.Left() != 0 {
		r.t.Fatalf("%d connections are frozen, %d left", f.Len(), f.Left())
	}
	return f.Records()
}

// send makes records of the old engine those of the new one, as another process does.
func (r *removal) send(records []myriad.Record) error {
	r.t.Helper()
	for i := range records {
		s, err := r.new.Sockets().Share(records[i].Socket)
		if err != nil {
			r.t.Fatal(err)
		}
		records[i].Socket, records[i].Thawer = s, r.to
	}
	var err error
	if r.thawed, err = r.new.Thaw(); err != nil {
		r.t.Fatal(err)
	}
	return r.thawed.Add(records)
}

// move moves the connection, and is what Thaw was called with.
func (r *removal) move(records []myriad.Record) *myriad.Conn {
	r.t.Helper()
	var c *myriad.Conn
	r.to.thaw = func(thawed *myriad.Conn, _ []byte) error { c = thawed; return nil }
	if err := r.send(records); err != nil {
		r.t.Fatal(err)
	}
	r.frozen.Moved()
	if got := await(r.t, "Moved", r.from.moves); got != r.c {
		r.t.Error("Moved is called with another conn")
	}
	r.thawed.GoOn()
	return c
}

// What the old engine knows of a connection is known in the new one: bytes in both directions,
// addresses, limit, timer. Neither Closed nor Opened is called.
func TestConnMoves(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		told := netip.MustParseAddrPort("192.0.2.7:1234")
		onLoop(t, r.c, func() {
			r.c.SetAddrs(netip.AddrPort{}, told)
			r.c.SetTimer(time.Hour)
		})
		r.c.SetWriteLimit(7)
		send(t, r.nc, []byte("before"))
		expect(t, r.nc, []byte("before"))
		f, err := r.old.Freeze(patience, r.from)
		if err != nil || f.Len() != 1 {
			t.Fatalf("%v, %v", f, err)
		}
		r.frozen = f
		send(t, r.nc, []byte("meanwhile"))
		if _, err := r.c.Write([]byte("unsent")); err != nil {
			t.Errorf("write to a frozen conn: %v", err)
		}
		onLoop(t, r.c, func() {
			if got := r.c.State(); got != "frozen" {
				t.Errorf("its state is %q", got)
			}
			r.c.SetTimer(time.Millisecond) // it may be set still
		})
		expired := make(chan *myriad.Conn, 1)
		r.to.expired = func(c *myriad.Conn) { expired <- c }
		c := r.move(f.Records())
		expect(t, r.nc, []byte("unsentmeanwhile"))
		if got := await(t, "Expired", expired); got != c {
			t.Error("Expired of another conn")
		}
		if c.RemoteAddr().String() != told.String() || c.LocalAddr().String() != r.nc.RemoteAddr().String() {
			t.Errorf("it moved as %v to %v", c.LocalAddr(), c.RemoteAddr())
		}
		if _, err := r.c.Write([]byte("x")); !errors.Is(err, myriad.ErrClosed) {
			t.Errorf("write to what has moved: %v", err)
		}
		if st := r.old.Stats(); st.Conns != 0 || r.old.Limits().Open != 0 {
			t.Errorf("the old engine has %d connections, %d count", st.Conns, r.old.Limits().Open)
		}
		if st := r.new.Stats(); st.Conns != 1 || r.new.Limits().Open != 1 {
			t.Errorf("the new engine has %d connections, %d count", st.Conns, r.new.Limits().Open)
		}
		if r.from.closing.Load() != 0 || r.to.openings.Load() != 0 {
			t.Errorf("Closed %d times, Opened %d times", r.from.closing.Load(), r.to.openings.Load())
		}
		closeWrite(t, r.nc)
		eventually(t, "the new handler sees the end", func() bool { return r.to.endings.Load() == 1 })
		_ = c.Close()
		expectEnd(t, r.nc, nil)
	})
}

// A connection that does not move goes on as the same conn, with what was asked of it meanwhile.
func TestFrozenConnGoesOn(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		expired := make(chan struct{}, 1)
		r.from.expired = func(*myriad.Conn) { expired <- struct{}{} }
		notified := make(chan struct{}, 1)
		r.from.notified = func(*myriad.Conn) { notified <- struct{}{} }
		onLoop(t, r.c, func() { r.c.SetTimer(time.Millisecond) })
		await(t, "Expired", expired)
		onLoop(t, r.c, func() { r.c.SetTimer(time.Hour) })
		for range 3 {
			r.freeze()
			send(t, r.nc, []byte("in"))
			if _, err := r.c.Write([]byte("out")); err != nil {
				t.Error(err)
			}
			r.c.Notify()
			if err := r.c.SetDeadline(time.Now().Add(-time.Second)); err != nil {
				t.Error(err)
			}
			r.frozen.GoOn()
			expect(t, r.nc, []byte("outin"))
			await(t, "Notified", notified)
			await(t, "Expired", expired)
		}
		onLoop(t, r.c, func() {
			if r.c.State() != "open" {
				t.Errorf("its state is %q", r.c.State())
			}
		})
		if r.from.closing.Load() != 0 || r.from.openings.Load() != 1 {
			t.Errorf("Closed %d times, Opened %d times", r.from.closing.Load(), r.from.openings.Load())
		}
		if r.old.Limits().Open != 1 {
			t.Errorf("%d connections count", r.old.Limits().Open)
		}
	})
}

// Flush keeps the output of a frozen connection, which no driver could take.
func TestFlushOfFrozenConn(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		f, err := r.old.Freeze(patience, r.from)
		if err != nil {
			t.Fatal(err)
		}
		r.frozen = f
		flush := func(c *myriad.Conn, p string) {
			t.Helper()
			if _, err := c.Write([]byte(p)); err != nil {
				t.Error(err)
			}
			if !c.Flush() || c.Buffered() == 0 {
				t.Errorf("of %q, %d bytes are still to be offered", p, c.Buffered())
			}
		}
		onLoop(t, r.c, func() { flush(r.c, "here") })
		var c *myriad.Conn
		r.to.thaw = func(thawed *myriad.Conn, _ []byte) error {
			c = thawed
			flush(c, "there")
			return nil
		}
		if err := r.send(f.Records()); err != nil {
			t.Fatal(err)
		}
		f.Moved()
		onLoop(t, c, func() { flush(c, "behind") })
		r.thawed.GoOn()
		expect(t, r.nc, []byte("heretherebehind"))
	})
}

// A call of Notified or Drained that is pending for a frozen connection is made where it goes on.
func TestPendingCallsMove(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		notified, drained := make(chan *myriad.Conn, 1), make(chan *myriad.Conn, 1)
		r.to.notified = func(c *myriad.Conn) { notified <- c }
		r.to.drained = func(c *myriad.Conn) { drained <- c }
		f, err := r.old.Freeze(patience, r.from)
		if err != nil {
			t.Fatal(err)
		}
		r.frozen = f
		r.c.SetWriteLimit(16)
		for _, p := range []string{"0123456789abcdef", "refused"} {
			if _, err = r.c.Write([]byte(p)); err != nil && p != "refused" {
				t.Error(err)
			}
		}
		if !errors.Is(err, myriad.ErrFull) {
			t.Errorf("a write above the limit: %v", err)
		}
		r.c.Notify()
		c := r.move(f.Records())
		if await(t, "Notified", notified) != c || await(t, "Drained", drained) != c {
			t.Error("called for another conn")
		}
		expect(t, r.nc, []byte("0123456789abcdef"))
	})
}

// A record that the other engine would refuse, or that has to be cut, does not end the move of the
// others.
func TestExtremesMove(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		onLoop(t, r.c, func() { r.c.SetTimer(100 * 365 * 24 * time.Hour) })
		c := r.move(r.freeze())
		send(t, r.nc, []byte("on"))
		expect(t, r.nc, []byte("on"))
		onLoop(t, c, func() { c.SetTimer(0) })

		r = newRemoval(t, driver, myriad.Config{})
		f, err := r.old.Freeze(patience, r.from)
		if err != nil {
			t.Fatal(err)
		}
		r.from.state = make([]byte, parts.MaxState)
		if got := f.Records(); len(got) != 0 || f.Left() != 1 {
			t.Errorf("%d records of a connection with too much state, %d left", len(got), f.Left())
		}
		f.GoOn()
		send(t, r.nc, []byte("on"))
		expect(t, r.nc, []byte("on"))
	})
}

// An end of the peer that the handler knows stays known, and a paused connection stays paused, with
// what it holds.
func TestEndsAndPausesMove(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		closeWrite(t, r.nc)
		eventually(t, "the handler sees the end", func() bool { return r.from.endings.Load() == 1 })
		c := r.move(r.freeze())
		onLoop(t, c, func() {
			if c.State() != "peer ended" {
				t.Errorf("its state is %q", c.State())
			}
		})
		if _, err := c.Write([]byte("answer")); err != nil {
			t.Error(err)
		}
		_ = c.CloseWrite()
		expectEnd(t, r.nc, []byte("answer"))
		if n := r.to.endings.Load(); n != 0 {
			t.Errorf("the new handler sees an end that is known %d times", n)
		}

		r = newRemoval(t, driver, myriad.Config{})
		onLoop(t, r.c, r.c.Pause)
		send(t, r.nc, []byte("held"))
		closeWrite(t, r.nc)
		c = r.move(r.freeze())
		onLoop(t, c, func() {
			if c.State() != "paused" {
				t.Errorf("its state is %q", c.State())
			}
			c.Resume()
		})
		expect(t, r.nc, []byte("held"))
		eventually(t, "the new handler sees the end", func() bool { return r.to.endings.Load() == 1 })
	})
}

// A connection that has ended our side only waits for its peer, also after it has moved.
func TestEndedWritingMoves(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		_ = r.c.CloseWrite()
		expectEnd(t, r.nc, nil)
		r.to.received = nil
		c := r.move(r.freeze())
		if _, err := c.Write([]byte("x")); !errors.Is(err, myriad.ErrClosed) {
			t.Errorf("write behind CloseWrite: %v", err)
		}
		closeWrite(t, r.nc)
		if err := await(t, "Closed", r.to.closes); err != nil {
			t.Errorf("Closed with %v", err)
		}
	})
}

// What is not at rest stays: the handler says so, output waits for the peer, a layer, another
// Thawer. It is counted if it is of the Thawer.
func TestFreezeLeaves(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		left := func(want int, thawers ...myriad.Thawer) {
			t.Helper()
			f, err := r.old.Freeze(0, thawers...)
			if err != nil || f.Len() != 0 || f.Left() != want || len(f.Records()) != 0 {
				t.Errorf("%d frozen, %d left, want %d (%v)", f.Len(), f.Left(), want, err)
			}
			f.GoOn()
		}
		left(0, r.to)
		left(0)
		r.from.busy = true
		left(1, r.to, r.from)
		r.from.busy = false
		// The kernel may make its buffers larger, and then takes what was too much before.
		eventually(t, "the kernel takes no more, and the conn is not at rest", func() bool {
			_, err := r.c.Write(make([]byte, 64<<10))
			for err == nil {
				_, err = r.c.Write(make([]byte, 64<<10))
			}
			f, frozeErr := r.old.Freeze(0, r.from)
			defer f.GoOn()
			if !errors.Is(err, myriad.ErrFull) || frozeErr != nil {
				t.Fatal(err, frozeErr)
			}
			return f.Len() == 0 && f.Left() == 1
		})
		go io.Copy(io.Discard, r.nc)
		f, err := r.old.Freeze(patience, r.from)
		if err != nil || f.Len() != 1 {
			t.Fatalf("it does not come to rest: %d frozen, %v", f.Len(), err)
		}
		r.from.freezeErr = errors.New("no")
		if got := f.Records(); len(got) != 0 || f.Left() != 1 || f.Len() != 0 {
			t.Errorf("%d records of one that cannot be written down, %d left, %d frozen", len(got), f.Left(), f.Len())
		}
		f.Moved()
		closeWrite(t, r.nc)
		_ = r.c.Close()
		await(t, "Closed", r.from.closes)
	})
}

// A net.Conn without a descriptor does not move, and keeps no other connection from moving.
func TestConnWithoutDescriptorStays(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		near, far := net.Pipe()
		defer far.Close()
		c, err := r.old.Adopt(ownConn{near}, nil, r.from)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "Opened", r.from.opens)
		f, err := r.old.Freeze(0, r.from)
		if err != nil {
			t.Fatal(err)
		}
		if records := f.Records(); len(records) != 1 || f.Left() != 1 || f.Len() != 1 {
			t.Errorf("%d records, %d left, %d frozen", len(records), f.Left(), f.Len())
		}
		_ = far.SetDeadline(time.Now().Add(patience))
		say(t, far, "still here")
		f.GoOn()
		say(t, r.nc, "here, too")
		_ = c.Close()
		_ = r.c.Close()
		await(t, "Closed", r.from.closes)
		await(t, "Closed", r.from.closes)
	})
}

// An ownConn is a net.Conn of the program's own, such as a *tls.Conn.
type ownConn struct{ net.Conn }

func (ownConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// say has an echo answer.
func say(t *testing.T, nc net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != text {
		t.Fatalf("%q (%v), want %q", got, err, text)
	}
}

// A Close that comes for a frozen connection is carried out, and it does not move.
func TestCloseOfFrozenConn(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for name, end := range map[string]func(c *myriad.Conn){
			"Close": func(c *myriad.Conn) { _ = c.Close() }, "Abort": func(c *myriad.Conn) { c.Abort(nil) },
		} {
			r := newRemoval(t, driver, myriad.Config{})
			f, err := r.old.Freeze(patience, r.from)
			if err != nil {
				t.Fatal(err)
			}
			end(r.c)
			if got := f.Records(); len(got) != 0 || f.Left() != 1 {
				t.Errorf("%s: %d records, %d left", name, len(got), f.Left())
			}
			if name == "Close" {
				closeWrite(t, r.nc)
			}
			await(t, "Closed", r.from.closes)
			f.GoOn()
		}
	})
}

// The protocol's state and what is unsent are of one moment, although other goroutines write while
// the state is written down.
func TestStateAndOutputAreOfOneMoment(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		r.from.state = []byte("older")
		r.from.frozen = func(c *myriad.Conn) {
			if string(r.from.state) == "state" {
				return
			}
			r.from.state = []byte("state")
			wrote := make(chan error)
			go func() {
				_, err := c.Write([]byte("newer"))
				wrote <- err
			}()
			if err := <-wrote; err != nil {
				t.Error(err)
			}
		}
		f, err := r.old.Freeze(patience, r.from)
		if err != nil {
			t.Fatal(err)
		}
		r.frozen = f
		r.move(f.Records()) // Thaw refuses the older state
		expect(t, r.nc, []byte("newer"))

		// What never stops stays.
		r = newRemoval(t, driver, myriad.Config{})
		calls := 0
		r.from.frozen = func(c *myriad.Conn) {
			calls++
			if _, err := c.Write([]byte{'0' + byte(calls)}); err != nil {
				t.Error(err)
			}
		}
		if f, err = r.old.Freeze(patience, r.from); err != nil {
			t.Fatal(err)
		}
		if got := f.Records(); len(got) != 0 || f.Left() != 1 || f.Len() != 0 {
			t.Errorf("%d records, %d left, %d frozen", len(got), f.Left(), f.Len())
		}
		f.GoOn()
		expect(t, r.nc, []byte("12345678"))
	})
}

// A record that the new engine cannot take is an error that says why; the connection goes on in the
// old one, and nothing is left in the new one.
func TestThawRefuses(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for name, tc := range map[string]struct {
			spoil func(r *removal, rec *myriad.Record)
			is    error
			says  string
		}{
			"version": {func(_ *removal, rec *myriad.Record) { rec.State[0] = 9 }, parts.ErrVersion, "9"},
			"cut off": {func(_ *removal, rec *myriad.Record) { rec.State = rec.State[:len(rec.State)-1] },
				parts.ErrBroken, ""},
			"no state": {func(_ *removal, rec *myriad.Record) { rec.State = rec.State[:1] }, parts.ErrMissing, "state"},
			"a part more": {func(_ *removal, rec *myriad.Record) { rec.State = append(rec.State, 1, 'z', 0) },
				parts.ErrUnknown, `"z"`},
			"format": {func(_ *removal, rec *myriad.Record) { rec.Format = "other/7" }, nil, "other/7"},
			"panic": {func(r *removal, _ *myriad.Record) {
				r.to.thaw = func(*myriad.Conn, []byte) error { panic("no way") }
			}, nil, "no way"},
			"error": {func(r *removal, _ *myriad.Record) {
				r.to.thaw = func(*myriad.Conn, []byte) error { return io.ErrNoProgress }
			}, io.ErrNoProgress, ""},
		} {
			r := newRemoval(t, driver, myriad.Config{})
			records := r.freeze()
			tc.spoil(r, &records[0])
			err := r.send(records)
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
			r.thawed.Drop(nil)
			r.frozen.GoOn()
			send(t, r.nc, []byte("on"))
			expect(t, r.nc, []byte("on"))
			if n := r.new.Limits().Open; n != 0 {
				t.Errorf("%s: %d connections count in the new engine", name, n)
			}
		}
	})
}

// A thawed connection that does not move is given up without a word to its peer.
func TestDropOfThawed(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{MaxConns: 1})
		records := r.freeze()
		if err := r.send(records); err != nil {
			t.Fatal(err)
		}
		first := r.thawed
		if err := r.send([]myriad.Record{{Thawer: r.to, Socket: r.frozen.Records()[0].Socket}}); !errors.Is(err,
			myriad.ErrTooMany) {
			t.Errorf("above MaxConns: %v", err)
		}
		first.Drop(nil)
		if err := await(t, "Closed", r.to.closes); !errors.Is(err, myriad.ErrNotMoved) {
			t.Errorf("Closed with %v", err)
		}
		r.frozen.GoOn()
		send(t, r.nc, []byte("on"))
		expect(t, r.nc, []byte("on"))
	})
}

// Shutdown waits for frozen connections until its context ends, and then ends them.
func TestShutdownWithFrozenConns(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, goesOn := range []bool{true, false} {
			r := newRemoval(t, driver, myriad.Config{})
			r.freeze()
			ctx, cancel := context.WithCancel(context.Background())
			down := make(chan error, 1)
			go func() { down <- r.old.Shutdown(ctx) }()
			if goesOn {
				eventually(t, "it shuts down", func() bool { return r.old.Loops()[0].Do(func() {}) == nil })
				r.frozen.GoOn()
				r.nc.Close()
				await(t, "Closed", r.from.closes)
				if err := await(t, "Shutdown", down); err != nil {
					t.Error(err)
				}
				cancel()
				continue
			}
			cancel()
			if err := await(t, "Shutdown", down); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := await(t, "Closed", r.from.closes); !errors.Is(err, context.Canceled) {
				t.Errorf("Closed with %v", err)
			}
			r.frozen.GoOn() // of nothing
		}
	})
}

// A Shutdown that aborts ends connections that are being moved. The mover notices when it lends a
// socket.
func TestAbortBesideAMove(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := newRemoval(t, driver, myriad.Config{})
		records := r.freeze()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		down := make(chan error, 1)
		go func() { down <- r.old.Shutdown(ctx) }()
		for lent := 0; ; lent++ {
			if lent == 10 {
				cancel()
			}
			_ = r.frozen.Len()
			s, err := r.old.Sockets().Share(records[0].Socket)
			if err != nil {
				break
			}
			_ = s.Close()
		}
		if err := await(t, "Shutdown", down); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := r.frozen.Len(); n != 0 {
			t.Errorf("%d are frozen behind that", n)
		}
		r.frozen.GoOn() // of nothing
	})
}

// Connections that hibernate are woken to be frozen. Notified is called where they go on, so that
// they may hibernate again.
func TestHibernatingConnMoves(t *testing.T) {
	m := newMovable()
	d := &sleeper{movable: m}
	old, next := start(t, myriad.Config{Logger: quiet}), start(t, myriad.Config{Logger: quiet})
	s := setting{wrap: bare, client: keep}
	nc := s.dial(t, s.listen(t, old, d))
	c := await(t, "Opened", m.opens)
	notified := make(chan *myriad.Conn, 1)
	m.notified = func(c *myriad.Conn) { notified <- c }
	freeze := func() *myriad.Frozen {
		t.Helper()
		asleep := false
		onLoop(t, c, func() { asleep = c.Hibernate(d, false) })
		if !asleep {
			t.Fatal("it does not hibernate")
		}
		f, err := old.Freeze(0, m)
		if err != nil || f.Len() != 1 {
			t.Fatalf("%v, %v", f, err)
		}
		return f
	}
	freeze().GoOn()
	c = await(t, "Notified", notified)
	f := freeze()
	r := &removal{t: t, new: next, from: m, to: newMovable(), frozen: f}
	r.to.notified = m.notified
	records := f.Records()
	if err := r.send(records); err != nil {
		t.Fatal(err)
	}
	f.Moved()
	r.thawed.GoOn()
	await(t, "Notified in the new engine", notified)
	send(t, nc, []byte("awake"))
	expect(t, nc, []byte("awake"))
}

// A sleeper is a movable that hibernates.
type sleeper struct{ *movable }

func (s *sleeper) Wake(*myriad.Conn, myriad.Handler) myriad.Handler { return s }

// FuzzRecord holds any record against Frozen.Add: it is refused, or makes a connection whose record
// makes the same one again.
func FuzzRecord(f *testing.F) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	m := newMovable()
	seed := func(write func(w *parts.Encoder)) {
		w := parts.Begin(nil, 1)
		w.String("state", "state")
		write(&w)
		f.Add(w.End())
	}
	seed(func(*parts.Encoder) {})
	seed(func(w *parts.Encoder) {
		w.String("unread", "in")
		w.String("unsent", "out")
		w.Uint("timer", 1<<38)
		w.Uint("age", 1<<38)
		w.Uint("limit", 1<<20)
		w.Bool("paused", true)
		w.Bool("ended", true)
		w.Bool("fin", true)
		w.Bool("notified", true)
		w.Bool("room", true)
		w.Bool("empty", true)
	})
	seed(func(w *parts.Encoder) {
		w.String("local", "192.0.2.1:80")
		w.String("remote", "[2001:db8::1%eth0]:7")
		w.Uint("limit", 1<<62)
	})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, state []byte) {
		add := func(record []byte) (*myriad.Frozen, error) {
			near, far, err := e.System().Facilities().Pair()
			if err != nil {
				t.Fatal(err)
			}
			_ = far.Close()
			frozen, err := e.Thaw()
			if err != nil {
				t.Fatal(err)
			}
			return frozen, frozen.Add([]myriad.Record{{Thawer: m, Format: "movable/1", State: record, Socket: near}})
		}
		var before, behind runtime.MemStats
		runtime.ReadMemStats(&before)
		frozen, err := add(state)
		runtime.ReadMemStats(&behind)
		if took := behind.TotalAlloc - before.TotalAlloc; took > 1<<20+8*uint64(len(state)) {
			t.Errorf("%d bytes of record take %d bytes", len(state), took)
		}
		records := frozen.Records()
		if (err == nil) != (len(records) == 1) {
			t.Fatalf("%d connections can be written down again: %v", len(records), err)
		}
		if err == nil {
			again, err := add(records[0].State)
			if err != nil {
				t.Fatalf("its record % x is refused: %v", records[0].State, err)
			}
			if got := again.Records(); len(got) != 1 || !sameRecord(t, got[0].State, records[0].State) {
				t.Errorf("the record % x becomes % x", records[0].State, got[0].State)
			}
			again.Drop(nil)
		}
		frozen.Drop(nil)
		for range m.probe.closing.Swap(0) {
			<-m.closes
		}
		if n := e.Limits().Open; n != 0 {
			t.Fatalf("%d connections are left", n)
		}
	})
}

// sameRecord compares records without their times, which pass.
func sameRecord(t *testing.T, a, b []byte) bool {
	t.Helper()
	var texts [2][]string
	for i, record := range [][]byte{a, b} {
		d, err := parts.Parse(record, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"state", "unread", "unsent", "limit", "paused", "ended", "fin", "local", "remote",
			"notified", "room", "empty"} {
			texts[i] = append(texts[i], string(d.Bytes(name, parts.MaxState)))
		}
	}
	return slices.Equal(texts[0], texts[1])
}
