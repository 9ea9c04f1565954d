package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad/client"
)

// This file is the judge of a world. What must hold of each request, whatever the options are:
//
//   - it ends once, and not later than its own deadline by a millisecond, or than the limits that
//     the options set for a part of it;
//   - it does not wait while there is room for it: an idle connection, a stream, a place for a
//     connection. What has room is decided by what the servers see;
//   - it fails only for a reason that a server, the network or its caller has given, and with the
//     error that says so. A body that is cut never ends in order;
//   - it is sent again only where net/http would do so, too;
//   - both sides get each other's bytes, in order, and the client keeps to what the server allows.

const (
	// grace is how long a request may wait although there is room for it, and how long a connection
	// may keep a place that it can no longer use.
	grace = 100 * ms
	// hedge is how often one dial more is begun while HTTP/2 is possible, and others hang.
	hedge = 30 * ms
	// spareBound is how long a dial may keep its place when the request for which it was begun
	// needs it no more. If that was given up, it is as long as the request has waited, if that is
	// less.
	spareBound = 2 * time.Second
	// silentBound is how long a connection of HTTP/2 without SETTINGS may keep its place when its
	// request was given up.
	silentBound = time.Second
	// uselessBound is how long requests may wait for a connection of HTTP/2 that allows no stream.
	uselessBound = time.Second
	// recovery is how long after the end of all faults requests may still fail, beside what the
	// options say.
	recovery = 5 * time.Second
	// tick is how often the judge looks at what waits.
	tick = 10 * ms
	// probeTimeout is how long a request that usually has no body waits to find out.
	probeTimeout = 200 * ms
	// uploadGrace is how long an upload may go on when the answer has been read.
	uploadGrace = 50 * ms
)

// A breach is something that must not be.
type breach struct {
	at         time.Time
	kind, text string
	x          *request // nil: of no request
}

type judge struct {
	w        *world
	mu       sync.Mutex
	breaches []breach
}

// broke notes a breach. Any goroutine.
func (j *judge) broke(x *request, kind, format string, args ...any) {
	now := j.w.Now()
	text := fmt.Sprintf("at %v: %s", now.Sub(epoch), fmt.Sprintf(format, args...))
	if x != nil {
		x.note("BREACH, %s: %s", kind, text)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breaches = append(j.breaches, breach{now, kind, text, x})
}

// tolerance is how late an end may be.
func (w *world) tolerance() time.Duration {
	d := ms + time.Duration(len(w.requests))*50*time.Microsecond
	if w.o.net != "calm" { // a delivery that is near may come before a goroutine that can run
		d += 15 * ms
	}
	return d
}

// arrived judges whether a request may be sent again.
func (j *judge) arrived(a *attempt) {
	x := a.x
	if x.w.o.tr.DisableKeepAlives && a.c != nil && a.c.used > 0 {
		j.broke(x, "keep-alive", "it came on a connection that was used before")
	}
	if len(x.attempts) == 0 {
		return
	}
	last := x.attempts[len(x.attempts)-1]
	switch {
	case last.notProcessed:
	case last.c == nil:
		if last.deed == "" && x.w.o.net != "faulty" || !x.replayable() {
			j.broke(x, "sent twice", "its handler runs again")
		}
	case last.c.gone.IsZero():
		j.broke(x, "sent twice", "it is sent again while connection %d still has it", last.c.n)
	case !last.began.IsZero() && !last.c.dead && last.c.lost != resetByPeer && last.c.lost != broken:
		j.broke(x, "sent twice", "it is sent again although the answer on connection %d had begun", last.c.n)
	case !x.replayable():
		j.broke(x, "sent twice", "%s is sent again, which is not idempotent or has no GetBody", x.method)
	case last.c.h2:
		j.broke(x, "sent twice", "it is sent again although connection %d of HTTP/2 has processed it", last.c.n)
	case !last.reused:
		j.broke(x, "sent twice", "it is sent again although connection %d was new", last.c.n)
	}
}

// bodyCame judges when a body begins.
func (j *judge) bodyCame(a *attempt) {
	x, d := a.x, j.w.o.tr.ExpectContinueTimeout
	if !x.expect || d == 0 || x.usuallyBodiless() && !x.length && x.kind == "reader" {
		return
	}
	passed := a.bodyAt.Sub(a.at)
	if a.c != nil && a.told100.IsZero() && a.began.IsZero() && passed < d-j.w.o.slack {
		j.broke(x, "100 Continue", "the body came after %v, before the server agreed, and before "+
			"ExpectContinueTimeout", passed)
	}
}

func (x *request) usuallyBodiless() bool {
	return slices.Contains([]string{"GET", "HEAD", "DELETE"}, x.method)
}

// planned notes the size of an answer's head.
func (j *judge) planned(a *attempt, size int) { a.x.lists = append(a.x.lists, size) }

// left judges the end of an attempt by the client.
func (j *judge) left(a *attempt) {
	x := a.x
	switch {
	case a.answered.IsZero() || !a.whole.IsZero() || a.deed != "":
		return // it was not a complete early answer
	case a.plan.close || a.plan.status >= 300 || x.failAt >= 0 || x.expect && a.got == 0 || x.largeHead():
		return // there is another reason
	}
	x.mu.Lock()
	cut := !x.over && !a.bodiless()
	if x.over && !x.close && !j.w.o.tr.DisableKeepAlives {
		cut = x.overAt.After(j.w.Now().Add(-uploadGrace))
	}
	cut = cut && x.endedBy == nil && !x.early && x.err == nil
	for _, d := range []time.Duration{x.deadline, x.cancel, x.callCancel} {
		cut = cut && (d == 0 || j.w.Now().Before(x.born.Add(d)))
	}
	x.mu.Unlock()
	if cut && x.hasBody() {
		got, at := a.got, j.w.Now()
		j.w.AfterFunc(j.w.tolerance(), func() {
			if !x.followed(at) {
				j.broke(x, "upload cut", "at %v the upload ended behind %d bytes of %d, although the caller had "+
					"not read the answer", at.Sub(epoch), got, x.size)
			}
		})
	}
}

// followed reports whether another request may have had the connection of x behind it, and have
// ended that before it came itself. All of x has been written by then, but need not have come.
func (x *request) followed(at time.Time) bool {
	near := x.w.o.slack + x.w.tolerance()
	return slices.ContainsFunc(x.w.requests, func(y *request) bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		return y != x && y.host == x.host && y.over && y.err != nil && y.comesAgain() && at.Sub(y.overAt).Abs() <= near
	})
}

