package websocket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/web"
)

// audience is clients whose connections join a group as soon as they are open.
type audience struct {
	*world
	group   Group
	clients []*client
	members map[*Conn]*Member
}

func newAudience(t *testing.T, seed uint64, n int, o *Options) *audience {
	t.Helper()
	return newAudienceIn(t, seed, sim.Lossless(), n, o)
}

func newAudienceIn(t *testing.T, seed uint64, faults sim.Options, n int, o *Options) *audience {
	t.Helper()
	a := &audience{members: map[*Conn]*Member{}}
	var mu sync.Mutex
	o.PingInterval = quiet
	o.OnOpen = func(c *Conn) {
		m, err := a.group.Join(c)
		noError(t, err)
		mu.Lock()
		defer mu.Unlock()
		a.members[c] = m
	}
	a.world = newWorld(t, seed, faults, myriad.Config{}, Handler(o))
	for range n {
		a.clients = append(a.clients, a.client(sampleRequest))
	}
	a.Run()
	if got := a.group.Len(); got != n {
		t.Fatalf("%d members, want %d", got, n)
	}
	return a
}

func (a *audience) leave() {
	a.finish(a.clients...)
}

// All messages, in order, for everybody, and no memory afterwards; more members than one slice of a
// pass has.
func TestGroupReachesEverybody(t *testing.T) {
	before := buf.InUse()
	a := newAudience(t, 3, 2*groupSlice+100, &Options{})
	var want []string
	for i := range 40 {
		text := fmt.Sprint("message ", i)
		must(t, a.group.Send(OpText, []byte(text)))
		want = append(want, line(OpText, text))
		if i%16 == 0 {
			a.Settle()
		}
	}
	a.Run()
	for i, c := range a.clients {
		if got := c.lines(t); !slices.Equal(got, want) {
			t.Fatalf("client %d read %d messages: %.200q", i, len(got), got)
		}
	}
	if got := a.group.Taken(); got != uint64(len(a.clients)*len(want)) {
		t.Errorf("%d messages are said to be taken", got)
	}
	if got := buf.InUse() - before; got != 0 {
		t.Errorf("%d blocks in use when all is sent", got)
	}
	a.leave()
	if a.group.SendPrepared(mustPrepare(t, "to nobody")); a.group.Len() != 0 {
		t.Errorf("%d members behind the end of the engine", a.group.Len())
	}
	for _, m := range a.members {
		m.Leave()
		m.Leave()
	}
}

func mustPrepare(t *testing.T, text string) *Prepared {
	t.Helper()
	m, err := Prepare(OpText, []byte(text))
	must(t, err)
	t.Cleanup(m.Release)
	return m
}

// What is broadcast while the loop does other things leaves in one write for each connection, from
// however many groups.
func TestGroupCorksATick(t *testing.T) {
	e := startEngine(t, myriad.Config{Loops: 1})
	var groups [3]Group
	joined := make(chan bool, 8)
	o := &Options{Workers: startPool(t), OnOpen: func(c *Conn) {
		for i := range groups {
			if _, err := groups[i].Join(c); err != nil {
				t.Error(err)
			}
		}
		joined <- true
	}}
	addr := listen(t, e, Handler(o))
	var peers []*rawPeer
	for range 8 {
		peers = append(peers, dialRaw(t, addr).open())
		<-joined
	}
	busy, free := make(chan bool), make(chan bool)
	must(t, e.Loops()[0].Do(func() { busy <- true; <-free }))
	<-busy
	before := e.Stats().Writes
	for i := range 5 {
		for g := range groups {
			must(t, groups[g].Send(OpText, []byte(fmt.Sprint(g, " ", i))))
		}
	}
	close(free)
	for _, p := range peers {
		for range 5 * len(groups) {
			if got := p.frame(); !strings.HasPrefix(got, "text ") {
				t.Fatal(got)
			}
		}
	}
	done := make(chan uint64)
	_ = e.Loops()[0].Do(func() { done <- 0 })
	<-done
	if got := e.Stats().Writes - before; got != uint64(len(peers)) {
		t.Errorf("%d writes for %d connections", got, len(peers))
	}
}

