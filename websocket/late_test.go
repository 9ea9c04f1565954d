package websocket

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// sendNumbered sends messages to the group until upTo, and returns what a member reads of all.
func (a *audience) sendNumbered(from, upTo, size int) (want []string) {
	a.t.Helper()
	for i := range upTo {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", size))
		if i >= from {
			if err := a.group.Send(OpText, []byte(text)); err != nil {
				a.t.Fatal(err)
			}
		}
		want = append(want, line(OpText, text))
	}
	return want
}

// A member without room waits in the group's log, gets everything when it reads on, and leaves no
// memory behind. The others do not wait for it.
func TestLateMemberCatchesUp(t *testing.T) {
	before := buf.InUse()
	a := newAudienceIn(t, 5, sim.Calm(), 20, &Options{WriteLimit: 4 << 10})
	a.clients[7].StopReading()
	want := a.sendNumbered(0, 400, 1000)
	a.Settle()
	all := slices.Collect(a.group.All())
	for c, m := range a.members {
		if m.Conn() != c || !slices.Contains(all, c) || len(all) != a.group.Len() {
			t.Errorf("All has %d connections of %d members, or others", len(all), a.group.Len())
		}
	}
	for i, c := range a.clients {
		if got := c.lines(t); i != 7 && !slices.Equal(got, want) {
			t.Errorf("client %d read %d messages while one did not", i, len(got))
		}
	}
	a.clients[7].Resume()
	a.Settle()
	want = append(want, a.sendNumbered(400, 402, 1000)[400:]...)
	a.Settle()
	for i, c := range a.clients {
		if got := c.lines(t); !slices.Equal(got, want) {
			t.Errorf("client %d read %d messages of %d", i, len(got), len(want))
		}
	}
	if got := buf.InUse() - before; got != 0 || a.group.Len() != 20 {
		t.Errorf("%d blocks are in use when all is sent, %d members are left", got, a.group.Len())
	}
	a.leave()
}

// A member that never reads is removed after WriteTimeout, by OnFull or by a close frame, and the
// log is released.
func TestLateMemberIsRemoved(t *testing.T) {
	for _, told := range []bool{true, false} {
		a := newAudienceIn(t, 5, sim.Calm(), 20, &Options{WriteLimit: 4 << 10, WriteTimeout: 3 * time.Second,
			CloseTimeout: time.Second})
		var slow []*Conn
		if told {
			a.group.OnFull = func(c *Conn) { slow = append(slow, c) }
		}
		a.clients[7].StopReading()
		a.sendNumbered(0, 400, 1000)
		a.RunFor(2900 * time.Millisecond)
		if a.group.Len() != 20 || a.kept() == 0 {
			t.Errorf("before WriteTimeout: %d members, %d messages are kept", a.group.Len(), a.kept())
		}
		a.RunFor(200 * time.Millisecond)
		if a.group.Len() != 19 || a.kept() != 0 || told != (len(slow) == 1) {
			t.Errorf("after WriteTimeout: %d members, %d messages are kept, OnFull was called %d times", a.group.Len(),
				a.kept(), len(slow))
		}
		a.clients[7].Resume()
		a.RunFor(time.Second)
		got := a.clients[7].lines(t)
		if last := got[len(got)-1]; told == strings.HasPrefix(last, "close") {
			t.Errorf("OnFull is set: %v; the last frame is %.60q", told, last)
		}
		a.leave()
	}
}

// kept is how many messages are in the logs of the group.
func (a *audience) kept() (n int) {
	for _, p := range a.group.all() {
		p.mu.Lock()
		n += int(p.log.Next() - p.log.Oldest())
		p.mu.Unlock()
	}
	return n
}

// A connection that closes while it is late, or leaves, releases the log.
func TestLateMemberLeaves(t *testing.T) {
	for name, leave := range map[string]func(a *audience, c *Conn){
		"Abort": func(_ *audience, c *Conn) { c.Abort(nil) },
		"Leave": func(a *audience, c *Conn) { a.members[c].Leave() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudienceIn(t, 5, sim.Calm(), 3, &Options{WriteLimit: 4 << 10})
			a.clients[0].StopReading()
			a.sendNumbered(0, 400, 1000)
			a.Settle()
			for c := range a.members {
				if len(a.lateOf(c)) > 0 {
					leave(a, c)
				}
			}
			a.Settle()
			if a.group.Len() != 2 || a.kept() != 0 {
				t.Errorf("%d members, %d messages are kept", a.group.Len(), a.kept())
			}
			a.clients[0].Resume()
			a.leave()
		})
	}
}

func (a *audience) lateOf(c *Conn) []*Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold == nil {
		return nil
	}
	return c.cold.late.members
}

