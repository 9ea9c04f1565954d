package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// RFC 9110 section 10.2.3.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2001, time.February, 3, 4, 5, 6, 0, time.UTC)
	for _, c := range []struct {
		name, value, date string
		most, want        time.Duration
	}{
		{"none", "", "", 0, 0},
		{"seconds", "7", "", 0, 7 * time.Second},
		{"spaces", "  7 ", "", 0, 7 * time.Second},
		{"zero", "0", "", 0, 0},
		{"a date", "Sat, 03 Feb 2001 04:05:16 GMT", "", 0, 10 * time.Second},
		{"a date of RFC 850", "Saturday, 03-Feb-01 04:05:16 GMT", "", 0, 10 * time.Second},
		{"a date of asctime", "Sat Feb  3 04:05:16 2001", "", 0, 10 * time.Second},
		{"a date in the past", "Sat, 03 Feb 2001 04:05:05 GMT", "", 0, 0},
		{"another clock", "Sat, 03 Feb 2001 09:00:10 GMT", "Sat, 03 Feb 2001 09:00:00 GMT", 0, 10 * time.Second},
		{"a Date that is none", "Sat, 03 Feb 2001 04:05:16 GMT", "now", 0, 10 * time.Second},
		{"beyond the default", "3600", "", 0, 5 * time.Minute},
		{"beyond the maximum", "3600", "", time.Second, time.Second},
		{"a date beyond the maximum", "Sat, 03 Feb 2101 04:05:16 GMT", "", time.Minute, time.Minute},
		{"within the maximum", "3600", "", 2 * time.Hour, time.Hour},
		{"more than a Duration", "99999999999", "", math.MaxInt64, math.MaxInt64},
		{"more than 64 bits", "99999999999999999999", "", time.Minute, time.Minute},
		{"negative", "-7", "", 0, 0},
		{"a fraction", "1.5", "", 0, 0},
		{"words", "in a while", "", 0, 0},
		{"digits that are not ASCII", "²", "", 0, 0},
		{"other digits that are not ASCII", "٣", "", 0, 0},
		{"hexadecimal", "0x10", "", 0, 0},
		{"a plus", "+7", "", 0, 0},
		{"ignored", "7", "", -1, 0},
	} {
		r := &http.Response{Header: http.Header{}}
		if c.value != "" {
			r.Header.Set("Retry-After", c.value)
		}
		if c.date != "" {
			r.Header.Set("Date", c.date)
		}
		p := Retry{MaxRetryAfter: c.most}
		if got := p.asked(r, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if d := new(Retry).asked(nil, now); d != 0 {
		t.Errorf("without a response: %v", d)
	}
}

// The next attempt comes when the server wants it, and the random pause later.
func TestGroupHonoursRetryAfter(t *testing.T) {
	x := newCalmWorld(t)
	var at []time.Duration
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		switch at = append(at, x.since()); len(at) {
		case 1:
			p.Write([]byte(say("503 Later", "", "Retry-After: 7")))
		case 2:
			until := x.w.Now().Add(20 * time.Second).Truncate(time.Second)
			p.Write([]byte(say("429 Later", "", "Retry-After: "+until.Format(http.TimeFormat))))
		case 3:
			p.Write([]byte(say("429 Later", "", "Retry-After: 86400")))
		case 4:
			p.Write([]byte(say("503 Later", "")))
		default:
			welcome(p, r)
		}
	})
	g := &Group{Transport: x.tr, Retry: Retry{Attempts: 9, Base: 100 * time.Millisecond, Max: 400 * time.Millisecond,
		MaxRetryAfter: time.Minute, Random: &longest{}}}
	x.run(func() {
		sum, err := g.Each(context.Background(), simGets("http://"+host), func(o Outcome) {})
		if err != nil || sum.Responses != 1 || sum.Retries != 4 {
			t.Fatalf("%v, %v", sum, err)
		}
	})
	x.within("7 s", at[1]-at[0], 7100*time.Millisecond, 7100*time.Millisecond)
	x.within("a date", at[2]-at[1], 19200*time.Millisecond, 20200*time.Millisecond)
	x.within("at most a minute", at[3]-at[2], time.Minute+400*time.Millisecond, time.Minute+400*time.Millisecond)
	x.within("a pause without the field", at[4]-at[3], 400*time.Millisecond, 400*time.Millisecond)
}

