package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
)

// message is a message of ten bytes. The table's letters are their names; a small letter is a key.
type message struct {
	name string
	refs *int
}

func (m message) Len() int { return 10 }

func (m message) Release() { *m.refs-- }

type keyed struct{ message }

func (m keyed) Key() string { return m.name[:1] }

// What each policy does with messages that come one after the other, in a room of 40 bytes.
func TestPut(t *testing.T) {
	for _, row := range []struct {
		policy outbox.Policy
		put    string // messages, in order; "-": the first is sent
		waits  string
		drops  int
		last   outbox.Verdict
	}{
		{outbox.Block, "1", "", 0, outbox.Blocked},
		{outbox.Fail, "1", "", 0, outbox.Refused},
		{outbox.DropNewest, "1 2", "", 2, outbox.Dropped},
		{outbox.Close, "1", "", 0, outbox.Closes},
		{outbox.DropOldest, "1 2 3 4", "1 2 3 4", 0, outbox.Kept},
		{outbox.DropOldest, "1 2 3 4 5 6", "3 4 5 6", 2, outbox.Kept},
		{outbox.DropOldest, "1 2 - 3 4 5 6", "3 4 5 6", 1, outbox.Kept},
		{outbox.Latest, "1", "1", 0, outbox.Kept},
		{outbox.Latest, "1 2 3", "3", 2, outbox.Kept},
		{outbox.Latest, "1 2 - 3", "3", 1, outbox.Kept},
		{outbox.Latest, "a1 b1 a2", "a2 b1", 1, outbox.Kept}, // a keeps its turn
		{outbox.Latest, "a1 b1 a2 - a3", "b1 a3", 1, outbox.Kept},
		{outbox.Latest, "a1 b1 c1 d1 e1 d2", "b1 c1 d2 e1", 2, outbox.Kept}, // the room bounds keys, too
		{outbox.Latest, "1 a1 2", "2 a1", 1, outbox.Kept},
		{outbox.Sample, "1 2 3 4", "1 2 3 4", 0, outbox.Kept},
		{outbox.Sample, "1 2 3 4 5", "1 3 5", 2, outbox.Kept},
		{outbox.Sample, "1 2 3 4 5 6", "1 3 5 6", 2, outbox.Kept},
		{outbox.Sample, "1 2 3 4 5 6 7", "1 3 5 7", 3, outbox.Kept},
		{outbox.Sample, "1 2 3 4 5 6 7 8 9", "1 5 9", 6, outbox.Kept},
		{outbox.Sample, "1 2 3 4 5 6 7 8 9 10 11 12", "1 5 9 12", 8, outbox.Kept},
		{outbox.Sample, "1 2 3 4 5 6 7 8 9 - - - 10 11", "10 11", 6, outbox.Kept}, // anew when all was sent
		{outbox.Policies, "1", "", 0, outbox.Refused},
	} {
		t.Run(fmt.Sprint(row.policy, row.put), func(t *testing.T) {
			var o outbox.Outbox[outbox.Message]
			var counts outbox.Counts
			refs, verdict := 0, outbox.Verdict(0)
			for _, name := range strings.Fields(row.put) {
				if name == "-" {
					o.Sent()
					continue
				}
				refs++
				m := message{name, &refs}
				if name[0] >= 'a' {
					verdict = o.Put(keyed{m}, outbox.Rules{Policy: row.policy, Room: 40, Counts: &counts})
				} else {
					verdict = o.Put(m, outbox.Rules{Policy: row.policy, Room: 40, Counts: &counts})
				}
			}
			if verdict != row.last {
				t.Errorf("verdict %v, want %v", verdict, row.last)
			}
			if refs != o.Len() || o.Bytes() != 10*o.Len() {
				t.Errorf("%d references, %d messages, %d bytes", refs, o.Len(), o.Bytes())
			}
			if n := counts.Dropped.Load(); int(o.Dropped()) != row.drops || n != o.Dropped() ||
				counts.DroppedBytes.Load() != 10*n {
				t.Errorf("dropped %d, counted %d, want %d", o.Dropped(), n, row.drops)
			}
			missed := row.drops > 0 || verdict == outbox.Refused
			if waits := o.Waits(); missed && waits && o.Relieved() {
				t.Error("relieved while messages wait")
			}
			var got []string
			for o.Waits() {
				switch m := o.First().(type) {
				case keyed:
					got = append(got, m.name)
				case message:
					got = append(got, m.name)
				}
				o.Sent()
			}
			if strings.Join(got, " ") != row.waits {
				t.Errorf("waits: %v, want %v", got, row.waits)
			}
			if first, second := o.Relieved(), o.Relieved(); first != missed || second {
				t.Errorf("relieved %v, then %v; want %v, once", first, second, missed)
			}
			if refs != 0 {
				t.Errorf("%d references at the end", refs)
			}
		})
	}
}

// When the policy changes to Latest, several messages may wait that one replaces. None of them
// comes behind it.
func TestLatestBehindAnotherPolicy(t *testing.T) {
	var o outbox.Outbox[message]
	var counts outbox.Counts
	refs := 5
	put := func(name string, p outbox.Policy) {
		o.Put(message{name, &refs}, outbox.Rules{Policy: p, Room: 100, Counts: &counts})
	}
	for _, name := range []string{"1", "2", "3"} {
		put(name, outbox.DropOldest)
	}
	put("4", outbox.Latest)
	if o.Len() != 1 || o.First().name != "4" || o.Bytes() != 10 || o.Dropped() != 3 || refs != 2 ||
		counts.Conflated.Load() != 3 {
		t.Errorf("%d messages wait, %d bytes, the first is %q; %d dropped, %d references, %d conflated", o.Len(),
			o.Bytes(),
			o.First().name, o.Dropped(), refs, counts.Conflated.Load())
	}
}

