package web

import "net/http"

// This file is Server.ReuseRequests: what becomes of an exchange that nobody in the server needs any more.

// keptFields is how many fields a header may have had whose map is kept: maps do not shrink.
const keptFields = 64

// obtain gives an exchange to fill in.
func (ln *lane) obtain() *exchange {
	if ln.s.ReuseRequests {
		if x, _ := ln.st.spare.Get().(*exchange); x != nil {
			return x
		}
	}
	return new(exchange)
}

// part is called by each of the two who work with an exchange, when it touches x no more: the loop, when it goes on behind it in order,
// and the goroutine of its handler. Whoever comes second makes it ready for another request.
func (x *exchange) part() {
	if x.lane.s.ReuseRequests && x.parted.Swap(true) && x.reusable() {
		x.reset()
	}
}

// reusable reports whether nothing that was made for this request, by the server or at a handler's wish, refers to x. What has
// asked its context to be told of the end may still copy the request, as http.TimeoutHandler does.
func (x *exchange) reusable() bool {
	x.ctx.mu.Lock()
	defer x.ctx.mu.Unlock()
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	return x.ctx.watchers == nil && x.out.seldom == nil && x.out.lost == nil && x.out.failed == nil &&
		x.body == nil && x.hold == nil && !x.takenOver() && x.stream() == nil
}

func (x *exchange) reset() {
	spare := &x.lane.st.spare
	asked, answered := emptied(x.fields), emptied(x.out.header)
	*x = exchange{}
	x.fields, x.out.header = asked, answered
	spare.Put(x)
}

func emptied(h http.Header) http.Header {
	if len(h) > keptFields {
		return nil
	}
	clear(h)
	return h
}