// A member that does not read is told apart from the others, which get everything.
func TestGroupSlowMember(t *testing.T) {
	a := newAudience(t, 5, 20, &Options{WriteLimit: 4 << 10, Overflow: OverflowFail})
	var slow []*Conn
	a.group.OnFull = func(c *Conn) { slow = append(slow, c) }
	a.clients[7].StopReading()
	var want []string
	for i := range 400 {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", 400))
		must(t, a.group.Send(OpText, []byte(text)))
		want = append(want, line(OpText, text))
		a.Run()
	}
	if len(slow) != 1 || a.group.Len() != 19 {
		t.Fatalf("%d slow members, %d are left", len(slow), a.group.Len())
	}
	if err := slow[0].Write(OpText, make([]byte, 4<<10)); !errors.Is(err, myriad.ErrFull) {
		t.Errorf("the slow one: %v", err)
	}
	for i, c := range a.clients {
		if got := c.lines(t); i != 7 && !slices.Equal(got, want) {
			t.Errorf("client %d read %d messages", i, len(got))
		}
	}
	a.clients[7].Resume()
	a.leave()
}

// A modelledShard is a shard whose members are no connections: whether one has room, chance
// decides.
type modelledShard struct {
	*shard
	rng  *rand.Rand
	got  map[*Member][]uint64
	want map[*Member][]uint64
	all  []*Member
}

func modelShard(seed uint64) *modelledShard {
	p := &modelledShard{rng: rand.New(rand.NewPCG(seed, 7)), got: map[*Member][]uint64{}, want: map[*Member][]uint64{}}
	p.shard = &shard{group: new(Group), roster: new(roster), asked: true}
	p.log.Total = new(atomic.Int64)
	p.give = func(m *Member, e entry) error {
		if p.rng.IntN(8) == 0 {
			return errWait
		}
		p.got[m] = append(p.got[m], binary.BigEndian.Uint64(e.msg.payload))
		return nil
	}
	return p
}

func (p *modelledShard) join() { p.all = append(p.all, p.shard.join(new(Conn))) }

func (p *modelledShard) some() *Member {
	m := p.all[p.rng.IntN(len(p.all))]
	if m.at == nowhere {
		return nil
	}
	return m
}

func (p *modelledShard) leave() {
	if m := p.some(); m != nil {
		m.Leave()
		p.want[m] = p.got[m] // what it had not got, it does not get
	}
}

func (p *modelledShard) send() {
	number := p.log.Next()
	m, err := Prepare(OpBinary, binary.BigEndian.AppendUint64(nil, number))
	if err != nil {
		panic(err)
	}
	defer m.Release()
	e := entry{msg: m}
	if skipped := p.some(); skipped != nil && p.rng.IntN(4) == 0 {
		e.except = []*Conn{skipped.c}
	}
	for _, m := range p.all {
		if m.at != nowhere && (e.except == nil || m.c != e.except[0]) {
			p.want[m] = append(p.want[m], number)
		}
	}
	p.append(e)
}

func (p *modelledShard) spread() {
	if slow := p.shard.spread(); slow != nil {
		panic("a member was refused")
	}
}

func (p *modelledShard) catchUp() {
	if m := p.some(); m != nil {
		p.shard.catchUp(m)
	}
}

// Joins, leaves, messages and members without room come in any order, at any place of a round. Each
// member gets exactly what is sent while it is one, and no message is kept that all have.
func TestGroupMembershipIsExact(t *testing.T) {
	before := buf.InUse()
	for seed := range uint64(200) {
		p := modelShard(seed)
		p.join()
		for range 400 {
			[]func(){p.join, p.leave, p.send, p.spread, p.spread, p.catchUp, p.catchUp}[p.rng.IntN(7)]()
		}
		for p.busy() || len(p.late) > 0 {
			p.spread()
			for _, m := range slices.Clone(p.late) {
				p.shard.catchUp(m)
			}
		}
		for i, m := range p.all {
			if !slices.Equal(p.got[m], p.want[m]) {
				t.Fatalf("seed %d: member %d got %v, want %v", seed, i, p.got[m], p.want[m])
			}
		}
		if p.log.Bytes() != 0 || p.log.Next() != p.log.Oldest() || p.log.Total.Load() != 0 {
			t.Fatalf("seed %d: %d messages of %d bytes are kept", seed, p.log.Next()-p.log.Oldest(), p.log.Bytes())
		}
	}
	if got := buf.InUse() - before; got != 0 {
		t.Errorf("%d blocks are in use at the end", got)
	}
}

// Several goroutines broadcast at once, more than may wait: no member misses anything, and each
// sender's messages stay in order.
func TestGroupBroadcastersAtOnce(t *testing.T) {
	const peers, writers, each = 5, 4, 500
	e := startEngine(t, myriad.Config{})
	var g Group
	joined := make(chan bool, peers)
	o := &Options{Workers: startPool(t), WriteLimit: 16 << 20, PingInterval: quiet, OnOpen: func(c *Conn) {
		if _, err := g.Join(c); err != nil {
			t.Error(err)
		}
		joined <- true
	}}
	addr := listen(t, e, Handler(o))
	var clients []*rawPeer
	for range peers {
		clients = append(clients, dialRaw(t, addr).open())
		<-joined
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				_ = g.Send(OpText, []byte(fmt.Sprintf("%d %d", w, i)))
			}
		})
	}
	for _, p := range clients {
		next := make([]int, writers)
		for range writers * each {
			var w, i int
			f := p.frame()
			if _, err := fmt.Sscanf(f, `text "%d %d"`, &w, &i); err != nil || next[w] != i {
				t.Fatalf("got %q, want number %d", f, next[w])
			}
			next[w]++
		}
	}
	wg.Wait()
}

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

