package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	written "github.com/myriad-go/myriad/internal/parts"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// A house is a server whose connections move. It answers with its name, and /events with a stream
// whose state is how many events were sent.
type house struct {
	*Server
	name    string
	streams chan *counter
	moved   atomic.Int32
	held    chan struct{} // /wait waits for it
	logged  *lockedLog    // by the engine
}

// counter is a stream that counts its events.
type counter struct {
	*EventStream
	n int
}

func (c *counter) event(t *testing.T, house string) {
	t.Helper()
	c.n++
	if err := c.Send(Event{Data: fmt.Appendf(nil, "%s %d", house, c.n)}); err != nil {
		t.Fatal(err)
	}
}

func newHouse(t *testing.T, name string, mostAwake int) *house {
	t.Helper()
	logged := new(lockedLog)
	e, err := myriad.Start(myriad.Config{Loops: 2, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{name: name, streams: make(chan *counter, 16), held: make(chan struct{}), logged: logged}
	h.Server = &Server{Engine: e, Handler: h, mostAwake: mostAwake}
	h.ThawStream = func(s *Stream, state []byte) error {
		c := &counter{EventStream: s.Events()}
		if _, err := fmt.Sscan(string(state), &c.n); err != nil {
			return err
		}
		h.keep(c)
		return nil
	}
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Shutdown(over)
		_ = h.Close()
		_ = e.Shutdown(over)
	})
	return h
}

func (h *house) keep(c *counter) {
	c.OnFreeze(func(dst []byte) ([]byte, error) { return fmt.Append(dst, c.n), nil }, func() { h.moved.Add(1) })
	h.streams <- c
}

func (h *house) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/events":
		s, err := Events(w, r)
		if err != nil {
			return
		}
		h.keep(&counter{EventStream: s})
	case "/wait":
		<-h.held
		fallthrough
	default:
		fmt.Fprintf(w, "%s %s %s", h.name, r.URL.Path, r.RemoteAddr)
	}
}

