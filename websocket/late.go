package websocket

import (
	"slices"
	"time"
)

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
		m.shard.giveUp(m)
	}
}

// wall is the time in milliseconds, as Conn.now counts it, for callers that may be elsewhere than
// on the loop.
func (c *Conn) wall() int64 { return c.nc.Loop().Engine().System().Now().UnixMilli() }
