package myriad

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// newQuota is of an engine whose loop does not run: what is posted to it waits in its mailbox.
func newQuota(most int64) (*quota, *Loop) {
	e := &Engine{admission: admission{quota: quota{most: most}}}
	return &e.admission.quota, assemble(&Loop{engine: e})
}

// claimOf is the claim of a listener that the loop has.
func claimOf(l *Loop) *claim {
	ln := &Listener{loop: l}
	return &claim{loop: l, granted: func() bool { return l.Post(ln.roomReserved) }}
}

func posted(l *Loop) int {
	n := len(l.mail.funcs)
	l.mail.funcs = nil
	return n
}

// Room is given to the longest waiting one, also if it came up just before that one queued.
func TestQuota(t *testing.T) {
	q, l := newQuota(2)
	first, second := claimOf(l), claimOf(l)
	for i, want := range []bool{true, true, false} {
		if q.reserve() != want {
			t.Fatalf("take %d of a quota of two: not %v", i, want)
		}
	}
	q.release() // after the listener has looked, and before it queues
	q.queueUp(first)
	if posted(l) != 1 || q.open.Load() != 2 {
		t.Error("room that was there is not given to who comes to wait")
	}
	q.queueUp(first)
	q.queueUp(second)
	if posted(l) != 0 {
		t.Error("room was given where there is none")
	}
	q.leave(first)
	q.release()
	if posted(l) != 1 || q.open.Load() != 2 || q.waiting.Load() != 0 {
		t.Errorf("after a listener has left the queue: %d open, %d wait", q.open.Load(), q.waiting.Load())
	}
	q.release()
	q.release()
	if q.open.Load() != 0 {
		t.Errorf("%d are open in the end", q.open.Load())
	}
}

// Room for a listener whose loop has ended goes to the next one.
func TestQuotaOfEndedLoop(t *testing.T) {
	q, l := newQuota(1)
	ended := assemble(&Loop{engine: l.engine})
	ended.mail.closed = true
	q.reserve()
	q.queueUp(claimOf(ended))
	q.queueUp(claimOf(l))
	q.release()
	if posted(l) != 1 || q.open.Load() != 1 {
		t.Errorf("the second listener was not given room; %d are open", q.open.Load())
	}
}

// Room that comes when the peer has been dropped is given back.
func TestRoomForNobody(t *testing.T) {
	q, l := newQuota(1)
	q.reserve()
	(&Listener{loop: l}).roomReserved()
	if q.open.Load() != 0 {
		t.Error("room is lost")
	}
}

// A pace gives times one interval apart, and after a quiet time no more than the burst at once.
func TestPace(t *testing.T) {
	p := pace{interval: int64(10 * time.Millisecond)}
	for now, want := range []int64{0, 9, 18, 27} { // the clock goes on by one, the time given by ten
		if wait := p.delay(int64(now)); wait != want {
			t.Errorf("at %d ms: wait %d ms, want %d", now, wait, want)
		}
	}
	const later = 3_600_000
	atOnce := 0
	for p.delay(later) == 0 {
		atOnce++
	}
	if atOnce != 6 { // 50 ms worth, and the one that is due now
		t.Errorf("%d at once after an hour", atOnce)
	}
	for none := (&pace{}); atOnce > 0; atOnce-- {
		if none.delay(0) != 0 {
			t.Error("a pace without a limit has somebody wait")
		}
	}
}

// A notice is due at once, and then once a period with what has come meanwhile.
func TestNotice(t *testing.T) {
	var n notice
	period := noticePeriod.Milliseconds()
	for _, tc := range []struct {
		now  int64
		want uint64
	}{{5, 1}, {6, 0}, {period, 0}, {period + 5, 3}, {period + 6, 0}} {
		if got := n.due(tc.now); got != tc.want {
			t.Errorf("at %d: %d to log, want %d", tc.now, got, tc.want)
		}
	}
}

func TestConnsWithin(t *testing.T) {
	for files, want := range map[uint64]int{1: 1, 8: 7, 256: 224, 1024: 960, 1 << 20: 1<<20 - filesForOthers,
		1<<64 - 1: int(^uint(0) >> 1)} {
		if got := connsWithin(files); got != want {
			t.Errorf("%d descriptors: MaxConns %d, want %d", files, got, want)
		}
	}
}

// A MaxConns that the descriptors are not enough for is taken, and said. The default is not.
func TestTooManyConnsWarn(t *testing.T) {
	files, limited := driver.FileLimit()
	for _, tc := range []struct {
		most int
		warn bool
	}{{0, false}, {connsWithin(files), false}, {connsWithin(files) + 1, limited}} {
		var log bytes.Buffer
		c, err := Config{MaxConns: tc.most, Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
		if err != nil || (tc.most > 0 && c.MaxConns != tc.most) {
			t.Errorf("MaxConns %d became %d, %v", tc.most, c.MaxConns, err)
		}
		if got := strings.Contains(log.String(), "ulimit -n"); got != tc.warn {
			t.Errorf("MaxConns %d of %d descriptors: warned %v, want %v: %s", tc.most, files, got, tc.warn, &log)
		}
	}
}
