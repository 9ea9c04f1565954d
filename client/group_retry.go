package client

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/http"
	"time"
)

const (
	defaultRetryBase = 100 * time.Millisecond
	defaultRetryMax  = 30 * time.Second
)

// A Retry says which outcomes are tried again, and when. The pause after attempt n is random,
// between 0 and Base doubled n-1 times, but at most Max. So clients that failed together do not
// come back together.
type Retry struct {
	// Attempts is how often a request is sent, the first time included. 0 or 1: once.
	Attempts int
	// Base is the longest first pause. 0: 100 ms.
	Base time.Duration
	// Max is the longest pause. 0: 30 s.
	Max time.Duration
	// If says whether an outcome is worth another attempt. It is called on the goroutine of the
	// run. Nil: an error of the Transport, and the statuses 429, 502, 503 and 504, if the request
	// may be repeated. That is GET, HEAD, OPTIONS, TRACE, or a request with an Idempotency-Key. In
	// either case a request is tried again only if its body can be had again (GetBody).
	If func(Outcome) bool
	// Random is the source of chance, eight bytes for each pause. Nil: crypto/rand.
	Random io.Reader
}

// next is the pause before the next attempt of a job.
func (p *Retry) next(j *job) (pause time.Duration, again bool) {
	if j.attempts >= p.Attempts || !p.worth(j) {
		return 0, false
	}
	longest, most := p.Base, p.Max
	if longest <= 0 {
		longest = defaultRetryBase
	}
	if most <= 0 {
		most = defaultRetryMax
	}
	for n := 1; n < j.attempts && longest < most; n++ {
		longest *= 2
	}
	return p.portion(min(longest, most)), true
}

func (p *Retry) worth(j *job) bool {
	o := j.outcome
	x := Call{req: o.Request, original: o.Request}
	switch {
	case !x.rewindable() || o.Request.Context().Err() != nil:
		return false
	case p.If != nil:
		return p.If(o)
	case !x.replayable():
		return false
	case o.Err != nil:
		_, ours := o.Err.(*Error)
		return ours
	}
	switch o.Response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// portion is a random part of d.
func (p *Retry) portion(d time.Duration) time.Duration {
	var chance [8]byte
	source := p.Random
	if source == nil {
		source = rand.Reader
	}
	if _, err := io.ReadFull(source, chance[:]); err != nil {
		return d
	}
	return time.Duration(binary.LittleEndian.Uint64(chance[:]) % uint64(d+1))
}