// A connection leaves all of its groups when it ends, by each kind of end, before OnClose is called
// and although nothing is sent. It joins none after that.
func TestConnectionsLeaveTheirGroups(t *testing.T) {
	const n = 500
	for name, end := range map[string]func(c *Conn, p *client){
		"close frame": func(_ *Conn, p *client) { p.send(OpClose, closeWith(1000, "")) },
		"FIN":         func(_ *Conn, p *client) { p.CloseWrite() },
		"Abort":       func(c *Conn, _ *client) { c.Abort(nil) },
		"reset":       func(_ *Conn, p *client) { p.Reset() },
	} {
		var groups [3]Group
		lengths := func() (n [3]int) {
			for i := range groups {
				n[i] = groups[i].Len()
			}
			return n
		}
		var conns []*Conn
		members := map[*Conn][]*Member{}
		closed := 0
		join := func(c *Conn) {
			for i := range groups {
				m, err := groups[i].Join(c)
				noError(t, err)
				members[c] = append(members[c], m)
			}
		}
		o := &Options{PingInterval: quiet, OnOpen: func(c *Conn) { conns = append(conns, c); join(c) },
			OnClose: func(c *Conn, _ error) {
				closed++
				if join(c); groups[0].Len() != n-closed {
					t.Errorf("%s: %d members in OnClose number %d", name, groups[0].Len(), closed)
				}
				for _, m := range members[c] {
					m.Leave()
				}
			}}
		w := newWorld(t, 3, sim.Lossless(), myriad.Config{}, Handler(o))
		var clients []*client
		for range n {
			clients = append(clients, w.client(sampleRequest))
			w.Run()
		}
		if got := lengths(); got != [3]int{n, n, n} {
			t.Fatalf("%s: %d members", name, got)
		}
		for i, c := range conns {
			if i%2 == 0 {
				members[c][i%3].Leave() // of any of its groups, before it ends
			}
			end(c, clients[i])
			w.Run()
		}
		if got := lengths(); closed != n || got != [3]int{} {
			t.Errorf("%s: %d of %d connections have closed; %d members are left", name, closed, n, got)
		}
		if r := rosterOf(w.e.Loops()[0]); r.first != nil {
			t.Errorf("%s: %d connections are noted", name, len(r.first))
		}
		w.stop()
	}
}

// Joins and leaves race with the ends of their connections: no connection stays.
func TestJoinBesideTheEnd(t *testing.T) {
	const n = 200
	e := startEngine(t, myriad.Config{Loops: 2})
	var groups [2]Group
	var joins, closes sync.WaitGroup
	closes.Add(n)
	var opened atomic.Int32
	o := &Options{Workers: startPool(t), PingInterval: quiet, OnOpen: func(c *Conn) {
		opened.Add(1)
		for i := range groups {
			joins.Go(func() {
				m, err := groups[i].Join(c)
				noError(t, err)
				if i == 1 {
					m.Leave()
				}
			})
		}
	}, OnClose: func(*Conn, error) { closes.Done() }}
	addr := listen(t, e, Handler(o))
	for range n {
		_ = dialRaw(t, addr).open().Close()
	}
	closes.Wait()
	joins.Wait()
	if a, b := groups[0].Len(), groups[1].Len(); opened.Load() != n || a != 0 || b != 0 {
		t.Errorf("%d of %d connections were open; %d and %d members are left", opened.Load(), n, a, b)
	}
}

// burstMembersEnv is how many members read a burst, instead of 20:
//
//	MYRIAD_BURST_MEMBERS=2000 go test -v -timeout 20m -run TestBurst ./websocket
const burstMembersEnv = "MYRIAD_BURST_MEMBERS"

const burstMessage = 10_000 // bytes

// A burst is connections whose peers read at full speed.
type burst struct {
	t       *testing.T
	group   Group
	conns   []*Conn
	readers []*rawPeer
	ends    chan error // what OnClose was called with
}

func newBurst(t *testing.T, n int, o *Options) *burst {
	t.Helper()
	return newBurstIn(t, myriad.Config{}, n, o)
}

