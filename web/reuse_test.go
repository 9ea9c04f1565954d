package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/exchange"
)

// keeper keeps what it is given of each request, and says what it finds.
type keeper struct {
	mu       sync.Mutex
	requests []*http.Request
	writers  []http.ResponseWriter
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(w.Header()) > 0 || r.Form != nil || r.PathValue("id") != "" || r.Context().Err() != nil {
		fmt.Fprintf(w, "left over: %v %v %q %v;", w.Header(), r.Form, r.PathValue("id"), r.Context().Err())
	}
	fmt.Fprint(w, r.URL.Path, " ", len(r.Header), " ", r.Header.Get("X-Path"), "\n")
	w.Header().Set("X-Left", "over")
	r.SetPathValue("id", "left over")
	r.ParseForm()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests, k.writers = append(k.requests, r), append(k.writers, w)
}

// ask sends n requests on one connection, by fives, of which some have a field that others have
// not.
func (k *keeper) ask(t *testing.T, f *fixture, who string, n int) {
	c := dial(t, f)
	r := bufio.NewReader(c)
	for i := 0; i < n; i += 5 {
		var all, want strings.Builder
		for j := i; j < i+5; j++ {
			path, field, value := fmt.Sprintf("/%s/%d", who, j), "", ""
			if j%2 == 0 {
				field, value = "X-Path: "+path+"\r\n", path
			}
			fmt.Fprintf(&all, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, field)
			fmt.Fprintf(&want, "%s %d %s\n", path, 1-j%2, value)
		}
		io.WriteString(c, all.String())
		got := ""
		for range 5 {
			resp, err := http.ReadResponse(r, nil)
			got += mustBody(t, resp, err)
		}
		if got != want.String() {
			t.Errorf("%s: got %q, want %q", who, got, want.String())
			return
		}
	}
}

func (k *keeper) askTogether(t *testing.T, f *fixture) {
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { k.ask(t, f, fmt.Sprint("client", i), 100) })
	}
	clients.Wait()
}

func eachDispatchAndDepth(t *testing.T, test func(t *testing.T, s *Server)) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
		for _, depth := range []int{1, 8} {
			t.Run(fmt.Sprint(d, "/", depth), func(t *testing.T) { test(t, &Server{Dispatch: d, PipelineDepth: depth}) })
		}
	}
}

// A request that is kept stays as it was, unless ReuseRequests is set.
func TestRequestsAreNotUsedAgain(t *testing.T) {
	eachDispatchAndDepth(t, func(t *testing.T, s *Server) {
		k := new(keeper)
		s.Handler = k
		k.askTogether(t, serve(t, s))
		seen, paths := map[any]bool{}, map[string]bool{}
		for i, r := range k.requests {
			if seen[r] || seen[k.writers[i]] || paths[r.URL.Path] {
				t.Fatalf("request %d, %s, is an earlier one", i, r.URL.Path)
			}
			seen[r], seen[k.writers[i]], paths[r.URL.Path] = true, true, true
			if p := r.Header.Get("X-Path"); p != "" && p != r.URL.Path || r.RequestURI != r.URL.Path {
				t.Fatalf("request %d: %s has become %s, %s", i, r.URL.Path, r.RequestURI, p)
			}
		}
		if len(k.requests) != 400 {
			t.Fatalf("%d requests came", len(k.requests))
		}
	})
}

// With ReuseRequests they are, and nothing of one shows in another.
func TestReuseRequests(t *testing.T) {
	eachDispatchAndDepth(t, func(t *testing.T, s *Server) {
		k := new(keeper)
		s.Handler, s.ReuseRequests = k, true
		k.askTogether(t, serve(t, s))
		seen := map[*http.Request]bool{}
		for _, r := range k.requests {
			seen[r] = true
		}
		if len(k.requests) != 400 || len(seen) > 380 { // the race detector has pools forget some
			t.Fatalf("%d requests, %d of them new", len(k.requests), len(seen))
		}
	})
}

// A request is not used again while a goroutine may still work for it: a context was derived from
// its context, or it has a body.
func TestReuseSparesDerivedContexts(t *testing.T) {
	var mu sync.Mutex
	seen := map[*http.Request]bool{}
	s := &Server{ReuseRequests: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/body" {
			_, cancel := context.WithTimeout(r.Context(), time.Hour)
			defer cancel()
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[r] {
			t.Errorf("%s is an earlier request", r.URL.Path)
		}
		seen[r] = true
	})}
	f := serve(t, s)
	c := dial(t, f)
	answers := bufio.NewReader(c)
	for i := range 100 {
		request := "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		if i%2 == 0 {
			request = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
		}
		io.WriteString(c, request)
		resp, err := http.ReadResponse(answers, nil)
		mustBody(t, resp, err)
	}
}

// A header that a handler has put into its request is the handler's.
func TestReuseSparesForeignHeaders(t *testing.T) {
	own := http.Header{"Mine": {"and mine alone"}}
	f := serve(t, &Server{ReuseRequests: true, Dispatch: DispatchInline,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header = own
		})})
	for range 10 {
		resp, err := client(t).Get(f.url("/"))
		mustBody(t, resp, err)
	}
	f.Close()
	if len(own) != 1 {
		t.Fatalf("the handler's header has become %v", own)
	}
}