// A request whose context ends before it could be tried again has its outcome at once.
func TestRetryNotBeyondDeadline(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(func(p *sim.Peer, r *http.Request) { p.Write([]byte(say("503 Later", "", "Retry-After: 7"))) })
	ctx := newSimContext(x.w)
	ctx.endIn(5*time.Second, context.DeadlineExceeded)
	g := &Group{Transport: x.tr, Retry: Retry{Attempts: 2}}
	x.run(func() {
		if _, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			yield(simRequest("GET", "http://"+host, nil).WithContext(ctx))
		}, func(o Outcome) {
			if o.Err != nil || o.Response.StatusCode != 503 {
				t.Errorf("%+v", o)
			}
		}); err != nil {
			t.Error(err)
		}
		x.within("the end", x.since(), 0, 0)
		ctx.forget()
	})
}

// fixed is a source of one number.
type fixed uint64

func (f fixed) Read(p []byte) (int, error) {
	return copy(p, binary.LittleEndian.AppendUint64(nil, uint64(f))), nil
}

func TestRetryPauses(t *testing.T) {
	for _, c := range []struct {
		base, most time.Duration
		attempt    int
		longest    time.Duration
	}{
		{0, 0, 1, 100 * time.Millisecond}, {0, 0, 3, 400 * time.Millisecond}, {0, 0, 100, 30 * time.Second},
		{time.Second, 5 * time.Second, 3, 4 * time.Second}, {time.Second, 5 * time.Second, 4, 5 * time.Second},
		{time.Minute, time.Second, 1, time.Second}, {-1, -1, 1, 100 * time.Millisecond},
		{time.Hour, math.MaxInt64, 1000, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, 2, math.MaxInt64},
		{1, math.MaxInt64, math.MaxInt, math.MaxInt64},
	} {
		p := Retry{Base: c.base, Max: c.most, Random: bytes.NewReader(nil)}
		if got := p.random(c.attempt); got != c.longest {
			t.Errorf("%v: without chance %v", c, got)
		}
		for _, chance := range []uint64{0, 1, uint64(c.longest), uint64(c.longest) + 1, math.MaxUint64} {
			p.Random = fixed(chance)
			want := time.Duration(chance % (uint64(c.longest) + 1))
			if got := p.random(c.attempt); got != want || got < 0 {
				t.Errorf("%v: chance %d makes %v, want %v", c, chance, got, want)
			}
		}
		p.Random = nil
		if got := p.random(c.attempt); got < 0 || got > c.longest {
			t.Errorf("%v: %v", c, got)
		}
	}
}

