package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/mux"
	"github.com/myriad-go/myriad/web/internal/exchange"
	muxed "github.com/myriad-go/myriad/web/internal/http2"
)

// An echoPipe sends back what it receives. It reads nothing while it has no room, and ends its side
// behind its client's.
type echoPipe struct {
	rest   []byte
	ended  bool
	calls  []string
	closed chan error
	on     func(call string, p *Pipe)
}

func newEchoPipe() *echoPipe { return &echoPipe{closed: make(chan error, 1)} }

func (e *echoPipe) note(call string, p *Pipe) {
	e.calls = append(e.calls, call)
	if e.on != nil {
		e.on(call, p)
	}
}

func (e *echoPipe) Opened(p *Pipe) { e.note("opened", p) }

func (e *echoPipe) Received(p *Pipe, b []byte) {
	if cap(b) != len(b) {
		panic("the room behind what was received can be reached")
	}
	e.rest = append(e.rest, b...)
	e.send(p)
}

func (e *echoPipe) send(p *Pipe) {
	n := len(e.rest)
	for n > 0 {
		var err error
		if n%2 == 0 {
			_, err = p.Write(e.rest[:n])
		} else {
			err = p.WriteBlocks(buf.From(e.rest[:n]))
		}
		if err != nil {
			p.Pause()
			return
		}
		e.rest = e.rest[n:]
		n = len(e.rest)
	}
	p.Resume()
	if e.ended {
		p.Close()
	}
}

func (e *echoPipe) Ended(p *Pipe)    { e.note("ended", p); e.ended = true; e.send(p) }
func (e *echoPipe) Drained(p *Pipe)  { e.send(p) }
func (e *echoPipe) Notified(p *Pipe) { e.note("notified", p) }
func (e *echoPipe) Expired(p *Pipe)  { e.note("expired", p) }
func (e *echoPipe) Stopping(p *Pipe) { e.note("stopping", p); p.Close() }
func (e *echoPipe) Closed(p *Pipe, err error) {
	e.note("closed", p)
	e.closed <- err
}

func (e *echoPipe) want(t *testing.T, calls ...string) {
	t.Helper()
	if !slices.Equal(e.calls, calls) {
		t.Errorf("the handler got %q, want %q", e.calls, calls)
	}
}

// tunnelRequest is an extended CONNECT of x/net's client.
func tunnelRequest(ctx context.Context, url string, body io.Reader) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, http.MethodConnect, url, body)
	req.Header[":protocol"] = []string{"echo"}
	return req
}

// x/net's client talks through a tunnel, more than windows and queues hold, while another request
// is served on the connection.
func TestTunnel(t *testing.T) {
	for _, d := range dispatches {
		e := newEchoPipe()
		f, clients := serveHTTP2(t, &Server{Tunnels: true, Dispatch: d, WriteTimeout: time.Hour,
			ReadTimeout: time.Hour,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodConnect {
					io.WriteString(w, "beside")
					return
				}
				w.Header().Set("X-Own", r.Header.Get(":protocol")+r.URL.Path)
				if err := Tunnel(w, e); err != nil {
					t.Error(err)
				}
			})})
		body, in := io.Pipe()
		resp, err := clients["x/net"].Do(tunnelRequest(t.Context(), f.url("/path"), body))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Own") != "echo/path" || resp.ContentLength != -1 {
			t.Errorf("the answer is %v", resp)
		}
		sent := bytes.Repeat([]byte("0123456789"), 100_000)
		go func() { in.Write(sent); in.Close() }()
		beside, err := clients["x/net"].Get(f.url("/"))
		if got := mustBody(t, beside, err); got != "beside" {
			t.Errorf("got %q", got)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes have come back, %v", len(got), err)
		}
		if err := <-e.closed; err != nil {
			t.Error(err)
		}
		e.want(t, "opened", "ended", "closed")
	}
}

