package web

// This file has h1streams used again. An exchange that the server no longer needs is used for
// another request, without what its handler was given. With Server.ReuseRequests that is used
// again, too.

// obtain gives an exchange to fill in.
func (ln *lane) obtain() *h1stream {
	x := ln.spare
	if ln.spare = nil; x == nil {
		x, _ = ln.st.spare.Get().(*h1stream)
	}
	if x == nil {
		x = new(h1stream)
	}
	if x.given == nil {
		x.given = newGiven()
		x.given.out.Store(&x.out)
	}
	return x
}

// release is called by the two users of an exchange when they touch x no more: by the loop, when it
// continues after it in order, and by the goroutine of its handler. The second of them makes it
// ready for another request.
func (x *h1stream) release() {
	if !x.alone() {
		return
	}
	reusable := x.reusable() && x.hold == nil
	again := reusable && x.lane.s.ReuseRequests && x.given.ctx.unwatched()
	if !again {
		x.given.out.Store(nil)
	}
	if reusable {
		k := x.given.ctx.link
		x.reset(again)
		k.unreleased.Add(-1)
	} else {
		x.lane.st.keepFront(x.enc.front)
	}
}

// reset empties x, and what its handler was given if that is to be used again.
func (x *h1stream) reset(again bool) {
	ln, local, g, fields, front := x.lane, x.runs >= kept, x.given, x.fields, x.enc.front
	*x = h1stream{}
	if len(front) == headRoom {
		x.enc.front = front
	}
	if again {
		g.again()
		x.given, x.fields = g, emptied(fields)
	}
	if local && ln.spare == nil {
		ln.spare = x
		return
	}
	ln.st.spare.Put(x)
}

// front gives what an answer is put together in.
func (st *state) front() []byte {
	if p, _ := st.fronts.Get().(*[headRoom]byte); p != nil {
		return p[:]
	}
	return make([]byte, headRoom)
}

// keepFront keeps one whose exchange is not used again.
func (st *state) keepFront(front []byte) {
	if len(front) == headRoom {
		st.fronts.Put((*[headRoom]byte)(front))
	}
}