// goneAway is for a client that ends a connection with an error.
func (j *judge) goneAway(s *h2Script, f *http2.GoAwayFrame) {
	if f.ErrCode == http2.ErrCodeSettingsTimeout || s.c.dead { // or in a field block that stalls
		return
	}
	j.broke(nil, "GOAWAY", "the client ends connection %d: %v %q", s.c.n, f.ErrCode, f.DebugData())
}

// watch looks at all that waits, again and again.
func (j *judge) watch() {
	w := j.w
	for _, h := range w.hosts {
		for _, c := range h.conns {
			if c.h1 != nil {
				c.h1.rest()
			}
		}
		if !h.served {
			j.rooms(h)
		}
	}
	j.limits()
	if !w.over {
		w.AfterFunc(tick, j.watch)
	}
}

// waiting reports whether a request waits for a connection, as far as it can be known from outside.
func (x *request) waiting() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.born.IsZero() || x.over || x.heads > 0:
		return false
	case x.call != nil:
		p := x.call.Phase()
		return p == client.Queued || p == client.Dialing
	case x.hooks && x.conns <= len(x.attempts) && len(x.attempts) > 0 && x.attempts[len(x.attempts)-1].back():
		return true
	case x.hooks:
		return x.conns == 0
	case len(x.attempts) > 0: // the next head may wait for a byte of its body, on a stream that it has
		return x.attempts[len(x.attempts)-1].back() && x.kind != "reader"
	}
	// The first byte of a body may be waited for. What a peer that does not read has got is not
	// known.
	return x.kind != "reader" && !slices.ContainsFunc(x.host.conns, func(c *peerConn) bool { return c.unread })
}

// lost reports whether the attempt cannot be answered any more.
func (a *attempt) lost() bool {
	return a.c != nil && (a.notProcessed || !a.c.gone.IsZero() && a.answered.IsZero())
}

// back reports whether the client can know that the attempt is lost.
func (a *attempt) back() bool {
	return a.lost() && (!a.c.gone.IsZero() || !a.c.dead && a.c.fate != "stall" && a.c.fate != "mute")
}

