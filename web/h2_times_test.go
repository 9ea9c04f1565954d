package web

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// open begins a request whose body is to follow.
func (p *peer) open(target string) (id uint32) {
	id = p.next
	p.next += 2
	m := translate("POST " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")
	p.fields(id, m.head, false)
	p.out.Flush()
	return id
}

// answer waits for the end of a stream.
func (p *peer) answer(id uint32) *reply {
	p.SetDeadline(time.Now().Add(hangs))
	s := new(reply)
	p.hear(s, id)
	return s
}

// stateCases are connections, for ConnState.
var stateCases = map[string]func(p *peer) (note string){
	"nothing":   func(p *peer) string { p.out.Reset(io.Discard); return "" },
	"a preface": func(p *peer) string { p.out.Flush(); return "" },
	"one":       func(p *peer) string { return fmt.Sprint(p.ask(translate(get + end))) },
	"two": func(p *peer) string {
		return fmt.Sprint(p.ask(translate(get+end)), p.ask(translate(get+end)))
	},
	"two at a time": func(p *peer) string {
		a, b := p.open("/"), p.open("/")
		p.fr.WriteData(a, true, nil)
		p.fr.WriteData(b, true, nil)
		p.out.Flush()
		return fmt.Sprint(p.answer(b))
	},
	"a panic": func(p *peer) string {
		return fmt.Sprint(p.ask(translate("GET /panic HTTP/1.1\r\nHost: h\r\n\r\n")))
	},
	"with a body": func(p *peer) string {
		return fmt.Sprint(p.ask(translate(post + "Content-Length: 3\r\n\r\nabc")))
	},
	"malformed": func(p *peer) string { return fmt.Sprint(p.ask(&message{head: []string{":method", "GET"}})) },
	"a connection error": func(p *peer) string {
		p.fr.WriteRawFrame(http2.FramePing, 0, 0, []byte("short"))
		p.out.Flush()
		return fmt.Sprint(p.answer(1))
	},
	"a field of HTTP/1": func(p *peer) string {
		return fmt.Sprint(p.ask(translate("GET /close HTTP/1.1\r\nHost: h\r\n\r\n")))
	},
}

// decidedStates are the cases that differ on purpose.
var decidedStates = map[string]string{"malformed": "a malformed request does not make its connection active"}

// ConnState is called as with net/http, in the clear and over TLS.
func TestHTTP2ConnStatesLikeNetHTTP(t *testing.T) {
	for name, ask := range stateCases {
		for _, way := range waysToHTTP2 {
			t.Run(name+", "+way.name, func(t *testing.T) {
				t.Parallel()
				var states chan http.ConnState
				apart := differs(t, way.standard, way.ours, func(s *Server) {
					mine := make(chan http.ConnState, 20)
					states = mine
					s.Protocols = way.protocols()
					s.ConnState = func(_ net.Conn, state http.ConnState) { mine <- state }
					s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						io.Copy(io.Discard, r.Body)
						switch r.URL.Path {
						case "/panic":
							panic(http.ErrAbortHandler)
						case "/close":
							w.Header().Set("Connection", "close")
						}
					})
				}, func(t *testing.T, f *fixture, r *record) {
					p := peerOn(way.dial(t, f))
					r.add("%s", ask(p))
					p.Close()
					for state := http.StateNew; state != http.StateClosed; {
						state = <-states
						r.add("%v", state)
					}
				})
				reportDecided(t, decidedStates[name], apart)
			})
		}
	}
}

// A way is how clients come to HTTP/2 at both servers.
type way struct {
	name           string
	standard, ours func(testing.TB, *Server) *fixture
	protocols      func() *http.Protocols
	dial           func(testing.TB, *fixture) net.Conn
}

var waysToHTTP2 = []way{
	{"in the clear", serveStandard, serve, plainHTTP2, dial},
	{"TLS", serveStandardMuxed, serveTLS, func() *http.Protocols { return nil },
		func(t testing.TB, f *fixture) net.Conn {
			cfg := trusting()
			cfg.NextProtos = []string{"h2"}
			return f.dialTLS(t, cfg)
		}},
}

// serveStandardMuxed serves with net/http by ALPN.
func serveStandardMuxed(t testing.TB, s *Server) *fixture {
	t.Helper()
	f := &fixture{Server: s, log: new(lockedLog)}
	std := s.standard()
	std.ErrorLog = log.New(f.log, "", 0)
	std.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair()}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	var ended sync.WaitGroup
	ended.Go(func() { std.ServeTLS(ln, "", "") })
	t.Cleanup(func() { std.Close(); ended.Wait() })
	return f
}

// A timeCase is what a handler does with its deadlines, and its client meanwhile.
type timeCase struct {
	name   string
	set    func(s *Server)
	handle func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, step chan bool, notes *record)
	ask    func(p *peer, step chan bool) *reply
}

// timeCases have times of a few units, in which a handler has to begin.
func timeCases(unit time.Duration) []timeCase {
	return slices.Concat(writeTimeCases(unit), readTimeCases(unit), otherTimeCases(unit))
}