func (h *house) thawer(t *testing.T) myriad.Thawer {
	t.Helper()
	th, err := h.Server.Thawer()
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// moveTo moves all connections of the house, which have to be so many; or has them go on, if there
// is no other house.
func (h *house) moveTo(t *testing.T, to *house, n int) {
	t.Helper()
	f, err := h.Engine.Freeze(10*time.Second, h.thawer(t))
	if err != nil {
		t.Fatal(err)
	}
	records := f.Records()
	if len(records) != n || f.Left() != 0 {
		t.Fatalf("%d connections move, want %d, %d are left", len(records), n, f.Left())
	}
	if to == nil {
		f.GoOn()
		return
	}
	for i := range records {
		s, err := to.Engine.Sockets().Share(records[i].Socket)
		if err != nil {
			t.Fatal(err)
		}
		records[i].Socket, records[i].Thawer = s, to.thawer(t)
	}
	there, err := to.Engine.Thaw()
	if err != nil {
		t.Fatal(err)
	}
	if err = there.Add(records); err != nil {
		t.Fatal(err)
	}
	f.Moved()
	there.GoOn()
}

func (h *house) serve(t *testing.T) string {
	t.Helper()
	ln, err := h.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// A client is one connection that is read by hand.
type handClient struct {
	net.Conn
	r *bufio.Reader
}

func dialHouse(t *testing.T, addr string) *handClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	return &handClient{nc, bufio.NewReader(nc)}
}

// get asks, and returns the answer, whose body has not been read.
func (c *handClient) get(t *testing.T, path string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (c *handClient) expect(t *testing.T, path, house string) {
	t.Helper()
	resp := c.get(t, path)
	body, err := io.ReadAll(resp.Body)
	if want := fmt.Sprintf("%s %s %v", house, path, c.LocalAddr()); err != nil || string(body) != want {
		t.Fatalf("%q (%v), want %q", body, err, want)
	}
}

// Connections that wait for a request move, also those that have not asked yet and those that
// hibernate. So do those of a server that goes on. Where they go on they hibernate, without a
// request.
func TestIdleConnectionsMove(t *testing.T) {
	for _, mostAwake := range []int{0, 1} {
		houses := []*house{newHouse(t, "A", mostAwake), newHouse(t, "B", mostAwake)}
		addr := houses[0].serve(t)
		const n = 20
		var clients []*handClient
		for i := range n {
			c := dialHouse(t, addr)
			if clients = append(clients, c); i%4 > 0 {
				c.expect(t, "/first", "A")
			}
		}
		eventually(t, func() bool { return houses[0].Engine.Stats().Conns == n })
		if mostAwake == 1 {
			eventually(t, func() bool { return houses[0].Engine.Stats().Hibernating > n/2 })
		}
		hibernate := func(h *house) {
			t.Helper()
			if mostAwake == 1 {
				eventually(t, func() bool { return h.Engine.Stats().Hibernating > n/2 })
			}
		}
		houses[0].moveTo(t, nil, n)
		hibernate(houses[0])
		for i := range 4 {
			from, to := houses[i%2], houses[(i+1)%2]
			from.moveTo(t, to, n)
			if a, b := from.Engine.Stats().Conns, to.Engine.Stats().Conns; a != 0 || b != n {
				t.Errorf("%d connections here, %d there", a, b)
			}
			hibernate(to)
			for j, c := range clients {
				if (i+j)%3 > 0 {
					c.expect(t, "/moved", to.name)
				}
			}
		}
		for _, c := range clients {
			c.expect(t, "/last", "A")
		}
		if got := houses[1].state.Conns.Load(); got != 0 {
			t.Errorf("%d connections count where none are", got)
		}
	}
}

// A Stream goes on in the other process, in its chunks, and the connection goes on behind it.
func TestStreamsMove(t *testing.T) {
	houses := []*house{newHouse(t, "A", 0), newHouse(t, "B", 0)}
	c := dialHouse(t, houses[0].serve(t))
	resp := c.get(t, "/events")
	body := bufio.NewReader(resp.Body)
	for i := range 5 {
		s := <-houses[i%2].streams
		s.event(t, houses[i%2].name)
		line, err := body.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %s %d\n", houses[i%2].name, i+1) {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		houses[i%2].moveTo(t, houses[(i+1)%2], 1)
		if got := houses[i%2].moved.Load(); got != int32(i/2+1) {
			t.Errorf("moved is called %d times", got)
		}
		if _, err := s.Write([]byte("x")); !errors.Is(err, myriad.ErrClosed) {
			t.Errorf("write where it does not go on: %v", err)
		}
	}
	s := <-houses[1].streams
	_ = s.Close()
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Fatalf("%q, %v", rest, err)
	}
	c.expect(t, "/behind", "B")
}

// A Stream that ends between Freeze and Records, or while it is written down, does not move. Its
// client gets the end here, and goes on.
func TestStreamsThatEndStay(t *testing.T) {
	for _, during := range []string{"before", "while it is written", "withdrawn"} {
		t.Run(during, func(t *testing.T) {
			h := newHouse(t, "A", 0)
			c := dialHouse(t, h.serve(t))
			resp := c.get(t, "/events")
			s := <-h.streams
			s.event(t, "A")
			end := func() { _ = s.Close() }
			if during == "withdrawn" {
				end = func() { s.OnFreeze(nil, nil) }
			}
			if during == "while it is written" {
				s.OnFreeze(func(dst []byte) ([]byte, error) { end(); return dst, nil }, nil)
			}
			f, err := h.Engine.Freeze(10*time.Second, h.thawer(t))
			if err != nil || f.Len() != 1 {
				t.Fatalf("%v, %v", f, err)
			}
			if during != "while it is written" {
				end()
			}
			if records := f.Records(); len(records) != 0 || f.Left() != 1 {
				t.Errorf("%d connections move, %d are left", len(records), f.Left())
			}
			f.GoOn()
			if during == "withdrawn" {
				_ = s.Close()
			}
			if p, err := io.ReadAll(resp.Body); err != nil || string(p) != "data: A 1\n\n" {
				t.Errorf("%q, %v", p, err)
			}
			c.expect(t, "/behind", "A")
			if got := h.logged.String(); strings.Contains(got, "cannot move") {
				t.Errorf("an end is no fault: %s", got)
			}
		})
	}
}

// A Stream without OnFreeze, a running handler and half a head stay.
func TestBusyConnectionsStay(t *testing.T) {
	h := newHouse(t, "A", 0)
	addr := h.serve(t)
	left := func(want int) bool {
		f, err := h.Engine.Freeze(0, h.thawer(t))
		if err != nil {
			t.Fatal(err)
		}
		defer f.GoOn()
		return f.Left() == want && f.Len() == 0
	}
	c := dialHouse(t, addr)
	c.get(t, "/events")
	s := <-h.streams
	s.OnFreeze(nil, nil)
	eventually(t, func() bool { return left(1) })
	s.Abort(nil)
	eventually(t, func() bool { return left(0) })
	c = dialHouse(t, addr)
	if _, err := io.WriteString(c, "GET /half HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return left(1) })
	if _, err := io.WriteString(c, "Host: h\r\n\r\nGET /wait HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	eventually(t, func() bool { return left(1) })
	close(h.held)
	if resp, err = http.ReadResponse(c.r, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := io.ReadAll(resp.Body); err != nil || !strings.HasPrefix(string(p), "A /wait") {
		t.Errorf("%q, %v", p, err)
	}
}

// FuzzThaw thaws any state of a connection, with that of a Stream in it. Thaw refuses it, or the
// connection can be written down again, and serves.
func FuzzThaw(f *testing.F) {
	logged := new(lockedLog)
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		f.Fatal(err)
	}
	s := &Server{Engine: e, Handler: http.NotFoundHandler()}
	s.ThawStream = func(s *Stream, state []byte) error {
		if len(state) == 0 {
			return io.ErrUnexpectedEOF
		}
		s.OnFreeze(func(dst []byte) ([]byte, error) { return append(dst, 'v'), nil }, nil)
		return nil
	}
	f.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close()
		_ = e.Shutdown(over)
	})
	th, err := s.Thawer()
	if err != nil {
		f.Fatal(err)
	}
	stream := func(write func(w *written.Encoder)) []byte {
		w := written.Begin(nil, 1)
		w.Bytes("value", []byte("v"))
		write(&w)
		return w.End()
	}
	for _, inner := range [][]byte{nil, {}, {1}, stream(func(*written.Encoder) {}), stream(func(w *written.Encoder) {
		w.Bool("noBody", true)
		w.Uint("beat", math.MaxUint32)
		w.Uint("armed", math.MaxUint32)
		w.Bool("wrote", true)
	}), stream(func(w *written.Encoder) { w.Uint("beat", 1<<40) })} {
		for _, chunked := range []bool{false, true} {
			w := written.Begin(nil, 1)
			w.Bool("posted", true)
			w.Uint("blank", 3)
			w.Bool("last", !chunked)
			w.Bool("chunked", chunked)
			if inner != nil {
				w.Bytes("stream", inner)
			}
			f.Add(w.End())
		}
	}
	f.Add([]byte("\x01\x05fresh\x01\x01"))
	f.Fuzz(func(t *testing.T, state []byte) {
		near, far, err := e.System().Facilities().Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		record := written.Begin(nil, 1)
		record.Bytes("state", state)
		frozen, err := e.Thaw()
		if err != nil {
			t.Fatal(err)
		}
		var before, behind runtime.MemStats
		runtime.ReadMemStats(&before)
		failed := frozen.Add([]myriad.Record{{Thawer: th, Format: http1.FrozenFormat, State: record.End(),
			Socket: near}})
		runtime.ReadMemStats(&behind)
		if took := behind.TotalAlloc - before.TotalAlloc; took > 1<<20+8*uint64(len(state)) {
			t.Errorf("%d bytes of state take %d bytes", len(state), took)
		}
		if n := len(frozen.Records()); (failed == nil) != (n == 1) {
			t.Errorf("%d connections can be written down again: %v", n, failed)
		}
		frozen.GoOn()
		_ = far.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(far, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		_ = far.Close()
		eventually(t, func() bool { return e.Limits().Open == 0 })
		if got := logged.String(); strings.Contains(got, "panic") {
			t.Fatal(got)
		}
	})
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited too long")
		}
	}
}