// mayDrain reports whether a request may have had a connection of HTTP/2 to itself, and so have
// retired it, without having come to the peer.
func (h *host) mayDrain() bool {
	return slices.ContainsFunc(h.w.requests, func(x *request) bool {
		return x.host == h && (x.close || h.w.o.tr.DisableKeepAlives) && !x.born.IsZero() && len(x.attempts) == 0
	})
}

// held is how many requests of a host may have a connection, or a stream, that their peer does not
// know of: their head waits for the first byte of their body.
func (h *host) held() (n int) {
	for _, x := range h.w.requests {
		x.mu.Lock()
		live := x.host == h && !x.born.IsZero() && !x.over && x.heads == 0
		if live && x.kind == "reader" && x.conns >= len(x.attempts) {
			n++
		}
		x.mu.Unlock()
	}
	return n
}

// overtakes judges whether x has got a connection before one that has waited for longer.
func (j *judge) overtakes(x *request) {
	for _, y := range j.w.requests {
		if y.host != x.host || y == x || !y.hooks || !y.waiting() {
			continue
		}
		y.mu.Lock()
		before := y.born.Add(j.w.tolerance()).Before(x.born) && y.endedBy == nil && y.conns == 0
		y.mu.Unlock()
		if before {
			j.once(y, "order", "request %d has got a connection, and began %v later", x.id, x.born.Sub(y.born))
		}
	}
}