// What a client sends before Tunnel is called, and its end, come behind Opened.
func TestTunnelBytesBefore(t *testing.T) {
	for _, end := range []bool{false, true} {
		e, came := newEchoPipe(), make(chan struct{})
		f, clients := serveHTTP2(t, &Server{Tunnels: true, Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p := make([]byte, 2)
				io.ReadFull(r.Body, p) // the handler may look at the first bytes
				if string(p) != "HE" {
					t.Errorf("the handler has read %q", p)
				}
				<-came
				if err := Tunnel(w, e); err != nil {
					t.Error(err)
				}
				if _, err := r.Body.Read(p); err == nil {
					t.Error("the body can still be read")
				}
			})})
		body, in := io.Pipe()
		go func() {
			in.Write([]byte("HELLO"))
			if end {
				in.Close()
			}
			close(came)
		}()
		resp, err := clients["x/net"].Do(tunnelRequest(t.Context(), f.url("/"), body))
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, p); err != nil || string(p) != "LLO" {
			t.Errorf("%q has come back, %v", p, err)
		}
		if !end {
			in.Close()
		}
		if err := <-e.closed; err != nil {
			t.Error(err)
		}
		e.want(t, "opened", "ended", "closed")
	}
}

// Requests and answers for which there is no tunnel.
func TestTunnelRefused(t *testing.T) {
	h := newEchoPipe()
	for name, c := range map[string]struct {
		handler func(w http.ResponseWriter, r *http.Request) error
		want    string
	}{
		"status": {func(w http.ResponseWriter, r *http.Request) error { w.WriteHeader(404); return Tunnel(w, h) },
			"status 404"},
		"length": {func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Length", "1")
			return Tunnel(w, h)
		}, "Content-Length true"},
		"begun": {func(w http.ResponseWriter, r *http.Request) error {
			w.(http.Flusher).Flush()
			return Tunnel(w, h)
		}, "has begun"},
		"foreign": {func(w http.ResponseWriter, r *http.Request) error { return Tunnel(httptest.NewRecorder(), h) },
			ErrNotMyriad.Error()},
		"detached": {func(w http.ResponseWriter, r *http.Request) error {
			s, err := Detached(w)
			if err == nil {
				defer s.Close()
				err = Tunnel(w, h)
			}
			return err
		}, exchange.ErrHandlerOver.Error()},
		"GET": {nil, ErrNoTunnel.Error()},
	} {
		failed := make(chan error, 1)
		f, clients := serveHTTP2(t, &Server{Tunnels: true, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if c.handler == nil {
					failed <- Tunnel(w, h)
				} else {
					failed <- c.handler(w, r)
				}
			})})
		req := tunnelRequest(t.Context(), f.url("/"), strings.NewReader("x"))
		if c.handler == nil {
			req, _ = http.NewRequest("GET", f.url("/"), nil)
		}
		resp, err := clients["x/net"].Do(req)
		if err := <-failed; err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil { // to close it before would reset a stream that the handler is still busy with
			resp.Body.Close()
		}
	}
	h.want(t)
}

// A client that resets the stream ends the pipe and the context of a handler that still runs.
func TestTunnelReset(t *testing.T) {
	e, opened, over := newEchoPipe(), make(chan struct{}), make(chan error, 1)
	e.on = func(call string, _ *Pipe) {
		if call == "opened" {
			close(opened)
		}
	}
	f, clients := serveHTTP2(t, &Server{Tunnels: true, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := Tunnel(w, e); err != nil {
				t.Error(err)
			}
			if err := Tunnel(w, e); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("a second Tunnel: %v", err)
			}
			_, err := io.WriteString(w, "to nobody")
			<-r.Context().Done()
			over <- err
		})})
	ctx, cancel := context.WithCancel(t.Context())
	body, in := io.Pipe()
	defer in.Close()
	resp, err := clients["x/net"].Do(tunnelRequest(ctx, f.url("/"), body))
	if err != nil {
		t.Fatal(err)
	}
	<-opened // with a reset between the head and that, Tunnel may fail
	cancel()
	resp.Body.Close()
	if err := <-e.closed; err == nil || !strings.Contains(err.Error(), "reset by the peer") {
		t.Errorf("Closed got %v", err)
	}
	if err := <-over; !errors.Is(err, http.ErrHijacked) {
		t.Errorf("a write of the handler: %v", err)
	}
	e.want(t, "opened", "closed")
}

