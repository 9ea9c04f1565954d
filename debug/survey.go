package debug

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
)

// slotsPerCycle is how many slots of its table a loop visits in a poll cycle. That takes tens of
// microseconds.
const slotsPerCycle = 512

// connections describes the connections of all loops. It may lack connections that opened or closed
// meanwhile.
type connections struct {
	Count   int
	Queued  int64
	States  map[string]int
	Largest []connection // by queued bytes; only connections with queued bytes
	Oldest  []connection
	Missing []int `json:",omitempty"` // loops that could not be asked: their mailbox is full, or they have ended
}

// A connection is one line of the page.
type connection struct {
	Loop   int
	State  string
	Age    time.Duration
	Queued int
	Local  string
	Remote string

	conn *myriad.Conn
}

// look collects the conns of all loops, and keeps the `shown` largest and oldest. It fails if ctx
// ends before the loops have answered.
func look(ctx context.Context, e *myriad.Engine, shown int) (*connections, error) {
	all := &connections{States: map[string]int{}}
	done := e.System().NewParker()
	var left atomic.Int64
	left.Store(1)
	finish := func() {
		if left.Add(-1) == 0 {
			done.Unpark()
		}
	}
	var surveys []*survey
	for _, l := range e.Loops() {
		s := newSurvey(ctx, l, shown, finish)
		left.Add(1)
		if l.Do(s.step) != nil {
			all.Missing = append(all.Missing, l.Index())
			finish()
			continue
		}
		surveys = append(surveys, s)
	}
	finish()
	stop := context.AfterFunc(ctx, done.Unpark)
	defer stop()
	for left.Load() > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		done.Park()
	}
	if err := ctx.Err(); err != nil {
		return nil, err // a survey may be incomplete
	}
	for _, s := range surveys {
		all.add(s)
	}
	all.Largest = first(all.Largest, shown, moreQueued)
	all.Oldest = first(all.Oldest, shown, older)
	return all, nil
}

func (all *connections) add(s *survey) {
	all.Count += s.count
	all.Queued += s.queued
	for state, n := range s.states {
		all.States[state] += n
	}
	all.Largest = append(all.Largest, s.largest.rows...)
	all.Oldest = append(all.Oldest, s.oldest.rows...)
}

// first returns the first n rows in an order. It also fills in their addresses, which take too long
// to format on a loop.
func first(rows []connection, n int, order func(a, b *connection) int) []connection {
	slices.SortStableFunc(rows, func(a, b connection) int { return order(&a, &b) })
	rows = rows[:min(len(rows), n)]
	for i := range rows {
		r := &rows[i]
		r.Local, r.Remote, r.conn = r.conn.LocalAddr().String(), r.conn.RemoteAddr().String(), nil
	}
	return rows
}

func moreQueued(a, b *connection) int { return cmp.Compare(b.Queued, a.Queued) }

func older(a, b *connection) int { return cmp.Compare(b.Age, a.Age) }

// A survey is the state of one loop's count. The loop owns it until finish is called.
type survey struct {
	ctx    context.Context
	loop   *myriad.Loop
	finish func()
	from   int // the next slot in the loop's table

	count           int
	queued          int64
	states          map[string]int
	largest, oldest top
}

func newSurvey(ctx context.Context, l *myriad.Loop, shown int, finish func()) *survey {
	return &survey{
		ctx: ctx, loop: l, finish: finish, states: map[string]int{},
		largest: top{n: shown, order: moreQueued}, oldest: top{n: shown, order: older},
	}
}

// step visits a slice of the table, and schedules the next slice for the next poll cycle.
func (s *survey) step() {
	s.from = s.loop.Conns(s.from, slotsPerCycle, s.visit)
	if s.from == 0 || s.ctx.Err() != nil {
		s.finish()
		return
	}
	s.goOn()
}

// goOn retries after each poll cycle in which the mailbox is full. A loop with a full mailbox does
// not end meanwhile.
func (s *survey) goOn() {
	if errors.Is(s.loop.Do(s.step), myriad.ErrBusy) {
		s.loop.Later(s.goOn)
	}
}

func (s *survey) visit(c *myriad.Conn) {
	row := connection{Loop: s.loop.Index(), State: c.State(), Age: c.Age(), Queued: c.Queued(), conn: c}
	s.count++
	s.queued += int64(row.Queued)
	s.states[row.State]++
	if row.Queued > 0 {
		s.largest.offer(&row)
	}
	s.oldest.offer(&row)
}

// top keeps the first n rows in an order. The last of them is the root of a heap.
type top struct {
	n     int
	order func(a, b *connection) int
	rows  []connection
}

func (t *top) offer(row *connection) {
	switch {
	case len(t.rows) < t.n:
		t.rows = append(t.rows, *row)
		heap.Fix(t, len(t.rows)-1)
	case t.order(row, &t.rows[0]) < 0:
		t.rows[0] = *row
		heap.Fix(t, 0)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface; only Fix is used.
func (t *top) Len() int           { return len(t.rows) }
func (t *top) Less(i, j int) bool { return t.order(&t.rows[i], &t.rows[j]) > 0 }
func (t *top) Swap(i, j int)      { t.rows[i], t.rows[j] = t.rows[j], t.rows[i] }
func (t *top) Push(x any)         { t.rows = append(t.rows, x.(connection)) }
func (t *top) Pop() any           { panic("debug: a top is only fixed") }