// rooms judges the requests of a host that wait.
func (j *judge) rooms(h *host) {
	waiting := h.waiting()
	if len(waiting) == 0 {
		h.roomSince = time.Time{}
		return
	}
	w, now, limit := j.w, j.w.Now(), grace+j.w.o.slack
	oldest := slices.MinFunc(waiting, func(a, b *request) int { return a.waitSince.Compare(b.waitSince) })
	p := j.places(h)
	// It may wait before it is sent once more, or lie queued for a connection without streams.
	tried := len(oldest.attempts) > 1 || len(oldest.attempts) > 0 && h.h2.streams == 0
	for _, c := range p.free {
		if now.Sub(later(c.free, oldest.waitSince)) > limit && !tried {
			j.once(oldest, "room", "it has waited since %v, although connection %d has room since %v",
				oldest.waitSince.Sub(epoch), c.n, c.free.Sub(epoch))
		}
	}
	most := w.o.tr.MaxConnsPerHost
	switch {
	case most > 0 && p.taken+p.dials >= most, p.serving >= len(waiting), p.shared, h.isDown():
		h.roomSince = time.Time{}
		return
	case h.roomSince.IsZero():
		h.roomSince = now
	default:
		h.roomSince = later(h.roomSince, p.latest) // the first of the others waits for the next dial
	}
	limit += time.Duration(1+p.coming) * hedge
	if now.Sub(later(h.roomSince, oldest.waitSince)) > limit && !tried {
		j.once(oldest, "place", "it has waited since %v, although there is a place for a connection: %d of %d "+
			"are taken, %d of them by dials, and %d requests wait", oldest.waitSince.Sub(epoch), p.taken+p.dials, most,
			p.dials, len(waiting))
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// waiting lists the requests of a host that wait for a connection, and notes since when.
func (h *host) waiting() (all []*request) {
	for _, x := range h.w.requests {
		switch {
		case x.host != h:
		case !x.waiting():
			x.waitSince = time.Time{}
		default:
			if x.waitSince.IsZero() {
				x.waitSince = h.w.Now()
			}
			all = append(all, x)
		}
	}
	return all
}

// places are what a host's connections are, as it sees them.
type places struct {
	taken   int         // those that carry requests, or could
	dials   int         // those that are not ready, and may have a place still
	coming  int         // those that have not been accepted
	serving int         // those that may be for requests that wait
	shared  bool        // one of HTTP/2 is there, on which all requests may wait
	free    []*peerConn // those with room
	latest  time.Time   // when the last one was accepted, or became ready
}

// places counts. A connection that cannot be used any more takes a place for a moment. A dial takes
// one as long as the request may last that has begun it, and then until spareUntil.
func (j *judge) places(h *host) (p places) {
	now, limit, held := j.w.Now(), grace+j.w.o.slack, h.held()
	draining := 0
	var dials []*peerConn
	for _, c := range h.conns {
		p.latest = later(p.latest, later(c.born, c.ready))
		switch {
		case !c.gone.IsZero():
			if now.Sub(c.gone) < limit {
				p.taken++
			}
		case c.ready.IsZero() && c.h2 && c.used > 0: // it stands: the client has sent a request
			if c.mux.carries() || now.Sub(c.unused()) <= silentBound+limit {
				p.taken++
			}
		case c.ready.IsZero(), c.dead && c.used == 0 && !c.h2: // what made it ready may not have left
			dials = append(dials, c)
		case !c.spent.IsZero():
			if draining++; now.Sub(c.spent) <= limit || c.mux != nil && c.mux.lone() {
				p.taken++
			} else if draining > j.w.o.tr.MaxConnsPerHost { // as many may drain as may be open
				p.taken++
			}
		default:
			p.taken++
			if c.h2 && !c.mux.useless.IsZero() && c.mux.serves(now, limit) {
				p.serving++ // the request for which it was dialled may wait there for a stream
			}
			p.shared = p.shared || c.h2 && c.mux.serves(now, limit) &&
				(j.w.o.tr.HTTP2.StrictMaxConcurrentRequests || !c.mux.full())
			switch {
			case c.free.IsZero() || c.dead || c.h2 && (c.mux.rooms() <= held || h.mayDrain()):
			case held > 0 && !c.h2:
				held--
			default:
				p.free = append(p.free, c)
			}
		}
	}
	owned := h.owned(dials)
	spares := 0
	for _, c := range dials {
		if now.Sub(j.spareUntil(c)) <= limit {
			spares++
		}
	}
	p.coming = j.w.Dials(h.addr)
	p.dials = min(len(dials), owned+spares) + p.coming
	p.serving += owned + p.coming
	return p
}

// owned is how many of these dials may be for requests that last, each for another one.
func (h *host) owned(dials []*peerConn) (n int) {
	var since []time.Time // when each request began to wait, or may have
	for _, x := range h.w.requests {
		if x.host == h {
			if from, until := x.dialled(len(x.attempts)); !from.IsZero() && until.IsZero() {
				since = append(since, from)
			}
		}
	}
	slices.SortFunc(since, time.Time.Compare)
	for _, c := range dials { // in the order in which they were accepted
		if n < len(since) && !since[n].After(c.born) {
			n++
		}
	}
	return n
}

// dialled is when a request may have waited for a connection after so many of its attempts. from
// is zero if it has not, and until if it may wait still.
func (x *request) dialled(attempts int) (from, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case attempts == 0:
		from = x.born
	case x.attempts[attempts-1].lost():
		from = x.attempts[attempts-1].at
	}
	switch {
	case attempts < len(x.attempts):
		until = x.attempts[attempts].at
	case x.over:
		until = x.overAt
	}
	return from, until
}

// spareUntil is until when a dial may keep its place that no request needs any more. If its request
// was given up, that is for as long as the request has waited, and for spareBound at most. If
// another connection has served the request, it is for spareBound.
func (j *judge) spareUntil(c *peerConn) time.Time {
	last := c.born
	for _, x := range c.h.w.requests {
		for i := 0; x.host == c.h && i <= len(x.attempts); i++ {
			from, until := x.dialled(i)
			if from.IsZero() || until.IsZero() || from.After(c.born) || until.Before(c.born) {
				continue
			}
			keeps := spareBound
			// The dial may have begun long before c was accepted, or the request may have been
			// served without having come.
			if i == len(x.attempts) && x.endedBy != nil && x.kind != "reader" && !c.h.wasSilent {
				keeps = min(keeps, until.Sub(c.born))
			}
			last = later(last, until.Add(keeps))
		}
	}
	if d := j.w.o.tr.TLSHandshakeTimeout; d > 0 && c.h.https && !c.shaken && c.h.proxy == "" && j.w.o.dialer != "tls" {
		if ends := c.born.Add(d); ends.Before(last) {
			return ends
		}
	}
	return last
}

// once notes a breach of a request that lasts.
func (j *judge) once(x *request, kind, format string, args ...any) {
	if !x.reported {
		x.reported = true
		if kind == "place" || kind == "room" {
			format += "; the pool: %s"
			args = append(args, strings.Join(client.PoolOf(j.w.o.tr), "; "))
		}
		j.broke(x, kind, format, args...)
	}
}

// limits judges the options that bound a part of a request or of a connection.
func (j *judge) limits() {
	w, now := j.w, j.w.Now()
	slack := w.o.slack + w.tolerance()
	idle := 0
	for _, h := range w.hosts {
		idle += j.idle(h, now, slack)
	}
	if most := w.o.tr.MaxIdleConns; most > 0 && idle > most {
		j.broke(nil, "MaxIdleConns", "%d connections are idle", idle)
	}
	for _, x := range w.requests {
		if x.reported || x.isOver() {
			continue
		}
		j.headCame(x, now, slack)
		if len(x.attempts) == 0 {
			continue
		}
		a := x.attempts[len(x.attempts)-1]
		d := w.o.tr.ResponseHeaderTimeout
		if x.kind == "reader" {
			d += x.gap // the end of the body may be read that much later than its last byte
		}
		waits := !a.whole.IsZero() && x.headless() && !a.lost() && a.deed == "" && x.hangAt < 0 // where its end may be
		if w.o.tr.ResponseHeaderTimeout > 0 && waits && now.Sub(a.whole) > d+slack {
			j.once(x, "ResponseHeaderTimeout", "it waits for the head since %v", a.whole.Sub(epoch))
		}
		j.continues(x, a, now, slack)
	}
}

// idle judges the connections of a host that carry nothing, and counts those of HTTP/1.
func (j *judge) idle(h *host, now time.Time, slack time.Duration) (kept int) {
	tr, held := j.w.o.tr, h.held()
	for _, c := range h.conns {
		if !c.gone.IsZero() || c.reported || c.dead {
			continue
		}
		shakes := !c.shaken && h.https && h.proxy == "" && j.w.o.dialer != "tls"
		if d := tr.TLSHandshakeTimeout; shakes && d > 0 && now.Sub(c.born) > d+slack+5*ms {
			c.reported = true
			j.broke(nil, "TLSHandshakeTimeout", "connection %d of %v is in its handshake since %v", c.n, h.name,
				c.born.Sub(epoch))
		}
		if c.free.IsZero() || c.h2 || now.Sub(c.free) < grace+slack || held > 0 {
			continue
		}
		kept++
		if d := tr.IdleConnTimeout; d > 0 && now.Sub(c.free) > d+grace+slack {
			c.reported = true
			j.broke(nil, "IdleConnTimeout", "connection %d of %v is idle since %v", c.n, h.name, c.free.Sub(epoch))
		}
	}
	most := tr.MaxIdleConnsPerHost
	if most == 0 {
		most = http.DefaultMaxIdleConnsPerHost
	}
	if kept > max(0, most) {
		j.broke(nil, "MaxIdleConnsPerHost", "%d connections of %v are idle", kept, h.name)
	}
	return kept
}

// headCame judges when the head of a request comes that has a connection. It may wait for the first
// byte of its body, but no longer than a probe does.
func (j *judge) headCame(x *request, now time.Time, slack time.Duration) {
	full := func(c *peerConn) bool { return c.h2 && c.mux.full() } // the head may wait for a stream
	if x.host.served || x.host.hasDead() || len(x.attempts) > 0 || slices.ContainsFunc(x.host.conns, full) {
		return
	}
	x.mu.Lock()
	since, live := x.gotConn, x.hooks && !x.over && x.endedBy == nil
	x.mu.Unlock()
	late := live && !since.IsZero() && now.Sub(since) > probeTimeout+slack
	for _, c := range x.host.conns {
		left := !c.spent.IsZero() && (c.gone.IsZero() || c.gone.After(since))
		late = late && !left // it may have sent the head back by GOAWAY
	}
	if late && x.kind == "reader" && x.hangAt != 0 && (x.first == 0 || x.usuallyBodiless()) {
		j.once(x, "head", "its head has not come, although it has a connection since %v", since.Sub(epoch))
	}
}

func (h *host) hasDead() bool {
	return slices.ContainsFunc(h.conns, func(c *peerConn) bool { return c.dead || !c.gone.IsZero() })
}

func (x *request) headless() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.heads == 0
}

