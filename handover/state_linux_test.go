package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// A river is a State of numbers that are made while they are written and checked while they are
// read, so it takes no memory. Both sides count in flow how many bytes are under way.
type river struct {
	numbers int
	flow    *flow
	breaks  func(at int) error // before that number is written, or read; nil: never
	leaves  int                // numbers that Thaw does not read
	wentOn  bool
	thawed  int
}

// A flow is what a writer is ahead of a reader, in bytes.
type flow struct{ now, most atomic.Int64 }

func (f *flow) add(n int) {
	now := f.now.Add(int64(n))
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
}

func (r *river) Formats() []string { return []string{"river/1"} }

func (r *river) Freeze(w io.Writer) error {
	for i := range r.numbers {
		if r.breaks != nil {
			if err := r.breaks(i); err != nil {
				return err
			}
		}
		if _, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(i))); err != nil {
			return fmt.Errorf("at %d of %d: %w", i, r.numbers, err)
		}
		r.flow.add(8)
	}
	return nil
}

func (r *river) Thaw(_ string, from io.Reader) error {
	for i := 0; r.leaves == 0 || i < r.numbers-r.leaves; i++ {
		if r.breaks != nil {
			if err := r.breaks(i); err != nil {
				return err
			}
		}
		var p [8]byte
		if _, err := io.ReadFull(from, p[:]); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("at %d: %w", i, err)
		}
		r.flow.add(-8)
		if got := binary.BigEndian.Uint64(p[:]); got != uint64(i) {
			return fmt.Errorf("number %d is %d", i, got)
		}
		r.thawed++
	}
	return nil
}

func (r *river) GoOn()  { r.wentOn = true }
func (r *river) Moved() {}

// newRivers are two programs, each with a river of that many numbers.
func newRivers(t *testing.T, numbers int) (old, next *shop, from, to *river) {
	t.Helper()
	old, next = newShop(t, "old", ""), newShop(t, "new", "")
	both := new(flow)
	from, to = &river{numbers: numbers, flow: both}, &river{numbers: numbers, flow: both}
	// By its name it is between two others.
	old.States = map[string]State{"a": &note{text: ""}, "b": from, "c": &note{text: "after"}}
	next.States = map[string]State{"a": &note{text: "left"}, "b": to, "c": &note{}}
	return old, next, from, to
}

// maxAhead is what may be under way between two processes: some pieces, and what the kernel queues.
const maxAhead = 4 << 20

// A state of any size goes over, and little of it is in memory. At full size it is larger than what
// a process could have as one slice on a machine with 2 GiB.
func TestStateIsAStream(t *testing.T) {
	for _, piece := range []int{0, 1000} {
		numbers := soak.Size(t, 2<<20, 200<<20)
		if piece != 0 {
			numbers = 100_000
		}
		old, next, from, to := newRivers(t, numbers)
		old.piece = piece
		a, b := ends(t)
		done := old.gives(a)
		taken, err := Take(b, next.Program)
		if err != nil {
			t.Fatal(err)
		}
		if err := taken.GoOn(); err != nil {
			t.Fatal(err)
		}
		if r := <-done; r.err != nil {
			t.Fatal(r.err)
		}
		if to.thawed != numbers || !to.wentOn || from.wentOn {
			t.Errorf("%d of %d numbers, the new one goes on: %v, the old one: %v", to.thawed, numbers, to.wentOn,
				from.wentOn)
		}
		if most := from.flow.most.Load(); most > maxAhead {
			t.Errorf("%d bytes were under way, at most %d may be", most, maxAhead)
		}
		if texts := [2]string{next.States["a"].(*note).text, next.States["c"].(*note).text}; texts != [2]string{"",
			"after"} {
			t.Errorf("the other states are %q", texts)
		}
	}
}

// What Thaw leaves unread is thrown away: the next state begins with its own first byte.
func TestStateIsReadInPart(t *testing.T) {
	for _, leaves := range []int{1, 10_000, 299_999} {
		old, next, _, to := newRivers(t, 300_000)
		to.leaves = leaves
		a, b := ends(t)
		done := old.gives(a)
		taken, err := Take(b, next.Program)
		if err != nil {
			t.Fatal(err)
		}
		if err := taken.GoOn(); err != nil {
			t.Fatal(err)
		}
		if r := <-done; r.err != nil || to.thawed != 300_000-leaves || next.States["c"].(*note).text != "after" {
			t.Errorf("%v, %d numbers were read, the next state is %q", r.err, to.thawed, next.States["c"].(*note).text)
		}
	}
}