// The log is bounded: a member that keeps it full without reading is removed before WriteTimeout,
// so that senders go on.
func TestLogIsBounded(t *testing.T) {
	const size = 256 << 10
	a := newAudienceIn(t, 5, sim.Calm(), 3, &Options{WriteLimit: 4 << 10, WriteTimeout: -1})
	a.clients[2].StopReading()
	began := a.Now()
	for i := range 5 * maxLogBytes / 4 / size {
		must(t, a.group.Send(OpBinary, make([]byte, size)))
		if got := a.mostKept(); got > maxLogBytes+size {
			t.Fatalf("the log has %d bytes, the limit is %d", got, maxLogBytes)
		}
		if i == maxLogBytes/size/2 && a.group.Len() != 3 {
			t.Errorf("%d members are left while the log is half full", a.group.Len())
		}
	}
	a.Settle()
	if a.group.Len() != 2 || a.kept() != 0 {
		t.Errorf("%d members are left, %d messages are kept", a.group.Len(), a.kept())
	}
	if waited := a.Now().Sub(began); waited > 2*patience {
		t.Errorf("senders have waited for %v for a member that does not read", waited)
	}
	a.clients[2].Resume()
	a.leave()
}

func (a *audience) mostKept() (most int) {
	for _, p := range a.group.all() {
		p.mu.Lock()
		most = max(most, p.log.Bytes())
		p.mu.Unlock()
	}
	return most
}

// A callback that runs inline on the loop cannot wait: what it sends still reaches every reader,
// and is bounded.
func TestGroupSendInline(t *testing.T) {
	a := newAudience(t, 5, 8, &Options{Dispatch: web.DispatchInline, WriteLimit: 16 << 10})
	var want []string
	must(t, a.e.Loops()[0].Do(func() { want = a.sendNumbered(0, 3*maxTick, 500) }))
	a.Settle()
	for i, c := range a.clients {
		if got := c.lines(t); !slices.Equal(got, want) {
			t.Errorf("client %d read %d messages of %d", i, len(got), len(want))
		}
	}
	a.leave()
}

// Connections that have closed are in no group any more, although nothing is sent to it.
func TestClosedMembersLeave(t *testing.T) {
	a := newAudience(t, 3, 10, &Options{})
	for range 20 {
		var crowd []*client
		for range 20 {
			crowd = append(crowd, a.client(sampleRequest))
		}
		a.Run()
		for _, c := range crowd {
			c.Close()
		}
		a.Run()
	}
	if got := a.group.Len(); got != 10 {
		t.Errorf("%d members, of which 10 are open", got)
	}
	if got := len(slices.Collect(a.group.All())); got != 10 {
		t.Errorf("All has %d connections, want those that are open", got)
	}
	a.leave()
}

// SendExcept leaves some out, and All has all.
func TestGroupSendExceptAndAll(t *testing.T) {
	a := newAudience(t, 3, 3*groupSlice, &Options{})
	all := slices.Collect(a.group.All())
	if len(all) != len(a.clients) {
		t.Fatalf("All has %d connections, want %d", len(all), len(a.clients))
	}
	for c := range a.group.All() {
		if a.members[c] == nil {
			t.Fatal("All has a connection that is no member")
		}
		break
	}
	for _, c := range all {
		must(t, c.Write(OpText, []byte("who?")))
	}
	except := []*Conn{all[3], all[50]}
	must(t, a.group.SendExcept(OpText, []byte("most"), except...))
	except[0] = nil // it is the caller's
	must(t, a.group.Send(OpText, []byte("all")))
	a.Run()
	missed := 0
	for i, c := range a.clients {
		switch got := c.lines(t); {
		case slices.Equal(got, lines(`text "who?"`, `text "most"`, `text "all"`)):
		case slices.Equal(got, lines(`text "who?"`, `text "all"`)):
			missed++
		default:
			t.Errorf("client %d read %q", i, got)
		}
	}
	if missed != 2 || a.group.Taken() != uint64(2*len(all)-2) {
		t.Errorf("%d were left out of 2, %d messages are said to be taken", missed, a.group.Taken())
	}
	a.leave()
}

// Close comes behind all messages, for members that wait too. One that does not read is closed with
// the same code.
func TestGroupClose(t *testing.T) {
	a := newAudienceIn(t, 3, sim.Calm(), groupSlice/4, &Options{WriteLimit: 4 << 10, WriteTimeout: time.Second,
		CloseTimeout: 10 * time.Second})
	a.group.OnFull = func(*Conn) { t.Error("OnFull was called for a member that Close closes") }
	a.clients[0].StopReading()
	a.clients[1].StopReading()
	if err := a.group.Close(1005+1, ""); err == nil {
		t.Error("Close took a code that may not be sent")
	}
	want := append(a.sendNumbered(0, 300, 1000), line(OpClose, closeWith(StatusGoingAway, "bye")))
	must(t, a.group.Close(StatusGoingAway, "bye"))
	a.RunFor(500 * time.Millisecond)
	if got := a.group.Len(); got != 2 {
		t.Errorf("%d members are left, want the two that do not read", got)
	}
	a.clients[1].Resume()
	a.RunFor(time.Second)
	a.clients[0].Resume()
	a.RunFor(time.Second)
	for i, c := range a.clients {
		got := c.lines(t)
		if i == 0 && got[len(got)-1] == want[len(want)-1] && len(got) < len(want) {
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("client %d read %d messages of %d, the last is %.60q", i, len(got), len(want), got[len(got)-1])
		}
	}
	if got := a.group.Len(); got != 0 {
		t.Errorf("%d members are left", got)
	}
	a.leave()
}