// lateComer is a handler that uses the ResponseWriters of earlier requests while it answers a later
// one.
type lateComer struct {
	t     *testing.T
	mu    sync.Mutex
	late  []http.ResponseWriter
	seen  map[*exchange.Response]bool
	again int // requests whose response was an earlier one's
}

func (l *lateComer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := w.(*exchange.Given).Out.Load()
	w.Header().Set("X-Path", r.URL.Path)
	l.mu.Lock()
	if l.seen[out] {
		l.again++
	}
	l.seen[out] = true
	for _, old := range l.late {
		l.misuse(old)
	}
	l.late = append(l.late, w)[max(0, len(l.late)-8):]
	l.mu.Unlock()
	fmt.Fprint(w, "only ", r.URL.Path)
}

// misuse does what is not allowed with w, unless its handler is still there.
func (l *lateComer) misuse(w http.ResponseWriter) {
	if out := w.(*exchange.Given).Out.Load(); out != nil {
		return // the loop, or a goroutine of the pool, is about to part with it
	}
	for name, try := range map[string]func() error{
		"Write":       func() error { _, err := w.Write([]byte("intruder")); return err },
		"WriteString": func() error { _, err := io.WriteString(w, "intruder"); return err },
		"ReadFrom":    func() error { _, err := io.Copy(w, strings.NewReader("intruder")); return err },
		"Flush":       func() error { return http.NewResponseController(w).Flush() },
		"Hijack":      func() error { _, _, err := http.NewResponseController(w).Hijack(); return err },
		"Upgrade":     func() error { return Upgrade(w, []byte("intruder"), nil) },
		"Detached":    func() error { _, err := Detached(w); return err },
	} {
		if err := try(); err == nil {
			l.t.Errorf("%s after the handler has returned does not fail", name)
		}
	}
	w.WriteHeader(http.StatusTeapot)
	if h := w.Header(); !strings.HasPrefix(h.Get("X-Path"), "/") {
		l.t.Errorf("the header of an answer that has gone is %v", h)
	}
	w.Header().Set("X-Intruder", "yes")
	past := time.Unix(0, 1)
	http.NewResponseController(w).SetWriteDeadline(past)
	http.NewResponseController(w).SetReadDeadline(past)
	http.NewResponseController(w).EnableFullDuplex()
}

// A goroutine that uses a ResponseWriter after its handler has returned does no harm. It reaches no
// other request's answer, although the server uses the memory again.
func TestLateComersHarmNobody(t *testing.T) {
	t.Parallel()
	eachDispatchAndDepth(t, func(t *testing.T, s *Server) {
		l := &lateComer{t: t, seen: map[*exchange.Response]bool{}}
		s.Handler, s.ErrorLog = l, log.New(io.Discard, "", 0)
		f := serve(t, s)
		var clients sync.WaitGroup
		for i := range 4 {
			clients.Go(func() {
				c := dial(t, f)
				answers := bufio.NewReader(c)
				for j := range 100 {
					path := fmt.Sprintf("/%d/%d", i, j)
					fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
					resp, err := http.ReadResponse(answers, nil)
					if body := mustBody(t, resp, err); body != "only "+path || resp.StatusCode != 200 ||
						resp.Header.Get("X-Path") != path ||
						resp.Header.Get("X-Intruder") != "" {
						t.Errorf("%s: %s, %v, %q", path, resp.Status, resp.Header, body)
						return
					}
				}
			})
		}
		clients.Wait()
		if l.again < 20 {
			t.Errorf("%d of 400 responses were used before: nothing was tried", l.again)
		}
	})
}

// Each request has its own client's address, whichever came before, and a client that has gone is
// not remembered.
func TestRemoteAddrOfClientsInTurn(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		t.Run(d.String(), func(t *testing.T) {
			s := &Server{Dispatch: d,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, r.RemoteAddr)
				})}
			f := serve(t, s)
			clients := []net.Conn{dial(t, f), dial(t, f), dial(t, f)}
			for i := range 30 {
				c := clients[i%len(clients)]
				n := 1 + i%4
				io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", n))
				answers := bufio.NewReader(c)
				for range n {
					resp, err := http.ReadResponse(answers, nil)
					if got := mustBody(t, resp, err); got != c.LocalAddr().String() {
						t.Fatalf("a request of %v says that it is from %s", c.LocalAddr(), got)
					}
				}
			}
			for _, c := range clients {
				c.Close()
			}
			for s.state.Conns.Load() > 0 {
				runtime.Gosched()
			}
			for i, ln := range s.state.lanes {
				told := make(chan bool)
				if err := ln.Loop.Do(func() { told <- ln.Asked == nil && ln.Address == "" }); err != nil || !<-told {
					t.Errorf("loop %d remembers a client that has gone (%v)", i, err)
				}
			}
		})
	}
}