func writeTimeCases(unit time.Duration) []timeCase {
	return []timeCase{
		{"WriteTimeout passes", func(s *Server) { s.WriteTimeout = 2 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				<-r.Context().Done()
				_, err := io.WriteString(w, "late")
				notes.add("%v %v %v", err, c.Flush() != nil, r.Context().Err())
			}, nil},
		{"WriteTimeout is moved", func(s *Server) { s.WriteTimeout = 3 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				notes.add("%v", c.SetWriteDeadline(time.Now().Add(time.Hour)))
				time.Sleep(4 * unit)
				_, err := io.WriteString(w, "in time")
				notes.add("%v %v %v", err, c.Flush(), r.Context().Err())
			}, nil},
		{"WriteTimeout is lifted", func(s *Server) { s.WriteTimeout = 3 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				notes.add("%v", c.SetWriteDeadline(time.Time{}))
				time.Sleep(4 * unit)
				_, err := io.WriteString(w, "in time")
				notes.add("%v %v %v", err, c.Flush(), r.Context().Err())
			}, nil},
		{"a write deadline of the past", func(*Server) {},
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				notes.add("%v", c.SetWriteDeadline(time.Unix(1, 0)))
				<-r.Context().Done()
				notes.add("%v %v", c.SetWriteDeadline(time.Now().Add(time.Hour)), r.Context().Err())
				_, err := io.WriteString(w, "late")
				notes.add("%v %v", err != nil || c.Flush() != nil, r.Context().Err())
			}, nil},
	}
}

func readTimeCases(unit time.Duration) []timeCase {
	return []timeCase{
		{"ReadTimeout passes", func(s *Server) { s.ReadTimeout = 2 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				n, err := r.Body.Read(make([]byte, 10))
				notes.add("%d %v", n, kindOf(err))
				n, err = r.Body.Read(make([]byte, 10))
				notes.add("%d %v %v", n, kindOf(err), r.Context().Err())
				io.WriteString(w, "answer")
			}, func(p *peer, _ chan bool) *reply { return p.answer(p.open("/")) }},
		{"ReadTimeout passes behind the body", func(s *Server) { s.ReadTimeout = 2 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				all, err := io.ReadAll(r.Body)
				time.Sleep(3 * unit)
				notes.add("%q %v %v", all, err, r.Context().Err())
				io.WriteString(w, "answer")
			}, func(p *peer, _ chan bool) *reply { return p.ask(translate(post + "Content-Length: 3\r\n\r\nabc")) }},
		{"ReadTimeout is moved", func(s *Server) { s.ReadTimeout = 3 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, step chan bool, notes *record) {
				notes.add("%v", c.SetReadDeadline(time.Now().Add(time.Hour)))
				time.Sleep(4 * unit)
				step <- true
				all, err := io.ReadAll(r.Body)
				notes.add("%q %v %v", all, err, r.Context().Err())
			}, late},
		{"a read deadline of the past", func(*Server) {},
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, step chan bool, notes *record) {
				notes.add("%v", c.SetReadDeadline(time.Unix(1, 0)))
				_, err := r.Body.Read(make([]byte, 1))
				notes.add("%v %v", kindOf(err), r.Context().Err())
				step <- true
				io.WriteString(w, "answer")
			}, late},
		{"a read deadline that is moved back", func(*Server) {},
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, step chan bool, notes *record) {
				c.SetReadDeadline(time.Unix(1, 0))
				_, err := r.Body.Read(make([]byte, 1))
				notes.add("%v %v", kindOf(err), c.SetReadDeadline(time.Now().Add(time.Hour)))
				step <- true
				all, err := io.ReadAll(r.Body)
				notes.add("%q %v %v", all, kindOf(err), r.Context().Err())
			}, late},
	}
}

func otherTimeCases(unit time.Duration) []timeCase {
	return []timeCase{
		{"deadlines when all is over", func(*Server) {},
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
				io.ReadAll(r.Body)
				io.WriteString(w, "answer")
				notes.add("%v %v %v", c.SetReadDeadline(time.Now().Add(time.Hour)),
					c.SetWriteDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex())
			}, nil},
		{"IdleTimeout", func(s *Server) { s.IdleTimeout = 2 * unit },
			func(w http.ResponseWriter, r *http.Request, c *http.ResponseController, _ chan bool, notes *record) {
			}, func(p *peer, _ chan bool) *reply {
				s := p.ask(translate(get + end))
				for !p.over {
					p.hear(new(reply), 99)
				}
				return s
			}},
	}
}

// late sends a body when the handler says so.
func late(p *peer, step chan bool) *reply {
	id := p.open("/")
	select {
	case <-step:
	case <-time.After(hangs): // the handler has come too late to begin
	}
	p.fr.WriteData(id, true, []byte("body"))
	p.out.Flush()
	return p.answer(id)
}

// Deadlines of a stream are as with net/http. Where a busy machine lets a handler begin too late,
// all times are longer in the next attempt.
func TestHTTP2DeadlinesLikeNetHTTP(t *testing.T) {
	for i, c := range timeCases(0) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var apart string
			for _, unit := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
				if apart = timesDiffer(t, timeCases(unit)[i], unit); apart == "" {
					return
				}
			}
			t.Error(apart)
		})
	}
}

// timesDiffer says where the two servers part, or "".
func timesDiffer(t *testing.T, c timeCase, unit time.Duration) string {
	t.Helper()
	var done chan *record
	step := make(chan bool, 1)
	return differs(t, serveStandard, serve, func(s *Server) {
		mine := make(chan *record, 1)
		done = mine
		s.Protocols = plainHTTP2()
		c.set(s)
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			notes := new(record)
			defer func() { mine <- notes }()
			c.handle(w, r, http.NewResponseController(w), step, notes)
		})
	}, func(t *testing.T, f *fixture, r *record) {
		p := newPeer(t, f.addr)
		defer p.Close()
		ask := c.ask
		if ask == nil {
			ask = func(p *peer, _ chan bool) *reply { return p.ask(translate(get + end)) }
		}
		r.add("%s", ask(p, step))
		select {
		case notes := <-done:
			r.add("handler: %s", notes)
		case <-time.After(100 * unit):
			r.add("no handler")
		}
	})
}