// What is worth another attempt without If.
func TestRetryDefault(t *testing.T) {
	get, post := simRequest("GET", "http://h", nil), simRequest("POST", "http://h", strings.NewReader("x"))
	keyed := post.Clone(context.Background())
	keyed.Header.Set("Idempotency-Key", "1")
	once := keyed.Clone(context.Background())
	once.GetBody = nil
	ours := &Error{Sent, "h:80", io.ErrUnexpectedEOF}
	for _, c := range []struct {
		name   string
		r      *http.Request
		status int
		err    error
		again  bool
	}{
		{"200", get, 200, nil, false}, {"301", get, 301, nil, false}, {"404", get, 404, nil, false},
		{"429", get, 429, nil, true}, {"500", get, 500, nil, false}, {"502", get, 502, nil, true},
		{"503", get, 503, nil, true}, {"504", get, 504, nil, true}, {"501", get, 501, nil, false},
		{"an error", get, 0, ours, true}, {"a plain error", get, 0, errors.New("no URL"), false},
		{"a POST", post, 503, nil, false}, {"a POST with a key", keyed, 503, nil, true},
		{"a body that is gone", once, 503, nil, false},
		{"a bad certificate", get, 0, &Error{Dialing, "h:443", &tls.CertificateVerificationError{}}, false},
		{"a large body", get, 200, &Error{Body, "h:80", ErrGroupBody}, false},
		{"a large body of 503", get, 503, &Error{Body, "h:80", ErrGroupBody}, true},
		{"an upgrade", get, 0, &Error{Body, "h:80", myriad.ErrUnsupported}, false},
		{"a timeout", get, 0, &Error{Body, "h:80", errGroupTimeout}, true},
	} {
		o := &Outcome{Request: c.r, Err: c.err, Attempts: 1}
		if c.status > 0 {
			o.Response = &http.Response{StatusCode: c.status, Header: http.Header{}}
		}
		p := Retry{Attempts: 2}
		if _, again := p.next(o, time.Now()); again != c.again {
			t.Errorf("%s: again %v", c.name, again)
		}
		p.If = func(Outcome) bool { return true }
		if _, again := p.next(o, time.Now()); again != (c.r != once) {
			t.Errorf("%s: If is not asked", c.name)
		}
		o.Attempts = 2
		if _, again := p.next(o, time.Now()); again {
			t.Errorf("%s: a third attempt", c.name)
		}
	}
}

// Prepare is called with a clone for each attempt, whose body is fresh.
func TestRetryPrepare(t *testing.T) {
	x := newCalmWorld(t)
	var got []string
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		if got = append(got, strings.Join(r.Header["X-Signed"], " ")); len(got) < 3 {
			p.Write([]byte(say("503 Later", "")))
			return
		}
		welcome(p, r)
	})
	put := simRequest("PUT", "http://"+host+"/p", strings.NewReader("text"))
	put.Header = http.Header{"Idempotency-Key": {"1"}, "X-Signed": nil}
	g := &Group{Transport: x.tr, Retry: Retry{Attempts: 3, Random: zeroes{}}}
	g.Retry.Prepare = func(n int, r *http.Request) error {
		body, err := r.GetBody()
		if err != nil {
			return err
		}
		text, _ := io.ReadAll(body)
		r.Header.Set("X-Signed", strings.Repeat(string(text), n))
		return nil
	}
	x.run(func() {
		only := func(yield func(*http.Request) bool) { yield(put) }
		if _, err := g.Each(context.Background(), only, func(o Outcome) {
			if o.Err != nil || o.Request != put || o.Attempts != 3 || o.Response.Request.Header.Get("X-Signed") == "" {
				t.Errorf("%+v", o)
			}
		}); err != nil {
			t.Error(err)
		}
	})
	if strings.Join(got, ",") != "text,texttext,texttexttext" || len(put.Header["X-Signed"]) != 0 {
		t.Errorf("%q, %v", got, put.Header)
	}
}

// If Prepare fails, or the body cannot be had again, the request ends with that error. Its body is
// closed, and If is not asked.
func TestRetryCannotPrepare(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(func(p *sim.Peer, r *http.Request) { p.Write([]byte(say("503 Later", ""))) })
	unsigned := errors.New("no key")
	for attempt, want := range map[int]error{1: unsigned, 2: unsigned, 3: errSimBody} {
		opened := []*simBody{{left: "text"}}
		put := simRequest("PUT", "http://"+host, nil)
		put.Body = opened[0]
		put.GetBody = func() (io.ReadCloser, error) {
			if len(opened) == 2 {
				return nil, errSimBody
			}
			opened = append(opened, &simBody{left: "text"})
			return opened[len(opened)-1], nil
		}
		asked := 0
		g := &Group{Transport: x.tr, Retry: Retry{Attempts: 9, Random: zeroes{}}}
		g.Retry.If = func(Outcome) bool { asked++; return true }
		g.Retry.Prepare = func(n int, r *http.Request) error {
			if n == attempt {
				return unsigned
			}
			return nil
		}
		x.w.Go(func() {
			_, _ = g.Each(context.Background(), func(yield func(*http.Request) bool) { yield(put) }, func(o Outcome) {
				e, _ := o.Err.(*Error)
				if e == nil || e.Phase != Queued || e.Addr != host || !errors.Is(e, want) || o.Attempts != attempt ||
					o.Response != nil {
					t.Errorf("attempt %d: %+v", attempt, o)
				}
			})
		})
		x.w.Run()
		for i, b := range opened {
			if !b.closed {
				t.Errorf("attempt %d: body %d is open", attempt, i)
			}
		}
		if asked != attempt-1 {
			t.Errorf("attempt %d: If was asked %d times", attempt, asked)
		}
	}
	x.run(func() {})
}

