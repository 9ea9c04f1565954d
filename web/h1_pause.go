package web

// A pauseReason is why the loop does not read an HTTP/1 connection. There may be several at a time:
// it reads on when the last has gone.
type pauseReason uint8

const (
	pauseBody  pauseReason = 1 << iota // what has come of the body waits for its handler
	pauseLate                          // the body is late: one that comes slowly could be read without end
	pauseAhead                         // enough is kept behind the current request
	pauseTurn                          // a large head or trailer waits for its turn

	pauseRequest = pauseBody | pauseLate // the reasons that end with a request
)

func (h *conn) pause(why pauseReason) {
	h.paused |= why
	h.c.Pause()
}

// resume ends some reasons.
func (h *conn) resume(why pauseReason) {
	if h.paused == 0 {
		return
	}
	if h.paused &^= why; h.paused == 0 {
		h.c.Resume()
	}
}