// tunnelCalls are handlers, and the calls that they get.
var tunnelCalls = map[string]struct {
	on   func(call string, p *Pipe)
	want []string
	err  error
}{
	"timer": {func(call string, p *Pipe) {
		switch call {
		case "opened":
			p.SetTimer(time.Second)
		case "expired":
			p.SetTimer(time.Second)
			p.Close()
		}
	}, []string{"opened", "expired", "closed"}, nil},
	"timer off": {func(call string, p *Pipe) {
		if call == "opened" {
			p.SetTimer(time.Second)
			p.SetTimer(0)
		}
	}, []string{"opened", "stopping", "closed"}, nil},
	"notify": {func(call string, p *Pipe) {
		switch call {
		case "opened":
			p.Write([]byte("x"))
			p.Notify()
			p.Notify()
		case "notified":
			if p.Queued() != 0 || !p.Flush() {
				panic("Notified before the output was offered")
			}
			p.Close()
		}
	}, []string{"opened", "notified", "closed"}, nil},
	"abort": {func(call string, p *Pipe) {
		if call == "opened" {
			p.Notify()
			p.Abort(io.ErrNoProgress)
			p.Abort(io.ErrClosedPipe)
			p.Close()
			if _, err := p.Write([]byte("x")); err != nil && err != myriad.ErrClosed {
				panic(err)
			}
		}
	}, []string{"opened", "closed"}, io.ErrNoProgress},
	"too large": {func(call string, p *Pipe) {
		if call == "opened" {
			if _, err := p.Write(make([]byte, muxed.MaxPipeWrite+1)); !errors.Is(err, myriad.ErrTooLarge) {
				panic(err)
			}
			p.Close()
		}
	}, []string{"opened", "closed"}, nil},
}

// Timer, Notify, Abort and Close on the simulator, with the calls that follow each.
func TestTunnelCalls(t *testing.T) {
	for name, c := range tunnelCalls {
		e := newEchoPipe()
		e.on = c.on
		w := newWorld(1, sim.Calm())
		engine, err := myriad.Start(myriad.Config{System: w, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Engine: engine, Tunnels: true, Protocols: plainHTTP2(),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := Tunnel(w, e); err != nil {
					t.Error(err)
				}
			})}
		ln, err := s.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := w.Dial(ln.Addr())
		p.Write(append([]byte(h2.Preface), h2.AppendSettingsAck(h2.AppendSettings(nil))...))
		var block []byte
		for _, f := range [][2]string{{":method", "CONNECT"}, {":protocol", "echo"}, {":scheme", "http"},
			{":authority", "h"}, {":path", "/"}} {
			block = hpack.AppendField(block, []byte(f[0]), []byte(f[1]), false)
		}
		p.Write(h2.AppendHeaders(nil, 1, block, false, h2.MinFrameSize))
		w.RunFor(time.Minute)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		p.Close()
		if err := engine.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		w.Settle()
		w.Check(t)
		if !slices.Equal(e.calls, c.want) {
			t.Errorf("%s: the handler got %q, want %q", name, e.calls, c.want)
		} else if err := <-e.closed; err != c.err {
			t.Errorf("%s: Closed got %v", name, err)
		}
	}
}

// A tunnelEnd is the client's end of a tunnel by internal/mux: it sends a text in pieces and reads
// it back, in pieces and late.
type tunnelEnd struct {
	mux.Stream
	c    *tunnelClient
	in   flow.Inbox
	want string
	sent int
	got  strings.Builder
	head int
	end  error
	over bool
}

type tunnelClient struct {
	mux.Conn
	rng  *rand.Rand
	cfg  *mux.Config
	ends []*tunnelEnd
	gone bool
}

func (c *tunnelClient) Opened(nc *myriad.Conn) {
	c.Conn.Init(c.cfg, c)
	c.Conn.Opened(nc)
}

func (*tunnelClient) Accept(uint32) *mux.Stream { return nil }

// Settings opens the streams when the server is known to offer the extended CONNECT.
func (c *tunnelClient) Settings() {
	for i := len(c.ends); i < 4 && c.PeerConnect(); i++ {
		s := &tunnelEnd{c: c, want: strings.Repeat(string(rune('a'+i)), c.rng.IntN(1<<c.rng.IntN(19)))}
		s.in.Reset(1+c.rng.IntN(1<<16), true)
		s.Init(s)
		if c.Open(&s.Stream) != nil {
			return
		}
		c.ends = append(c.ends, s)
		var head []byte
		for _, f := range [][2]string{{":method", "CONNECT"}, {":protocol", "echo"}, {":scheme", "http"},
			{":authority", "h"}, {":path", "/"}} {
			head = h2.AppendPair(head, f[0], f[1], false)
		}
		_ = s.Put(head, nil, false)
		s.pump()
	}
}