// A member that reads, however slowly, keeps its place: WriteTimeout begins anew with each room.
func TestLateMemberThatReadsStays(t *testing.T) {
	a := newAudienceIn(t, 9, sim.Calm(), 2, &Options{WriteLimit: 4 << 10, WriteTimeout: time.Second})
	a.clients[0].StopReading()
	want := a.sendNumbered(0, 1000, 1000)
	for range 40 {
		a.RunFor(500 * time.Millisecond)
		a.clients[0].Resume()
		a.RunFor(time.Millisecond)
		a.clients[0].StopReading()
	}
	a.clients[0].Resume()
	a.Settle()
	for i, c := range a.clients {
		if got := c.lines(t); !slices.Equal(got, want) {
			t.Errorf("client %d read %d messages of %d", i, len(got), len(want))
		}
	}
	a.leave()
}

// A sender that waits goes on when the loop is held up by a callback that waits for the sender.
func TestSendDoesNotWaitForALoopThatIsHeldUp(t *testing.T) {
	b := newBurst(t, 4, &Options{Overflow: OverflowFail, WriteLimit: 4 << 10})
	loop := b.conns[0].conn().Loop()
	held, free := make(chan bool), make(chan bool)
	must(t, loop.Do(func() { held <- true; <-free }))
	<-held
	const n, size = 3 * maxTick, 100 // the kernel has room for all
	done := b.readAll(n, size)
	for i := range n {
		must(t, b.group.Send(OpBinary, burstPayload(i, size)))
	}
	close(free)
	done()
	b.wantAllOpen()
}

// A full mailbox has the caller do the loop's work. Members that have no room then are flushed
// before their policy applies.
func TestGroupWithFullMailbox(t *testing.T) {
	for _, policy := range []Overflow{OverflowBlock, OverflowFail, OverflowClose, OverflowDropOldest} {
		t.Run(policy.String(), func(t *testing.T) {
			b := newBurstIn(t, myriad.Config{Loops: 1, Mailbox: 1}, 4, &Options{Overflow: policy, WriteLimit: 16 << 10})
			loop := b.conns[0].conn().Loop()
			held, free := make(chan bool), make(chan bool)
			must(t, loop.Do(func() { held <- true; <-free }))
			<-held
			for loop.Do(func() {}) == nil {
			}
			const n = 50
			done := b.readAll(n, 1000)
			for i := range n {
				must(t, b.group.Send(OpBinary, burstPayload(i, 1000)))
			}
			close(free)
			done()
			b.wantAllOpen()
		})
	}
}

// A group outlives its engine: Send returns, and keeps nothing.
func TestGroupAfterShutdown(t *testing.T) {
	a := newAudience(t, 3, 5, &Options{})
	a.leave()
	a.sendNumbered(0, 3*maxTick, 100)
	if a.group.Len() != 0 || a.kept() != 0 {
		t.Errorf("%d members, %d messages are kept", a.group.Len(), a.kept())
	}
}

// The logs of all groups of an engine are bounded together.
func TestLogsAreBoundedTogether(t *testing.T) {
	const size = 64 << 10
	a := newAudienceIn(t, 5, sim.Calm(), 5, &Options{WriteLimit: 4 << 10, WriteTimeout: -1})
	a.clients[2].StopReading()
	others := a.group.all()[0].log.Total // what other groups keep
	others.Add(maxLogsBytes)
	for range 4 * maxTickBytes / size {
		must(t, a.group.Send(OpBinary, make([]byte, size)))
		if got := a.mostKept(); got > maxTickBytes+size {
			t.Fatalf("the log has %d bytes, where %d are allowed", got, maxTickBytes)
		}
	}
	a.Settle()
	if a.group.Len() != 4 || a.kept() != 0 {
		t.Errorf("%d members are left, %d messages are kept", a.group.Len(), a.kept())
	}
	if got := others.Add(-maxLogsBytes); got != 0 {
		t.Errorf("%d bytes are counted at the end", got)
	}
	a.clients[2].Resume()
	a.leave()
}

// A sender that waits for the loop goes on when the last member has left.
func TestLeaveLetsSendersGo(t *testing.T) {
	a := newAudienceIn(t, 1, sim.Calm(), 1, &Options{})
	for c, m := range a.members {
		held := a.NewParker()
		must(t, c.conn().Loop().Do(held.Park))
		a.RunFor(time.Millisecond)
		sent := 0
		a.Go(func() {
			for ; sent <= maxTick; sent++ {
				noError(t, a.group.Send(OpText, []byte("x")))
			}
		})
		a.RunFor(time.Millisecond)
		if sent != maxTick {
			t.Fatalf("a sender has sent %d messages to a loop that is held up, want %d", sent, maxTick)
		}
		m.Leave()
		a.RunFor(time.Millisecond)
		if sent != maxTick+1 {
			t.Error("a sender waits for a member that has left")
		}
		held.Unpark()
	}
	a.leave()
}