// A Prepare that hangs ends with the Timeout of its attempt. What it returns later is not sent, and
// its body is closed.
func TestRetryPrepareHangs(t *testing.T) {
	x := newCalmWorld(t)
	sent := 0
	host := x.serve(func(p *sim.Peer, r *http.Request) { sent++; welcome(p, r) })
	body := &simBody{left: "text"}
	put := simRequest("PUT", "http://"+host+"/hangs", nil)
	put = put.WithContext(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GetConn: func(string) { sent++ }}))
	put.Body = body
	g := &Group{Transport: x.tr, AtOnce: 2, Timeout: 100 * time.Millisecond,
		Retry: Retry{Prepare: func(_ int, r *http.Request) error {
			if r.URL.Path == "/hangs" {
				sleep(x.w.NewParker(), x.w, time.Minute)
			}
			return nil
		}}}
	x.run(func() {
		sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			_ = yield(put) && yield(simRequest("GET", "http://"+host, nil))
		}, func(o Outcome) {
			e, _ := o.Err.(*Error)
			if o.Request == put && (e == nil || e.Phase != Queued || !errors.Is(e, context.DeadlineExceeded)) {
				t.Errorf("%v", o.Err)
			}
		})
		if err != nil || sum.Responses != 1 || sum.Failures["queued"] != 1 {
			t.Errorf("%v, %v", sum, err)
		}
		x.within("the end", x.since(), 100*time.Millisecond, 100*time.Millisecond)
	})
	if sent != 1 || !body.closed {
		t.Errorf("%d were sent, the body is closed: %v", sent, body.closed)
	}
}

// So does a Transport.Proxy that hangs. It holds up no other request.
func TestGroupProxyHangs(t *testing.T) {
	x := newCalmWorld(t)
	sent := 0
	host := x.serve(func(p *sim.Peer, r *http.Request) { sent++; welcome(p, r) })
	x.tr.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Path == "/hangs" {
			sleep(x.w.NewParker(), x.w, time.Minute)
		}
		return nil, nil
	}
	g := &Group{Transport: x.tr, Timeout: 100 * time.Millisecond}
	x.run(func() {
		sum, err := g.Each(context.Background(), simGets("http://"+host+"/hangs", "http://"+host+"/"), func(o Outcome) {
			if o.Err == nil {
				x.within("the other one", x.since(), 0, 0)
			} else {
				x.within("it", x.since(), 100*time.Millisecond, 100*time.Millisecond)
			}
		})
		if err != nil || sum.Responses != 1 || sum.Failures["queued"] != 1 {
			t.Errorf("%v, %v", sum, err)
		}
		sleep(x.w.NewParker(), x.w, 2*time.Minute)
	})
	if sent != 1 {
		t.Errorf("%d were sent", sent)
	}
}

// Without If a bad certificate is final.
func TestRetryCertificates(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	g := &Group{Transport: fresh(t, &Transport{}), Retry: Retry{Attempts: 5, Base: 1}}
	sum, err := g.Each(t.Context(), simGets(secure.URL), func(o Outcome) {
		if _, ok := errors.AsType[*tls.CertificateVerificationError](o.Err); !ok {
			t.Errorf("%v", o.Err)
		}
	})
	if err != nil || sum.Failed != 1 || sum.Retries != 0 {
		t.Errorf("%v, %v", sum, err)
	}
}

