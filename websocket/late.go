package websocket

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file handles members of a group that have no room for a message and wait (OverflowBlock),
// and senders that wait for a loop. docs/adr/0020 has the reasons.

const (
	// maxLogBytes bounds the log of a part, which cannot be trimmed while members are late.
	// maxLogsBytes bounds the logs of all groups of an engine together: above it, a part with more
	// than maxTickBytes is full, too.
	maxLogBytes  = 16 << 20
	maxLogsBytes = 64 << 20
	// patience is for how long a sender waits for members that keep a log full and have had no room
	// since.
	patience = 100 * time.Millisecond
)

// logged is how many bytes are in the logs of an engine.
type logged struct{ bytes atomic.Int64 }

type loggedKey struct{}

// postpone makes m late: it has had no room for the message next. mu is held.
func (p *part) postpone(m *Member, next uint64) {
	p.removeTimely(m)
	m.late, m.at = true, int32(len(p.late))
	p.late = append(p.late, m)
	p.expect(m, next)
}

// expect notes which message a late member gets next. mu is held.
func (p *part) expect(m *Member, next uint64) {
	m.next = next
	p.log[next-p.base].late++
}

// removeLate takes m off the list of late members. mu is held.
func (p *part) removeLate(m *Member) {
	p.log[m.next-p.base].late--
	last := len(p.late) - 1
	p.late[m.at] = p.late[last]
	p.late[m.at].at = m.at
	p.late = shorten(p.late)
	m.late = false
	m.c.forgetLate(m)
}

