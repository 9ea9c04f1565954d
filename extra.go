package myriad

// This file looks after all that a conn may have beside the core: a layer, files, a bridge, a
// Detach, a Dial.

// tellClosed tells all calls that wait for the conn that it has ended.
func (l *Loop) tellClosed(c *Conn, asked request, err error) {
	x := c.extra.Load()
	if c.is(connecting) {
		c.dialing().finish(orClosed(err)) // a failed Dial calls no handler
		return
	}
	if x != nil && x.bridge != nil {
		x.bridge.end(asked&wantAbort != 0 || err != nil)
	}
	defer l.lastCall(c, err) // also if the one before does not return
	if x != nil && x.detach != nil {
		l.callDetached(c, nil, nil, orClosed(err))
	}
}

func orClosed(err error) error {
	if err == nil {
		return ErrClosed
	}
	return err
}

// trim gives the extra part back when nothing is in it any more. On the loop, at the end of settle:
// no caller holds a pointer to it.
func (c *Conn) trim() {
	x := c.extra.Load()
	if x == nil || x.layer != nil || x.held.Len() > 0 || x.detach != nil || x.bridge != nil ||
		x.peer != nil ||
		x.lingered > 0 || x.flushed > 0 || x.sending || x.endHeld {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(x.files) == 0 && x.reason == nil {
		c.extra.Store(nil)
	}
}

// hasUnencoded reports whether a file is still to be sent, or plaintext that the layer has to
// encode, or what was queued behind it is to be dropped anyway.
func (c *Conn) hasUnencoded() bool {
	x := c.extra.Load()
	if x == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return x.sending || len(x.files) > 0 || x.unencoded > 0 || c.asked&wantAbort != 0
}

// waits reports whether there is something to send beside the conn's queue. Conn.mu is held.
func (x *extra) waits() bool { return x.unencoded > 0 || len(x.files) > 0 }

// sendFurther sends what waits, as far as there is room.
func (l *Loop) sendFurther(c *Conn, x *extra) {
	if x.buffered != nil {
		l.encodeOwed(c, x)
	}
	l.sendFiles(c, x)
}

// fileBytes is how much of files has yet to be sent. Conn.mu is held.
func (x *extra) fileBytes() int64 {
	n := x.fileLeft
	for _, run := range x.files {
		n += run.n
	}
	return n
}

// drop lets go of what has yet to be sent. Conn.mu is held.
func (x *extra) drop() {
	for _, run := range x.files {
		run.f.Close()
	}
	x.files, x.unencoded = nil, 0
}
