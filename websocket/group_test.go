package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
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