// catchUp gives a late member what it has missed, as far as there is room now. On the loop.
func (p *part) catchUp(m *Member) {
	var slow []removed
	p.mu.Lock()
	if m.late {
		var done tally
		next, err := p.hand(m, m.next, p.next(), &done)
		p.group.taken.Add(done.messages)
		switch {
		case err == errWait:
			p.log[m.next-p.base].late--
			p.expect(m, next)
		case err != nil:
			slow = p.refuse(slow, m, next, err)
		default:
			p.removeLate(m)
			m.next = next
			p.add(m)
		}
		p.trim()
	}
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// giveUp removes a late member that has waited for too long.
func (p *part) giveUp(m *Member) {
	var slow []removed
	p.mu.Lock()
	if m.late {
		slow = p.refuse(slow, m, m.next, myriad.ErrFull)
		p.trim()
	}
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// relieve removes members that keep the log full: those that have had no room for some time, or, if
// now is set, all. mu is held.
func (p *part) relieve(now bool) (slow []removed) {
	for p.overfull() && p.base != p.first {
		before := len(p.late)
		for i := len(p.late) - 1; i >= 0; i-- {
			if m := p.late[i]; m.next == p.base && (now || m.c.lateFor(patience)) {
				slow = p.refuse(slow, m, m.next, myriad.ErrFull)
			}
		}
		if len(p.late) == before {
			break
		}
		p.trim()
	}
	return slow
}

// overfull reports whether the log is at its limit. mu is held.
func (p *part) overfull() bool {
	return p.bytes >= maxLogBytes || p.bytes >= maxTickBytes && p.total.bytes.Load() >= maxLogsBytes
}

// crowded reports whether senders have to wait. mu is held.
func (p *part) crowded() bool {
	return p.fresh >= maxTickBytes || p.next()-p.last >= maxTick || p.overfull()
}

// send appends e when there is room for it.
func (p *part) send(e entry) {
	p.admit()
	p.append(e)
}

// admit waits for room in the log. Where the caller must not wait, it makes room.
func (p *part) admit() {
	var w driver.Parker
	for passes, more := p.waits(nil); more; {
		e := p.loop.Engine()
		if w == nil {
			if !e.HandOff() {
				p.makeRoom(true)
				return
			}
			w = e.System().NewParker()
		}
		if errors.Is(p.loop.Do(p.run), myriad.ErrClosed) {
			p.makeRoom(true)
			return
		}
		if _, more = p.waits(w); !more {
			return
		}
		w.ParkFor(patience)
		before := passes
		if passes, more = p.waits(w); more && passes == before {
			p.makeRoom(false) // the loop is held up, perhaps by a callback that waits for a lock of this caller's
			passes, more = p.waits(w)
		}
	}
}

// waits reports whether a sender has to wait, and how often the loop has come to the part. If it
// has to, w, unless it is nil, is woken when there is room.
func (p *part) waits(w driver.Parker) (passes uint64, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count() == 0 || !p.crowded() {
		return p.passes, false
	}
	if w != nil && !slices.Contains(p.senders, w) {
		p.senders = append(p.senders, w)
	}
	p.pressed = p.pressed || w != nil
	return p.passes, true
}

// makeRoom does the loop's work on the caller's goroutine, and removes members that keep the log
// full after that, as relieve does.
func (p *part) makeRoom(now bool) {
	p.exhaust(false)
	p.mu.Lock()
	slow := p.relieve(now)
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// wakeSenders lets senders go on if there is room. mu is held.
func (p *part) wakeSenders() {
	if len(p.senders) == 0 || p.crowded() && p.count() > 0 {
		return
	}
	for _, w := range p.senders {
		w.Unpark()
	}
	p.senders = p.senders[:0]
}

// writeMember is write for a group, which holds its lock. It returns errWait if m is late now: then
// Drained calls catchUp. A late member with OverflowBlock waits for its turn to be flushed, so that
// it does not hold up the loop.
func (c *Conn) writeMember(msg outgoing, m *Member) error {
	err := c.attempt(msg, noRoom{probe: true})
	if err != errWait {
		return err
	}
	if m.late && c.blocks() {
		return c.attempt(msg, noRoom{member: m})
	}
	if !c.nc.Flush() && !c.is(offered) { // elsewhere than on the loop: the policy is for what the kernel refuses
		return c.attempt(msg, noRoom{member: m, late: true})
	}
	if err = c.attempt(msg, noRoom{probe: true}); err == errWait {
		err = c.attempt(msg, noRoom{member: m})
	}
	return err
}

// becomeLate is called under mu.
func (c *Conn) becomeLate(m *Member) {
	r := c.needCold()
	if len(r.late) == 0 {
		r.lateSince = c.wall()
		c.nc.Notify() // the loop sets the timer
	}
	r.late = append(r.late, m)
}

// takeLate returns the members that wait for room on this connection, which wait no more. It is
// called under mu.
func (c *Conn) takeLate() (late []*Member) {
	if c.cold != nil {
		late, c.cold.late, c.cold.lateSince = c.cold.late, nil, 0
	}
	return late
}

// forgetLate is for a member that has left.
func (c *Conn) forgetLate(m *Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold == nil {
		return
	}
	if i := slices.Index(c.cold.late, m); i >= 0 {
		c.cold.late = slices.Delete(c.cold.late, i, i+1)
	}
	if len(c.cold.late) == 0 {
		c.cold.late, c.cold.lateSince = nil, 0
	}
}

// lateFor reports whether members have waited for room for that long.
func (c *Conn) lateFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold != nil && c.cold.lateSince > 0 && c.wall()-c.cold.lateSince >= d.Milliseconds()
}

// lateDue is when members have waited for too long, as Conn.now counts; 0: never.
func (c *Conn) lateDue() int64 {
	limit := c.settings().writeTimeout
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold == nil || c.cold.lateSince == 0 || limit == 0 {
		return 0
	}
	return c.cold.lateSince + limit.Milliseconds()
}

// giveUpLate removes members that have waited for too long. On the loop.
func (c *Conn) giveUpLate(now int64) {
	if due := c.lateDue(); due == 0 || now < due {
		return
	}
	c.mu.Lock()
	late := c.takeLate()
	c.mu.Unlock()
	for _, m := range late {
		m.part.giveUp(m)
	}
}

// wall is the time in milliseconds, as Conn.now counts it, for callers that may be elsewhere than
// on the loop.
func (c *Conn) wall() int64 { return c.nc.Loop().Engine().System().Now().UnixMilli() }