// continues judges when the body of a request with Expect begins to be read.
func (j *judge) continues(x *request, a *attempt, now time.Time, slack time.Duration) {
	d := j.w.o.tr.ExpectContinueTimeout
	answers := !a.began.IsZero() || !a.answered.IsZero() || a.deed != ""
	if !x.expect || d == 0 || !x.hasBody() || a.c == nil || a.c.unread || a.lost() || answers || !a.bodyAt.IsZero() {
		return
	}
	from := a.at
	if !a.told100.IsZero() {
		from, d = a.told100, 0
	}
	if x.usuallyBodiless() {
		d += probeTimeout
	}
	x.mu.Lock()
	began := !x.readAt1.IsZero()
	x.mu.Unlock()
	if x.kind == "reader" && began || x.kind == "memory" && a.c.h2 && (a.c.h.h2.window == 0 || a.c.mux.recv <= 0) {
		return
	}
	if now.Sub(from) > d+slack {
		j.once(x, "100 Continue", "its body has not been begun %v after its head came, and ExpectContinueTimeout is %v",
			now.Sub(a.at), j.w.o.tr.ExpectContinueTimeout)
	}
}

// verdict judges how a request has ended, when all is over.
func (j *judge) verdict(x *request) (kind string) {
	x.mu.Lock()
	heads, ends, err, bodyErr, early, over := x.heads, x.ends, x.err, x.bodyErr, x.early, x.over
	bodies, closed, born := x.bodies, x.closed, x.born
	x.mu.Unlock()
	kind = "h1 "
	if x.w.o.mayH2(x.host) {
		kind = "h2 "
	}
	switch {
	case born.IsZero():
		return kind + "not begun"
	case !over:
		j.broke(x, "never ended", "it has not ended")
		return kind + "endless"
	case heads != 1 || ends > 1 || err != nil && ends > 0 || err == nil && ends != 1 && !early:
		j.broke(x, "ends", "%d results, %d ends of the body", heads, ends)
	}
	if x.hooks && x.headers > x.conns {
		j.broke(x, "hooks", "WroteHeaders was called %d times for %d connections", x.headers, x.conns)
	}
	if bodies != closed {
		j.broke(x, "request body", "%d bodies were made, %d were closed", bodies, closed)
	}
	failure := err
	if err == nil && bodyErr != io.EOF {
		failure = bodyErr
	}
	var last *attempt
	if len(x.attempts) > 0 {
		last = x.attempts[len(x.attempts)-1]
	}
	switch {
	case early:
		return kind + "closed early"
	case failure != nil:
		return kind + j.failed(x, last, failure, err == nil)
	case last == nil && x.overload:
		return kind + "overload"
	case last == nil:
		j.broke(x, "result", "it was answered, but has come to no server")
		return kind + "?"
	}
	size := last.plan.size
	if last.bodiless() {
		size = 0
	}
	switch {
	case last.plan.bare && !x.host.https && last.c != nil && last.c.lost == endedByPeer: // such a body ends so
		return kind + "ok"
	case last.plan.cut != "" || last.answered.IsZero():
		j.broke(x, "cut body", "it ended in order behind %d bytes, but the server had: %s", x.got, last.deed)
	case x.got != size || x.status != last.plan.status:
		j.broke(x, "answer body", "status %d with %d bytes, want %d with %d", x.status, x.got, last.plan.status, size)
	}
	if want := last.wantsTrailer(); x.answerTrailer != want {
		j.broke(x, "answer trailer", "the trailer is %q, want %q", x.answerTrailer, want)
	}
	return kind + "ok"
}

