package web

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"
)

// backend answers what a proxy has to pass on: trailers, pieces, an answer that breaks off.
func backend(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/trailers":
		w.Header().Set("Trailer", "Sum")
		n, _ := io.Copy(w, r.Body)
		w.Header().Set("Sum", fmt.Sprint(n))
		w.Header().Set(http.TrailerPrefix+"Late", r.Trailer.Get("Mine"))
	case "/pieces":
		for i := range 3 {
			fmt.Fprint(w, i)
			w.(http.Flusher).Flush()
		}
	case "/cut":
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/hints":
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		io.WriteString(w, "hinted")
	default:
		p, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, r.URL, r.Header["X-Forwarded-For"], len(p), err)
	}
}

var proxied = []string{
	get + "Connection: close\r\n\r\n",
	"POST /echo?a=b HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
	"POST /trailers HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTE: trailers\r\nTrailer: Mine\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nMine: x\r\n\r\n",
	"GET /pieces HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"GET /cut HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"GET /hints HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"HEAD /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
}

func askProxied(t *testing.T, f *fixture, r *record) {
	for _, request := range proxied {
		got, err := sent(t, f, request, false)
		r.add("%.60q %v", request, err)
		r.answers(got, methodsOf(request)...)
	}
	r.add("log: %s", firstLines(f.log.String()))
}

func quietProxy(to string) *httputil.ReverseProxy {
	u, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	p := httputil.NewSingleHostReverseProxy(u)
	p.FlushInterval = -1
	p.ErrorLog = log.New(io.Discard, "", 0)
	p.ModifyResponse = func(resp *http.Response) error {
		if resp.StatusCode == http.StatusSwitchingProtocols &&
			resp.Header.Get("Upgrade") != resp.Request.Header.Get("Upgrade") {
			resp.Body.Close() // the proxy refuses it, and would leave its connection to the garbage collector
		}
		return nil
	}
	return p
}

// httputil.ReverseProxy does as our handler what it does on net/http's server.
func TestReverseProxyAsHandler(t *testing.T) {
	b := httptest.NewServer(http.HandlerFunc(backend))
	defer b.Close()
	sameOnBoth(t, func(s *Server) { s.Handler = quietProxy(b.URL) }, askProxied)
}

// And in front of us.
func TestReverseProxyInFront(t *testing.T) {
	sameOnBoth(t, func(s *Server) { s.Handler = http.HandlerFunc(backend) }, func(t *testing.T, f *fixture, r *record) {
		front := serveStandard(t, &Server{Handler: quietProxy("http://" + f.addr)})
		askProxied(t, front, r)
	})
}

// A client that goes away ends the request to the backend.
func TestReverseProxyOfAbsentClient(t *testing.T) {
	gone := make(chan error, 2)
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- r.Context().Err()
	}))
	defer b.Close()
	sameOnBoth(t, func(s *Server) { s.Handler = quietProxy(b.URL) }, func(t *testing.T, f *fixture, r *record) {
		c := dial(t, f)
		io.WriteString(c, get+end)
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Error(err)
		}
		c.Close()
		select {
		case err := <-gone:
			r.add("%v", err)
		case <-time.After(hangs):
			t.Error("the backend goes on")
		}
	})
}

// ConnState gets the same calls for each kind of connection.
func TestConnStatesLikeNetHTTP(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		request string
		fin     bool
	}{
		"one":         {get + "Connection: close\r\n\r\n", false},
		"silent":      {"", true},
		"bad":         {"nonsense\r\n\r\n", false},
		"unfinished":  {"GET / HTTP/1.1\r\nHo", true},
		"hijack":      {"GET /hijack HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"panic":       {"GET /panic HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"with a body": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nConnection: close\r\n\r\na", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // net/http waits for half a second before it closes some
			var states chan http.ConnState
			sameOnBoth(t, func(s *Server) {
				mine := make(chan http.ConnState, 20)
				states = mine
				s.ConnState = func(_ net.Conn, state http.ConnState) { mine <- state }
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/hijack":
						nc, _, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						nc.Close()
					case "/panic":
						panic("at once")
					}
				})
			}, func(t *testing.T, f *fixture, r *record) {
				sent(t, f, c.request, c.fin)
				for {
					select {
					case state := <-states:
						r.add("%v", state)
						if state == http.StateClosed || state == http.StateHijacked {
							return
						}
					case <-time.After(hangs):
						t.Error("never closed")
						return
					}
				}
			})
		})
	}
}
