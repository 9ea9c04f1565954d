package debug

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// A giver writes as many kilobytes to each conn as the conn's number, and then changes its state
// depending on the number.
type giver struct{ opened int }

func (g *giver) Opened(c *myriad.Conn) {
	g.opened++
	c.Write(make([]byte, g.opened<<10))
	if g.opened%10 == 3 {
		c.Pause()
	}
}
func (g *giver) Received(*myriad.Conn, []byte) {}
func (g *giver) Closed(*myriad.Conn, error)    {}

// simulate returns a simulated world with one listener and n peers that do not read. At the test's
// end it checks for leaks.
func simulate(t *testing.T, n int, h myriad.Handler, cfg myriad.Config) (w *sim.World, e *myriad.Engine) {
	t.Helper()
	o := sim.Lossless()
	o.MaxBuffer, o.Backlog = -1, max(1, n)
	w = sim.New(1, o)
	cfg.System, cfg.Logger = w, quiet
	e, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Shutdown(context.Background()) // a second call is allowed
		w.Run()
		w.Check(t)
	})
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		w.Dial(ln.Addr()).StopReading()
		if _, young := h.(*giver); young {
			w.RunFor(time.Second)
		}
	}
	w.RunFor(time.Second)
	return w, e
}

type silent struct{}

func (silent) Opened(*myriad.Conn)           {}
func (silent) Received(*myriad.Conn, []byte) {}
func (silent) Closed(*myriad.Conn, error)    {}

func survive(t *testing.T, e *myriad.Engine, shown int) *connections {
	t.Helper()
	all, err := look(t.Context(), e, shown)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSurveyOrdersAndCounts(t *testing.T) {
	const n = 300
	_, e := simulate(t, n, &giver{}, myriad.Config{Loops: 2, WriteLimit: 1 << 20})
	total := e.Stats()
	for _, shown := range []int{1, 7, n, 1000} {
		all := survive(t, e, shown)
		if all.Count != n || all.States["paused"] != n/10 || all.States["open"] != n-n/10 || len(all.Missing) > 0 {
			t.Errorf("%d conns in states %v, missing %v", all.Count, all.States, all.Missing)
		}
		if all.Queued != total.Queued || all.Queued == 0 {
			t.Errorf("%d bytes are queued, the loops say %d", all.Queued, total.Queued)
		}
		if len(all.Oldest) != min(shown, n) || len(all.Largest) > shown {
			t.Errorf("%d oldest and %d largest of %d", len(all.Oldest), len(all.Largest), shown)
		}
		if !slices.IsSortedFunc(all.Largest, func(a, b connection) int { return moreQueued(&a, &b) }) ||
			!slices.IsSortedFunc(all.Oldest, func(a, b connection) int { return older(&a, &b) }) {
			t.Errorf("of %d not in order: %v, %v", shown, all.Largest, all.Oldest)
		}
		// The last conn was written most, of which both ends of the wire hold 64 KiB each. The
		// first conn is a second older than the next, and so on.
		if most, first := all.Largest[0], all.Oldest[0]; most.Queued != (n-128)<<10 || first.Age < n*time.Second {
			t.Errorf("most is %+v, oldest is %+v", most, first)
		}
		for _, c := range all.Oldest {
			if !strings.HasPrefix(c.Local, "127.0.0.1:") || !strings.HasPrefix(c.Remote, "127.0.0.1:") ||
				c.conn != nil {
				t.Fatalf("%+v", c)
			}
		}
	}
}

// A loop visits at most a slice of its table in a poll cycle, even if its mailbox is full.
func TestSurveyIsBoundedPerTurn(t *testing.T) {
	const n = 3*slotsPerCycle + 10
	w, e := simulate(t, n, silent{}, myriad.Config{Loops: 1, Mailbox: 1})
	l := e.Loops()[0]
	for _, full := range []bool{false, true} {
		finished := false
		s := newSurvey(t.Context(), l, 10, func() { finished = true })
		before := e.Stats().Turns
		var counts []int
		var watch func()
		watch = func() {
			if counts = append(counts, s.count); !finished {
				l.Later(watch)
			}
		}
		if err := l.Do(func() {
			l.Later(watch)
			if full {
				_ = l.Do(func() {})
			}
			s.step()
		}); err != nil {
			t.Fatal(err)
		}
		w.RunFor(time.Second)
		if !finished || s.count != n {
			t.Fatalf("mailbox full %v: finished %v with %d conns of %d", full, finished, s.count, n)
		}
		last := 0
		for _, c := range counts {
			if c-last > slotsPerCycle {
				t.Errorf("mailbox full %v: %d conns in one poll cycle", full, c-last)
			}
			last = c
		}
		if turns := e.Stats().Turns - before; turns < n/slotsPerCycle {
			t.Errorf("mailbox full %v: %d turns", full, turns)
		}
	}
}

func TestLoopsThatCannotBeAsked(t *testing.T) {
	_, e := simulate(t, 4, silent{}, myriad.Config{Loops: 2, Mailbox: 1})
	if err := e.Loops()[1].Do(func() {}); err != nil {
		t.Fatal(err)
	}
	if all := survive(t, e, 10); !slices.Equal(all.Missing, []int{1}) || all.Count != 2 {
		t.Errorf("missing %v, %d conns, want those of loop 0", all.Missing, all.Count)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := survive(t, e, 10); !slices.Equal(all.Missing, []int{0, 1}) || all.Count != 0 {
		t.Errorf("after the end: missing %v, %d conns", all.Missing, all.Count)
	}
	answer := httptest.NewRecorder()
	Handler(e).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if text := answer.Body.String(); !strings.Contains(text, "those of loop 1 are missing") {
		t.Errorf("the page does not say that loops are missing:\n%s", text)
	}
}

// A survey whose context has ended does not wait.
func TestSurveyEndsWithItsContext(t *testing.T) {
	w, e := simulate(t, 2*slotsPerCycle, silent{}, myriad.Config{Loops: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := look(ctx, e, 10); err != context.Canceled {
		t.Errorf("%+v, %v", all, err)
	}
	finished := 0
	s := newSurvey(ctx, e.Loops()[0], 10, func() { finished++ })
	_ = e.Loops()[0].Do(s.step)
	w.RunFor(time.Second)
	if finished != 1 || s.count > slotsPerCycle {
		t.Errorf("finished %d times, with %d conns", finished, s.count)
	}
}