// wantsTrailer is the value of the field behind the body.
func (a *attempt) wantsTrailer() string {
	if a.c == nil || !a.plan.trailer || a.bodiless() || !a.c.h2 && !a.plan.chunked {
		return ""
	}
	return strconv.Itoa(a.x.id)
}

// failed judges a failure, in the head or in the body.
func (j *judge) failed(x *request, last *attempt, err error, inBody bool) string {
	tr := x.w.o.tr
	late := x.endedBy != nil && !x.overAt.Before(x.endedAt)
	timeout := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case !x.w.ended.IsZero() && !x.overAt.Before(x.w.ended):
		return "ended with the world"
	case late && errors.Is(err, x.endedBy):
		return "ended by its caller"
	case x.failAt >= 0 && errors.Is(err, errBody):
		return "own body"
	case errors.Is(err, client.ErrQueueFull) && tr.MaxQueued > 0:
		return "queue full"
	case errors.Is(err, client.ErrBodyTooLarge) && tr.MaxUncompressedBytes > 0:
		return "too large"
	case x.largeHead():
		return "head too large"
	case x.host.h2.list > 0 && x.pad > 0 && contains(err, "header list larger"):
		return "request head too large"
	case timeout && tr.ResponseHeaderTimeout > 0 && contains(err, "headers") &&
		(last != nil || x.host.served || x.w.o.net == "faulty"):
		return "header timeout"
	}
	if timeout && x.w.o.net != "calm" && tr.TLSHandshakeTimeout > 0 && contains(err, "handshake") {
		return "slow handshake"
	}
	reset := last != nil && last.c != nil && (last.c.lost == broken || last.c.lost == resetByPeer ||
		last.c.base.Faulted()) // also behind the peer's own end
	if last != nil && (last.deed != "" || last.c != nil && last.c.dead || reset) {
		j.truth(x, last, err, inBody)
		return "peer's deed"
	}
	dialled := errors.Is(err, syscall.ECONNREFUSED) || timeout && contains(err, "dial")
	if x.w.o.net == "faulty" && last == nil && dialled {
		return "dial"
	}
	if x.host.served && x.w.o.net == "faulty" {
		return "network"
	}
	if last != nil && last.crossed(err) {
		return "peer's deed"
	}
	if (x.host.served || x.host.h2.streams == 0) && !x.rewindable() && contains(err, "refused_stream") {
		return "refused, and its body cannot be had again"
	}
	if last == nil || last.lost() {
		if why := x.host.excuse(x); why != "" {
			return "dial or lost connection"
		}
	}
	if late {
		j.broke(x, "error", "it was ended by its caller (%v), and failed with: %v", x.endedBy, err)
		return "?"
	}
	j.broke(x, "failed", "it failed, and no server, network or caller has done anything: %v", err)
	return "?"
}