// A request whose context was cancelled is not tried again, whatever If says.
func TestRetryNotAfterCancel(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(silent)
	ctx := newSimContext(x.w)
	ctx.endIn(time.Second, context.Canceled)
	g := &Group{Transport: x.tr, Retry: Retry{Attempts: 9, Base: 1, If: func(Outcome) bool { return true }}}
	x.run(func() {
		sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			yield(simRequest("GET", "http://"+host, nil).WithContext(ctx))
		}, func(o Outcome) {
			if !errors.Is(o.Err, context.Canceled) || o.Attempts != 1 {
				t.Errorf("%+v", o)
			}
		})
		if err != nil || sum.Retries != 0 {
			t.Errorf("%v, %v", sum, err)
		}
		x.within("the end", x.since(), time.Second, time.Second)
	})
}

// A request that pauses takes no place, however long its server wants it to.
func TestRetryPausesTakeNoPlace(t *testing.T) {
	x := newCalmWorld(t)
	asked := 0
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		if asked++; asked == 1 {
			p.Write([]byte(say("429 Later", "", "Retry-After: 60")))
			return
		}
		welcome(p, r)
	})
	g := &Group{Transport: x.tr, AtOnce: 1, Hold: 2, Retry: Retry{Attempts: 2, Random: zeroes{}}}
	x.run(func() {
		var order []string
		if _, err := g.Each(context.Background(), simGets("http://"+host+"/1", "http://"+host+"/2"), func(o Outcome) {
			if order = append(order, o.Request.URL.Path); len(order) == 1 {
				x.within("the other", x.since(), 0, 0)
			}
		}); err != nil || strings.Join(order, "") != "/2/1" {
			t.Errorf("%v, %v", order, err)
		}
		x.within("it", x.since(), time.Minute, time.Minute)
	})
}

// An outcome has all of the last response, also if If has read it.
func TestRetryGivesUp(t *testing.T) {
	x := newCalmWorld(t)
	asked := 0
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		asked++
		p.Write([]byte(say("503 Later", fmt.Sprint("because ", asked), fmt.Sprint("X-Asked: ", asked))))
	})
	g := &Group{Transport: x.tr, Retry: Retry{Attempts: 9, Random: zeroes{}, If: func(o Outcome) bool {
		p, err := io.ReadAll(o.Response.Body)
		return err == nil && string(p) == string(o.Body) && o.Attempts < 3
	}}}
	x.run(func() {
		sum, err := g.Each(context.Background(), simGets("http://"+host), func(o Outcome) {
			p, err := io.ReadAll(o.Response.Body)
			if o.Err != nil || o.Attempts != 3 || string(o.Body) != "because 3" || string(p) != "because 3" ||
				err != nil || o.Response.Header.Get("X-Asked") != "3" {
				t.Errorf("%+v: %q, %v", o, p, err)
			}
		})
		if err != nil || sum.Statuses[503] != 1 || sum.Retries != 2 {
			t.Errorf("%v, %v", sum, err)
		}
	})
}

// Neither a body of 503 that is too large nor one that drips keeps the request from being tried
// again.
func TestRetryBodyOfRefusal(t *testing.T) {
	x := newCalmWorld(t)
	asked := 0
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		switch asked++; asked {
		case 1:
			p.Write([]byte(say("503 Later", strings.Repeat("x", 200))))
		case 2:
			p.Write([]byte("HTTP/1.1 503 Later\r\nTransfer-Encoding: chunked\r\n\r\n"))
			var drip func()
			drip = func() {
				if p.Write([]byte("1\r\nx\r\n")); !p.Closed() {
					x.w.AfterFunc(40*time.Millisecond, drip)
				}
			}
			drip()
		default:
			welcome(p, r)
		}
	})
	g := &Group{Transport: x.tr, MaxBody: 100, Timeout: time.Second, Retry: Retry{Attempts: 3, Random: zeroes{}}}
	x.run(func() {
		sum, err := g.Each(context.Background(), simGets("http://"+host), func(o Outcome) {})
		if err != nil || sum.Statuses[200] != 1 || sum.Retries != 2 {
			t.Errorf("%v, %v", sum, err)
		}
		x.within("the end", x.since(), time.Second, time.Second)
	})
}
