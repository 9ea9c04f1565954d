package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web"
)

// Client and server in one world with faults, resets and short deliveries: each request ends once,
// with the response to itself or with an error that names a phase. Then the world is empty.
func TestSimulatedClients(t *testing.T) {
	results := map[string]int{}
	for seed := range soak.Size(t, uint64(60), 2000) {
		if simulateClients(t, seed, results); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(results)
	for _, kind := range []string{"h1 ok", "h1 body", "h1 sent", "h1 queued", "h2 ok", "h2 sent"} {
		if results[kind] == 0 {
			t.Errorf("no request ended in %q: %v", kind, results)
		}
	}
}

// A simCall is one request of such a run.
type simCall struct {
	id       int
	phased   bool // its errors name a phase: it is sent by Do
	method   string
	text     string
	cancelIn time.Duration
	head     int // times its result came
	ended    int // times its body ended
	got      strings.Builder
	err      error
}

func simulateClients(t *testing.T, seed uint64, results map[string]int) {
	w := sim.New(seed, sim.Options{})
	quiet := slog.New(slog.DiscardHandler)
	e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet, WriteLimit: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Engine: e, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(simHandler(w))}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 2))
	tr := &Transport{Engine: e, MaxConnsPerHost: r.IntN(4), MaxIdleConnsPerHost: 1 + r.IntN(3),
		IdleConnTimeout: time.Duration(r.IntN(2)) * time.Second, ExpectContinueTimeout: 50 * time.Millisecond,
		ResponseHeaderTimeout: time.Minute}
	kind := "h1 "
	if seed%3 == 0 {
		kind, tr.Protocols = "h2 ", new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	var calls []*simCall
	for id := range 1 + r.IntN(20) {
		x := newSimCall(id, r)
		calls = append(calls, x)
		w.AfterFunc(time.Duration(r.IntN(300))*time.Millisecond, x.begin(w, tr, ln.Addr().String(), r.IntN(3)))
	}
	w.Run()
	for _, x := range calls {
		x.check(t, kind, results)
	}
	if n := inFlight(tr); n != 0 {
		t.Errorf("%d calls are counted as under way", n)
	}
	tr.CloseIdleConnections()
	s.Close()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
	for k, h := range tr.pool.hosts {
		t.Errorf("host %v: %d connections, %d dials, %d waiting", k, h.conns, h.dialling, h.calls.waiting)
	}
}

func inFlight(tr *Transport) (n int64) {
	for p := range Done {
		n += tr.figures.calls[p].Load()
	}
	return n
}

// simHandler answers with the request's path and body, in the way that the path asks for.
func simHandler(w *sim.World) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/early") {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/flush") {
			http.NewResponseController(rw).Flush()
		}
		if strings.HasSuffix(r.URL.Path, "/panic") {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(rw, r.URL.Path+" ")
		w.Linger()
		io.Copy(rw, r.Body)
	}
}

func newSimCall(id int, r *rand.Rand) *simCall {
	x := &simCall{id: id, method: []string{"GET", "POST", "PUT"}[r.IntN(3)]}
	if x.method != "GET" {
		x.text = strings.Repeat(fmt.Sprint(id), r.IntN(30_000))
	}
	if r.IntN(3) == 0 {
		x.cancelIn = time.Duration(1+r.IntN(100)) * time.Millisecond
	}
	return x
}

func (x *simCall) path() string {
	return fmt.Sprintf("/%d/%s", x.id, []string{"plain", "flush", "plain", "early", "panic"}[x.id%5])
}

// begin sends the request in one of three ways.
func (x *simCall) begin(w *sim.World, tr *Transport, addr string, how int) func() {
	return func() {
		var body io.Reader = strings.NewReader(x.text)
		if x.id%3 == 1 {
			body = &trickle{x.text}
		}
		r, err := http.NewRequestWithContext(context.Background(), x.method, "http://"+addr+x.path(), body)
		if err != nil {
			panic(err)
		}
		if x.id%7 == 3 {
			r.Header.Set("Expect", "100-continue")
		}
		if how == 0 {
			w.Go(func() { x.roundTrip(tr, r) })
			return
		}
		x.phased = true
		call := tr.Do(r, x.done)
		if x.cancelIn > 0 {
			w.AfterFunc(x.cancelIn, call.Cancel)
		}
	}
}

func (x *simCall) roundTrip(tr *Transport, r *http.Request) {
	res, err := tr.RoundTrip(r)
	x.head++
	if err != nil {
		x.err = err
		return
	}
	defer res.Body.Close()
	_, err = io.Copy(&x.got, res.Body)
	x.ended++
	x.err = err
}

func (x *simCall) done(res *http.Response, err error) {
	x.head++
	if err != nil {
		x.err = err
		return
	}
	OnBody(res, func(p []byte, err error) {
		x.got.Write(p)
		if err != nil {
			x.ended++
			if err != io.EOF {
				x.err = err
			}
			res.Body.Close()
		}
	})
}

func (x *simCall) check(t *testing.T, kind string, results map[string]int) {
	want := x.path() + " " + x.text
	if strings.HasSuffix(x.path(), "early") {
		want = ""
	}
	e, named := errors.AsType[*Error](x.err)
	switch {
	case x.head != 1 || x.ended > 1:
		t.Errorf("request %d: %d results, %d ends", x.id, x.head, x.ended)
	case x.err != nil && named != x.phased:
		t.Errorf("request %d: no phase in %v", x.id, x.err)
	case x.err == nil && x.ended != 1:
		t.Errorf("request %d: the body has not ended", x.id)
	case x.err == nil && x.got.String() != want:
		t.Errorf("request %d: got %.60q, want %.60q", x.id, x.got.String(), want)
	case x.err == nil:
		results[kind+"ok"]++
	case named:
		results[kind+e.Phase.String()]++
	}
}