// contains looks for a word in an error, in lower case.
func contains(err error, word string) bool {
	return strings.Contains(strings.ToLower(err.Error()), word)
}

// crossed reports whether something that the client has sent may have crossed the peer's close.
// That resets the connection, and what has not been read by then is lost (RFC 9112 section 9.6).
// Over HTTP/2 the acknowledgement of SETTINGS is enough.
func (a *attempt) crossed(err error) bool {
	switch reset := errors.Is(err, syscall.ECONNRESET); {
	case a.c == nil:
		return false
	case a.c.h2:
		return a.c.mux.closed && (reset || contains(err, "sent goaway and closed"))
	default:
		return reset && a.c.lost == endedByPeer && (a.x.w.o.net == "faulty" || a.whole.IsZero())
	}
}

// largeHead reports whether the head of an answer may be above the limit.
func (x *request) largeHead() bool {
	most := int(x.w.o.tr.MaxResponseHeaderBytes)
	return most > 0 && slices.ContainsFunc(x.lists, func(n int) bool { return n > most-300 }) // 103 counts, too
}

// excuse is a deed of a host that lets a request fail which has not come.
func (h *host) excuse(x *request) string {
	from := x.born.Add(-50*ms - h.w.o.slack)
	for _, d := range h.deeds {
		if d.at.After(from) && !d.at.After(x.overAt.Add(h.w.o.slack)) {
			return d.what
		}
	}
	for _, c := range h.conns {
		if c.dead && c.born.Before(x.overAt) {
			return "a dead connection"
		}
	}
	if h.silent || h.up > 0 && x.born.Sub(epoch) < h.up+2*time.Second && x.overAt.Sub(epoch) > h.down || h.wasSilent {
		return "it refused connections, or answered none"
	}
	return ""
}

// truth holds an error against what the server did.
func (j *judge) truth(x *request, last *attempt, err error, inBody bool) {
	switch {
	case inBody && errors.Is(err, io.EOF): // before the head it is the error of net/http
		j.broke(x, "error", "a body that was cut has io.EOF: %v", err)
	case !inBody || last.c == nil || last.c.base.Faulted():
		return
	case last.crossed(err):
		return
	case strings.HasPrefix(last.deed, "closed behind") && !errors.Is(err, io.ErrUnexpectedEOF),
		strings.HasPrefix(last.deed, "ended behind") && !errors.Is(err, io.ErrUnexpectedEOF):
		j.broke(x, "error", "the body was cut in order, and its error is not io.ErrUnexpectedEOF: %v", err)
	}
	exact := strings.HasPrefix(last.deed, "closed behind") || strings.HasPrefix(last.deed, "ended behind") ||
		strings.HasPrefix(last.deed, "RST_STREAM behind")
	if exact && inBody && x.got != last.sent && !last.plan.gzip && x.endedBy == nil {
		j.broke(x, "bytes before a cut", "%d bytes of the %d that had come were readable; %s", x.got, last.sent,
			last.deed)
	}
}
