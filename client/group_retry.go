package client

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
)

const (
	defaultRetryBase     = 100 * time.Millisecond
	defaultRetryMax      = 30 * time.Second
	defaultMaxRetryAfter = 5 * time.Minute
)

// A Retry says which outcomes are tried again, and when. The pause after attempt n is random,
// between 0 and Base doubled n-1 times, but at most Max. So clients that failed together do not
// come back together.
//
// A Retry-After field of the response (RFC 9110 section 10.2.3) asks for a time, in seconds or by a
// date. That time is added to the pause, up to MaxRetryAfter. A field that is neither is ignored. A
// date is compared with the response's Date field if there is one, and else with the clock of this
// machine.
//
// A request is not tried again if its context ends before the pause does.
type Retry struct {
	// Attempts is how often a request is sent, the first time included. 0 or 1: once.
	Attempts int
	// Base is the longest random pause after the first attempt. 0: 100 ms.
	Base time.Duration
	// Max is the longest random pause. 0: 30 s.
	Max time.Duration
	// MaxRetryAfter bounds what Retry-After adds to a pause: if a server asks for more, the request
	// waits for so long and is tried again. 0: 5 minutes; negative: the field is ignored.
	MaxRetryAfter time.Duration
	// If says whether an outcome is worth another attempt. It is called by one goroutine at a time,
	// not always the same, and it must not block: the run waits for it.
	//
	// Nil: errors of the Transport are tried again, except for a bad certificate. So are the
	// statuses 429, 502, 503 and 504, however large their bodies are. The request must be one that
	// may be repeated: GET, HEAD, OPTIONS, TRACE, or one with an Idempotency-Key.
	//
	// In either case a request is tried again only if its body can be had again (GetBody).
	If func(Outcome) bool
	// Prepare is called before each attempt, from attempt 1 on, with a clone of the request. It may
	// change the clone, for example to give it a fresh date, signature or token. The clone's body
	// is the attempt's own; its URL must keep its host. The error of Prepare ends the request, in
	// an *Error of the phase Queued.
	//
	// Several goroutines call Prepare at once. It may block: a goroutine is started for each call,
	// and the attempt's Timeout runs meanwhile. If that ends first, Prepare is not waited for.
	Prepare func(attempt int, r *http.Request) error
	// Random is the source of chance, eight bytes for each pause. Runs that use one Group at the
	// same time share it. Nil: crypto/rand.
	Random io.Reader
}

// next is the pause before the next attempt, if there is to be one.
func (p *Retry) next(o *Outcome, now time.Time) (pause time.Duration, again bool) {
	if o.Attempts >= p.Attempts || !canRewind(o.Request) || o.Request.Context().Err() != nil || !p.worth(o) {
		return 0, false
	}
	pause = p.random(o.Attempts) + p.asked(o.Response, now)
	if end, bounded := o.Request.Context().Deadline(); bounded && !now.Add(pause).Before(end) {
		return 0, false
	}
	return pause, true
}

// canRewind reports whether the request's body can be had again.
func canRewind(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

func (p *Retry) worth(o *Outcome) bool {
	switch {
	case p.If != nil:
		return p.If(*o)
	case !isIdempotent(o.Request):
		return false
	case o.Err != nil && !errors.Is(o.Err, ErrGroupBody):
		_, ours := o.Err.(*Error)
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](o.Err)
		return ours && !untrusted && !errors.Is(o.Err, myriad.ErrUnsupported)
	}
	switch o.Response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isIdempotent is net/http's rule for requests that may be sent again although the server may have
// seen them (RFC 9110 section 9.2.2).
func isIdempotent(r *http.Request) bool {
	switch r.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// random is the pause after attempt n without what a server asks for.
func (p *Retry) random(n int) time.Duration {
	longest, most := p.Base, p.Max
	if longest <= 0 {
		longest = defaultRetryBase
	}
	if most <= 0 {
		most = defaultRetryMax
	}
	for ; n > 1 && longest < most; n-- {
		if longest > most/2 {
			longest = most
		} else {
			longest *= 2
		}
	}
	longest = min(longest, most)
	var chance [8]byte
	source := p.Random
	if source == nil {
		source = rand.Reader
	}
	if _, err := io.ReadFull(source, chance[:]); err != nil {
		return longest
	}
	return time.Duration(binary.LittleEndian.Uint64(chance[:]) % (uint64(longest) + 1))
}

// asked is how long the server of a response wants to be left alone, within MaxRetryAfter.
func (p *Retry) asked(response *http.Response, now time.Time) time.Duration {
	most := p.MaxRetryAfter
	if most == 0 {
		most = defaultMaxRetryAfter
	}
	if response == nil || most < 0 {
		return 0
	}
	value := strings.TrimSpace(response.Header.Get("Retry-After"))
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > math.MaxInt64/int64(time.Second) {
			return most // it is out of range
		}
		return min(time.Duration(seconds)*time.Second, most)
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		now = date
	}
	return max(0, min(until.Sub(now), most))
}

// request is what attempt n sends in place of original. If it fails, the body is closed.
func (p *Retry) request(original *http.Request, n int) (*http.Request, error) {
	r := original
	if n > 1 && r.GetBody != nil && r.Body != nil && r.Body != http.NoBody {
		body, err := original.GetBody()
		if err != nil {
			return nil, fmt.Errorf("Request.GetBody: %w", err)
		}
		again := *original
		again.Body = body
		r = &again
	}
	if p.Prepare == nil {
		return r, nil
	}
	r = r.Clone(r.Context())
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if err := p.Prepare(n, r); err != nil {
		closeBody(r)
		return nil, fmt.Errorf("Retry.Prepare: %w", err)
	}
	return r, nil
}