// If a stream breaks off in its middle, the old process goes on with all states, and both sides
// know why.
func TestStateBreaksOff(t *testing.T) {
	const numbers, middle = 1 << 20, 1 << 19
	wrong := errors.New("the state is wrong")
	for name, tt := range map[string]struct {
		old, new         func(at int) error
		wantOld, wantNew string
	}{
		"the old one fails": {old: func(at int) error { return failsAt(at, middle, wrong) },
			wantOld: `freeze the state "b": the state is wrong`,
			wantNew: `refuses: handover: freeze the state "b": the state is wrong`},
		"the new one refuses": {new: func(at int) error { return failsAt(at, middle, wrong) },
			wantOld: `refuses: handover: thaw the state "b": the state is wrong`,
			wantNew: `thaw the state "b": the state is wrong`},
		"the new one refuses at once": {new: func(int) error { return wrong },
			wantOld: `refuses: handover: thaw the state "b": the state is wrong`,
			wantNew: `thaw the state "b": the state is wrong`},
	} {
		t.Run(name, func(t *testing.T) {
			old, next, from, to := newRivers(t, numbers)
			from.breaks, to.breaks = tt.old, tt.new
			a, b := ends(t)
			done := old.gives(a)
			taken, err := Take(b, next.Program)
			if taken != nil || err == nil || !strings.Contains(err.Error(), tt.wantNew) {
				t.Errorf("the new one: %v", err)
			}
			if r := <-done; r.err == nil || !strings.Contains(r.err.Error(), tt.wantOld) {
				t.Errorf("the old one: %v", r.err)
			}
			if n := old.States["a"].(*note); !n.here || next.States["a"].(*note).here {
				t.Errorf("the state before it: %v", n.calls)
			}
			if from.wentOn || to.wentOn {
				t.Error("GoOn was called for a state that has failed")
			}
		})
	}
}

func failsAt(at, when int, err error) error {
	if at == when {
		return err
	}
	return nil
}

// A process that is killed while the state comes, and one that stands still, are noticed.
func TestStateAndNoReader(t *testing.T) {
	for _, dies := range []bool{true, false} {
		old, next, from, to := newRivers(t, 1<<20)
		if !dies {
			old.Timeout = 100 * time.Millisecond
		}
		a, b := ends(t)
		stands := make(chan struct{})
		to.breaks = func(at int) error {
			if at == 1000 {
				if dies {
					_ = b.Close()
				} else {
					<-stands
				}
			}
			return nil
		}
		done := old.gives(a)
		took := make(chan error, 1)
		go func() {
			_, err := Take(b, next.Program)
			took <- err
		}()
		if r := <-done; r.err == nil {
			t.Error("Give has not failed")
		}
		close(stands)
		if err := <-took; err == nil || from.wentOn || !old.States["a"].(*note).here {
			t.Errorf("the new one: %v; the old one's other state: %v", err, old.States["a"].(*note).calls)
		}
	}
}

// Timeout is for each piece: a state may take longer as long as it goes on.
func TestStateTakesItsTime(t *testing.T) {
	for _, tt := range []struct {
		pause time.Duration
		ok    bool
	}{{9 * time.Second, true}, {11 * time.Second, false}} {
		w := newWorld(t, 1, sim.Lossless(), 3, 20)
		parker := w.NewParker()
		slow := &river{numbers: 5, flow: new(flow), breaks: func(int) error { parker.ParkFor(tt.pause); return nil }}
		fast := &river{flow: new(flow)}
		part := func(p *process, s State) *Program {
			return &Program{Engine: p.engine, Servers: map[string]myriad.Thawer{"echo": p.server},
				States: map[string]State{"river": s}, piece: 8}
		}
		w.new.run(func(ch channel) error {
			taken, err := take(ch, part(w.new, fast))
			if err != nil {
				return err
			}
			return taken.GoOn()
		}, -1, 0)
		w.old.run(func(ch channel) error { _, err := give(ch, part(w.old, slow)); return err }, -1, 0)
		w.RunUntil(func() bool { return w.old.done && w.new.done })
		if (w.old.err == nil) != tt.ok || (w.new.err == nil) != tt.ok {
			t.Errorf("with %v before each piece: %v, %v", tt.pause, w.old.err, w.new.err)
		}
		w.old.state.here, w.new.state.here = !tt.ok, tt.ok // it takes no part
		w.new.state.text = w.old.state.text
		w.settle()
	}
}

// A state needs no more of its process than one piece, whatever the message says.
func TestStatePieceIsBounded(t *testing.T) {
	old, next, _, _ := newRivers(t, 10)
	a, b := ends(t)
	took := make(chan error, 1)
	go func() {
		_, err := Take(b, next.Program)
		took <- err
	}()
	ch, err := open(a, old.Program)
	if err != nil {
		t.Fatal(err)
	}
	g := &giver{Program: old.Program, ch: ch}
	if err := g.agree(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write(binary.BigEndian.AppendUint32(nil, maxPiece+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte{byte(state), 0, 0}); err != nil {
		t.Fatal(err)
	}
	if err := <-took; !errors.Is(err, ErrProtocol) {
		t.Errorf("%v", err)
	}
	ch.close()
}
