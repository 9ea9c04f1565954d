package client

import "time"

// This file shares connections among calls. All state in it is guarded by Transport.mu; nothing is
// called, and no connection is touched, while that is held.

// A host is what the transport has for one key.
type host struct {
	key     hostKey
	idle    []*conn // the one that was used last is taken first
	first   *Call   // the calls that wait, in order
	last    *Call
	waiting int
	conns   int // open, or being dialled
	dialing int
	mayH2   bool     // its connections may speak HTTP/2
	spokeH1 bool     // one did not
	mux     *muxConn // an HTTP/2 connection that takes requests
}

func (h *host) empty() bool { return h.conns == 0 && h.waiting == 0 }

// push appends x to the queue.
func (h *host) push(x *Call) {
	x.waits, x.prev = true, h.last
	if h.last != nil {
		h.last.next = x
	} else {
		h.first = x
	}
	h.last = x
	h.waiting++
}

// remove takes x out of the queue.
func (h *host) remove(x *Call) {
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		h.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		h.last = x.prev
	}
	x.waits, x.next, x.prev = false, nil, nil
	h.waiting--
}

// hostFor is the host of a key.
func (t *Transport) hostFor(k hostKey) *host {
	h := t.hosts[k]
	if h == nil {
		h = &host{key: k, mayH2: t.mayH2(k)}
		t.hosts[k] = h
	}
	return h
}

// acquire finds a connection for x: an idle one, or the first that becomes free or is dialled.
func (t *Transport) acquire(x *Call, key hostKey) {
	t.mu.Lock()
	h := t.hostFor(key)
	x.host = h
	if len(h.idle) > 0 {
		pc := t.popIdle(h)
		t.mu.Unlock()
		pc.send(x)
		return
	}
	if t.queued >= orDefault(t.MaxQueued, defaultQueued) {
		t.forget(h)
		t.mu.Unlock()
		x.fail(ErrQueueFull)
		return
	}
	x.setPhase(Queued)
	h.push(x)
	t.queued++
	d, m := t.dialFor(h), h.mux
	t.mu.Unlock()
	if m != nil {
		m.c.Notify()
	}
	if x.isSettled() { // cancelled before it was in the queue
		t.dequeue(x)
	}
	d.start()
}

func (x *Call) isSettled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.settled
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// dialFor returns the dial that h needs for the first call that waits without one, or nil. The
// caller starts it, without the lock.
func (t *Transport) dialFor(h *host) *dialing {
	if h.waiting <= h.dialing || t.MaxConnsPerHost > 0 && h.conns >= t.MaxConnsPerHost {
		return nil
	}
	if h.mux != nil || h.mayH2 && !h.spokeH1 && h.dialing > 0 {
		return nil // one connection for all, as far as is known
	}
	for x := h.first; x != nil; x = x.next {
		if x.dial == nil {
			h.dialing++
			h.conns++
			x.dial = newDialing(t, h, x)
			x.setPhase(Dialing)
			return x.dial
		}
	}
	return nil
}

// dequeue is for a call that is cancelled while it waits. A dial that no other call needs ends too.
func (t *Transport) dequeue(x *Call) {
	t.mu.Lock()
	var unneeded *dialing
	if x.waits {
		h := x.host
		h.remove(x)
		t.queued--
		if h.dialing > h.waiting {
			unneeded = x.dial
		}
		x.dial = nil
		t.forget(h)
	}
	t.mu.Unlock()
	if unneeded != nil {
		unneeded.cancel()
	}
}

// next takes the first call that waits out of the queue, or returns nil.
func (t *Transport) next(h *host) *Call {
	x := h.first
	if x != nil {
		h.remove(x)
		x.dial = nil
		t.queued--
	}
	return x
}

// offer gives a connection that is ready for a request to the call that has waited longest, or
// keeps it. It reports the reason if it does neither; then the connection is to be closed.
func (t *Transport) offer(pc *conn) error {
	t.mu.Lock()
	h := pc.host
	pc.inUse = true
	if x := t.next(h); x != nil {
		t.mu.Unlock()
		pc.send(x)
		return nil
	}
	perHost := orDefault(t.MaxIdleConnsPerHost, defaultIdlePerHost)
	if t.DisableKeepAlives || perHost < 0 || len(h.idle) >= perHost {
		t.mu.Unlock()
		return errKeepIdle
	}
	pc.inUse = false
	if t.IdleConnTimeout > 0 || t.MaxIdleConns > 0 {
		pc.idleSince = t.sys.Now()
	}
	pc.idled = true
	h.idle = append(h.idle, pc)
	t.idle++
	var oldest *conn
	if t.MaxIdleConns > 0 {
		t.kept[h] = struct{}{}
		if t.idle > t.MaxIdleConns {
			oldest = t.takeOldest()
		}
	}
	t.mu.Unlock()
	if oldest != nil {
		oldest.retire()
	}
	return nil
}

// popIdle takes the idle connection that was used last.
func (t *Transport) popIdle(h *host) *conn {
	return t.takeIdle(h, len(h.idle)-1)
}

func (t *Transport) takeIdle(h *host, i int) *conn {
	pc := h.idle[i]
	copy(h.idle[i:], h.idle[i+1:])
	h.idle[len(h.idle)-1] = nil
	h.idle = h.idle[:len(h.idle)-1]
	t.idle--
	pc.inUse = true
	if len(h.idle) == 0 {
		h.idle = nil
		delete(t.kept, h)
	}
	return pc
}

// takeOldest takes the connection that has been idle for longest, of all hosts. There are at most
// MaxIdleConns hosts with one.
func (t *Transport) takeOldest() *conn {
	var from *host
	for h := range t.kept {
		if from == nil || h.idle[0].idleSince.Before(from.idle[0].idleSince) {
			from = h
		}
	}
	return t.takeIdle(from, 0)
}

// unkeep takes pc away from the idle ones. It returns false if a call has it. With a minimum it is
// taken only if it has been idle for that long; left says how long it has still to wait.
func (t *Transport) unkeep(pc *conn, minimum time.Duration) (taken bool, left time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pc.inUse {
		return false, 0
	}
	if minimum > 0 {
		if left = minimum - t.sys.Now().Sub(pc.idleSince); left > 0 {
			return false, left
		}
	}
	for i, other := range pc.host.idle {
		if other == pc {
			t.takeIdle(pc.host, i)
			return true, 0
		}
	}
	return false, 0
}

// closed is for a connection that is no more, or a dial that has failed. Its place may be for
// another call that waits.
func (t *Transport) closed(h *host, dialed bool) {
	t.mu.Lock()
	h.conns--
	if dialed {
		h.dialing--
	}
	d := t.dialFor(h)
	t.forget(h)
	t.mu.Unlock()
	d.start()
}

// pushFront gives x back, which next has taken.
func (t *Transport) pushFront(h *host, x *Call) {
	x.waits, x.prev, x.next = true, nil, h.first
	if h.first != nil {
		h.first.prev = x
	} else {
		h.last = x
	}
	h.first = x
	h.waiting++
	t.queued++
}

// forget drops a host that has nothing.
func (t *Transport) forget(h *host) {
	if h.empty() && t.hosts[h.key] == h {
		delete(t.hosts, h.key)
	}
}