func (*tunnelClient) GoAway(uint32, h2.Code) {}
func (c *tunnelClient) Idle()                { c.Shutdown() }
func (c *tunnelClient) Gone(error)           { c.gone = true }

func (s *tunnelEnd) Head(h *h2.Head, last bool) h2.Code {
	s.head = h.Status
	s.pump()
	return h2.NoError
}
func (s *tunnelEnd) Data(p []byte, last bool) { s.in.Put(p, last); s.pump() }
func (s *tunnelEnd) Trailers([]hpack.Field)   {}
func (s *tunnelEnd) Credit() int              { return s.in.Credit() }
func (s *tunnelEnd) Room()                    { s.pump() }
func (s *tunnelEnd) Ended(_ h2.Code, err error) {
	s.end, s.over = err, true
	s.in.Discard()
	s.Release()
}

func (s *tunnelEnd) pump() {
	for {
		p := make([]byte, 1+s.c.rng.IntN(9000))
		n, tell, _ := s.in.Read(p)
		s.got.Write(p[:n])
		if tell {
			s.Notify()
		}
		if n == 0 {
			break
		}
	}
	for s.sent >= 0 && s.head != 0 {
		n := min(len(s.want)-s.sent, 1+s.c.rng.IntN(20000))
		last := s.sent+n == len(s.want)
		if s.Put(nil, []byte(s.want[s.sent:s.sent+n]), last) != nil {
			return
		}
		if s.sent += n; last {
			s.sent = -1
		}
	}
}

// Tunnels between both roles of internal/mux, in worlds with faults: what comes back is a beginning
// of what was sent, and all of it where nothing broke. A run repeats itself.
func TestTunnelSimulation(t *testing.T) {
	for seed := range simSeeds(t) {
		if a := tunnelRun(t, seed); seed%10 == 0 && a != tunnelRun(t, seed) {
			t.Errorf("seed %d: two runs differ", seed)
		}
		if t.Failed() {
			return
		}
	}
}

func tunnelRun(t *testing.T, seed uint64) uint64 {
	faults := sim.Options{}
	if seed%2 == 0 {
		faults = sim.Lossless()
	}
	w := newWorld(seed, faults)
	engine, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet(), LingerTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var pipes []*echoPipe
	s := &Server{Engine: engine, Tunnels: true, Protocols: plainHTTP2(), Dispatch: dispatches[seed%3],
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			e := newEchoPipe()
			w.Linger()
			if Tunnel(rw, e) == nil {
				pipes = append(pipes, e)
			}
		})}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	cfg := &mux.Config{Client: true, Now: w.Now, Window: 1 << (10 + rng.IntN(8))}
	cfg.Take(nil)
	var clients []*tunnelClient
	for range 4 {
		c := &tunnelClient{rng: rng, cfg: cfg}
		if _, err := engine.Dial(context.Background(), "tcp", ln.Addr().String(), c); err == nil {
			clients = append(clients, c)
		}
	}
	w.Run()
	ended := 0
	for i, c := range clients {
		for j, e := range c.ends {
			got := e.got.String()
			if !strings.HasPrefix(e.want, got) || e.over && e.end == nil && got != e.want {
				t.Errorf("seed %d: %d/%d: %d bytes of %d, %v", seed, i, j, len(got), len(e.want), e.end)
			}
			if seed%2 == 0 && (!e.over || e.end != nil) {
				t.Errorf("seed %d: %d/%d: not ended in order: %v", seed, i, j, e.end)
			}
			ended++
		}
	}
	if seed%2 == 0 && ended != 16 {
		t.Errorf("seed %d: %d tunnels", seed, ended)
	}
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
	for _, e := range pipes {
		if n := len(e.calls); e.calls[0] != "opened" || e.calls[n-1] != "closed" || len(e.closed) != 1 {
			t.Errorf("seed %d: a handler got %q", seed, e.calls)
		}
	}
	return w.Hash()
}