// A message without a key is not put on the heap to ask it for one.
func TestLatestAllocates(t *testing.T) {
	var o outbox.Outbox[message]
	refs := 0
	put := func() { o.Put(message{"a", &refs}, outbox.Rules{Policy: outbox.Latest, Room: 40}) }
	put()
	if n := testing.AllocsPerRun(100, put); n > 0 {
		t.Errorf("%v allocations for a message", n)
	}
}

// A message that is larger than the room waits by itself.
func TestPutLargerThanRoom(t *testing.T) {
	for _, p := range []outbox.Policy{outbox.DropOldest, outbox.Latest, outbox.Sample} {
		var o outbox.Outbox[message]
		refs := 0
		for i := range 100 {
			refs++
			if v := o.Put(message{fmt.Sprint(i), &refs}, outbox.Rules{Policy: p, Room: 1}); v != outbox.Kept {
				t.Fatalf("%v: verdict %v", p, v)
			}
			if o.Len() != 1 || o.First().name != fmt.Sprint(i) || refs != 1 {
				t.Fatalf("%v: %d wait, the first is %s", p, o.Len(), o.First().name)
			}
		}
		o.End()
		if refs != 0 || o.Waits() || o.Dropped() != 99 {
			t.Errorf("%v: %d references, dropped %d", p, refs, o.Dropped())
		}
	}
}

// Sample keeps messages that are evenly apart, however many have come.
func TestSampleIsEven(t *testing.T) {
	var o outbox.Outbox[message]
	refs := 0
	for i := range 10_000 {
		refs++
		o.Put(message{fmt.Sprint(i), &refs}, outbox.Rules{Policy: outbox.Sample, Room: 1000})
	}
	var got []int
	for o.Waits() {
		var n int
		fmt.Sscan(o.First().name, &n)
		got = append(got, n)
		o.Sent()
	}
	if len(got) < 50 || got[0] != 0 || got[len(got)-1] != 9999 {
		t.Fatalf("%d messages, %v", len(got), got)
	}
	for i := 2; i < len(got)-1; i++ {
		if got[i]-got[i-1] != got[1]-got[0] {
			t.Errorf("message %d comes after %d; the first two are %d apart", got[i], got[i-1], got[1]-got[0])
		}
	}
}

// parker counts its permits. No test parks it.
type parker struct {
	driver.Parker
	unparked int
}

func (p *parker) Unpark() { p.unparked++ }

func TestWake(t *testing.T) {
	var o outbox.Outbox[message]
	a, b := new(parker), new(parker)
	o.Await(a)
	o.Await(b)
	o.Await(b)
	if o.Empty() {
		t.Error("empty while senders wait")
	}
	o.Forget(b)
	o.Forget(new(parker))
	o.Wake()
	o.Wake()
	if a.unparked != 1 || b.unparked != 1 || !o.Empty() {
		t.Errorf("unparked %d and %d times", a.unparked, b.unparked)
	}
	o.Await(a)
	o.End()
	if a.unparked != 2 {
		t.Error("End has not woken a sender")
	}
}

// A nil Outbox is that of a receiver that has never been slow.
func TestNil(t *testing.T) {
	var o *outbox.Outbox[message]
	o.Wake()
	o.End()
	o.Forget(new(parker))
	if o.Waits() || o.Len() != 0 || o.Bytes() != 0 || o.Dropped() != 0 || !o.Empty() || o.Relieved() {
		t.Error("a nil Outbox has something")
	}
}

// direct is the plainest user: its transport is a slice.
type direct struct {
	outbox.Outbox[numbered]
	policy outbox.Policy
	sent   []int
	closed bool
}

type numbered int

func (numbered) Len() int { return 10 }
func (numbered) Release() {}

func TestConformance(t *testing.T) {
	outboxtest.Run(t, outboxtest.Config{Many: 100, Policies: []outbox.Policy{outbox.Fail, outbox.DropNewest,
		outbox.DropOldest, outbox.Latest, outbox.Close, outbox.Sample},
		New: func(_ *testing.T, p outbox.Policy) outboxtest.Receiver { return &direct{policy: p} }})
}

func (d *direct) Offer(n int) outboxtest.Answer {
	if d.closed {
		return outboxtest.Ended
	}
	if !d.Waits() && len(d.sent) < 5 {
		d.sent = append(d.sent, n)
		return outboxtest.Taken
	}
	switch d.Put(numbered(n), outbox.Rules{Policy: d.policy, Room: 50}) {
	case outbox.Refused:
		return outboxtest.Full
	case outbox.Closes:
		d.closed = true
		d.End()
		return outboxtest.Ended
	}
	return outboxtest.Taken
}

func (d *direct) Drain() []int {
	got := slices.Clone(d.sent)
	d.sent = d.sent[:0]
	for d.Waits() {
		got = append(got, int(d.First()))
		d.Sent()
	}
	return got
}

func (d *direct) Missed() uint64 { return d.Dropped() }
func (d *direct) Closed() bool   { return d.closed }