func newBurstIn(t *testing.T, cfg myriad.Config, n int, o *Options) *burst {
	t.Helper()
	b := &burst{t: t, ends: make(chan error, n)}
	joined := make(chan *Conn, n)
	o.Workers, o.PingInterval = startPool(t), quiet
	o.OnOpen = func(c *Conn) {
		if _, err := b.group.Join(c); err != nil {
			t.Error(err)
		}
		joined <- c
	}
	o.OnClose = func(_ *Conn, err error) { b.ends <- err }
	addr := listen(t, startEngine(t, cfg), Handler(o))
	for range n {
		b.readers = append(b.readers, dialRaw(t, addr).open())
		b.conns = append(b.conns, <-joined)
	}
	return b
}

func burstMembers(t *testing.T) int {
	t.Helper()
	text := os.Getenv(burstMembersEnv)
	switch {
	case text == "" && testing.Short():
		return 4 // the race detector looks at each byte
	case text == "":
		return 20
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// readAll has every peer read n messages of the given size, and checks their numbers.
func (b *burst) readAll(n, size int) (done func()) {
	var wg sync.WaitGroup
	for i, p := range b.readers {
		wg.Go(func() {
			if err := readNumbered(p, n, size); err != nil {
				b.t.Errorf("member %d: %v", i, err)
			}
		})
	}
	return wg.Wait
}

func readNumbered(p *rawPeer, n, size int) error {
	r := bufio.NewReaderSize(p.Conn, 64<<10)
	frame := frameOf(frameHeader{fin: true, op: OpBinary}, make([]byte, size))
	defer frame.Release()
	got := make([]byte, frame.Len())
	for i := range n {
		if i%100 == 0 {
			_ = p.SetDeadline(time.Now().Add(hangs)) // megabytes are on their way
		}
		if _, err := io.ReadFull(r, got); err != nil {
			return fmt.Errorf("message %d of %d: %w", i, n, err)
		}
		if number := binary.BigEndian.Uint64(got[len(got)-size:]); got[0] != frame.Bytes()[0] || number != uint64(i) {
			return fmt.Errorf("message %d of %d begins with %x", i, n, got[:16])
		}
	}
	return nil
}

func burstPayload(i, size int) []byte {
	p := make([]byte, size)
	binary.BigEndian.PutUint64(p, uint64(i))
	return p
}

func (b *burst) wantAllOpen() {
	b.t.Helper()
	select {
	case err := <-b.ends:
		b.t.Errorf("a member was closed: %v", err)
	default:
	}
	if got := b.group.Len(); got != len(b.readers) {
		b.t.Errorf("%d members are left of %d", got, len(b.readers))
	}
}

// burstSizes are the bytes of a burst in all.
var burstSizes = []int{300_000, 1_000_000, 10_000_000}

func TestBurstByGroup(t *testing.T) {
	for _, total := range burstSizes {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			b := newBurst(t, burstMembers(t), &Options{})
			n := total / burstMessage
			done := b.readAll(n, burstMessage)
			for i := range n {
				must(t, b.group.Send(OpBinary, burstPayload(i, burstMessage)))
			}
			done()
			b.wantAllOpen()
		})
	}
}

func TestBurstByLoopOfWrites(t *testing.T) {
	for _, total := range burstSizes {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			b := newBurst(t, burstMembers(t), &Options{})
			n := total / burstMessage
			done := b.readAll(n, burstMessage)
			for i := range n {
				p := burstPayload(i, burstMessage)
				for _, c := range b.conns {
					must(t, c.Write(OpBinary, p))
				}
			}
			done()
			b.wantAllOpen()
		})
	}
}

// By default a writer on a goroutine of its own waits for the loop, as it would in other libraries.
func TestBurstOfSmallWrites(t *testing.T) {
	b := newBurst(t, 1, &Options{})
	b.writeSmall(1000, 500)
}

// A policy that refuses, drops or closes counts only what the kernel has refused: the kernel has
// room for all of this, also while nothing is read. On a busy machine the loop may come late.
func TestOverflowCountsWhatTheKernelRefuses(t *testing.T) {
	for policy := range outbox.Policies {
		t.Run(policy.String(), func(t *testing.T) {
			b := newBurst(t, 1, &Options{Overflow: policy, WriteLimit: slowLimit})
			b.conns[0].settings().flushWait = hangs
			b.writeSmall(120, 500)
		})
	}
}

func (b *burst) writeSmall(n, size int) {
	b.t.Helper()
	done := b.readAll(n, size)
	for i := range n {
		if err := b.conns[0].Write(OpBinary, burstPayload(i, size)); err != nil {
			b.t.Fatalf("message %d: %v", i, err)
		}
	}
	done()
	b.wantAllOpen()
}
