package web

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

func TestEventAppend(t *testing.T) {
	for _, c := range []struct {
		event Event
		want  string // "": refused
	}{
		{Event{Data: []byte("hello")}, "data: hello\n\n"},
		{Event{ID: "7", Name: "news", Data: []byte("a\nb\r\nc\rd\n"), Retry: 1500 * time.Millisecond},
			"id: 7\nevent: news\nretry: 1500\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{Event{Data: []byte{}}, "data: \n\n"},
		{Event{Name: "tick"}, "event: tick\ndata: \n\n"},
		{Event{ID: "7"}, "id: 7\n\n"},
		{Event{Retry: time.Second}, "retry: 1000\n\n"},
		{Event{Data: []byte("x\n\nevent: forged")}, "data: x\ndata: \ndata: event: forged\n\n"},
		{Event{}, ""},
		{Event{Retry: time.Microsecond}, ""},
		{Event{Retry: -time.Second, Data: []byte("x")}, ""},
		{Event{Name: "a\nb"}, ""},
		{Event{Name: "a\rb"}, ""},
		{Event{ID: "1\r\ndata: forged"}, ""},
		{Event{ID: "1\x00"}, ""},
	} {
		got, err := c.event.Append([]byte("before "))
		if (err != nil) != (c.want == "") || string(got) != "before "+c.want {
			t.Errorf("%+v: %q, %v; want %q", c.event, got, err, c.want)
		}
		if k, err := c.event.Chunk(); (err != nil) != (c.want == "") {
			t.Errorf("%+v: Chunk: %v", c.event, err)
		} else if k != nil {
			k.Release()
		}
	}
}

func TestEvents(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private")
		s, err := Events(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		shared, err := Event{Name: "shared", Data: []byte("to many")}.Chunk()
		if err != nil {
			t.Error(err)
			return
		}
		defer shared.Release()
		for _, err := range []error{
			s.Send(Event{ID: s.LastEventID() + "1", Data: []byte("hello")}),
			s.Comment("a\nb"),
			s.WriteChunk(shared),
			s.Close(),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if err := s.Send(Event{Name: "a\nb"}); err == nil || errors.Is(err, myriad.ErrClosed) {
			t.Errorf("Send of an event with a broken name: %v", err)
		}
		if err := s.Send(Event{Name: "late"}); !errors.Is(err, myriad.ErrClosed) {
			t.Errorf("Send behind Close: %v", err)
		}
	})})
	r, err := http.NewRequest("GET", f.url("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", "4")
	res, err := client(t).Do(r)
	want := "id: 41\ndata: hello\n\n: a\n: b\n\nevent: shared\ndata: to many\n\n"
	if got := mustBody(t, res, err); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "private",
		"X-Accel-Buffering": "no"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// simEvents has one client hold one EventStream in a simulated world.
func simEvents(t *testing.T) (w *sim.World, p *sim.Peer, s *EventStream, stop func()) {
	t.Helper()
	w = newWorld(1, sim.Calm())
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet(), WriteLimit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{Engine: engine, WriteTimeout: time.Second, IdleTimeout: time.Second,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/next" {
				return
			}
			if s, err = Events(rw, r); err != nil {
				t.Error(err)
			}
		})}
	ln, err := server.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = w.Dial(ln.Addr())
	p.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
	w.RunFor(time.Millisecond)
	return w, p, s, func() {
		t.Helper()
		p.Close()
		w.RunFor(time.Second)
		if err := engine.Shutdown(atLength(t)); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	}
}

// A silent stream is kept alive, one that speaks needs it not, and one that has ended gives its
// connection back with its timer.
func TestEventsKeepAlive(t *testing.T) {
	w, p, s, stop := simEvents(t)
	defer stop()
	beats := func(d time.Duration) int {
		before := strings.Count(string(p.Received()), "\r\n:\n\n\r\n")
		w.RunFor(d)
		return strings.Count(string(p.Received()), "\r\n:\n\n\r\n") - before
	}
	if got := beats(10 * DefaultKeepAlive); got < 5 || got > 10 {
		t.Errorf("%d comments in ten times the keep-alive", got)
	}
	for range 10 {
		if err := s.Send(Event{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if got := beats(DefaultKeepAlive / 2); got > 0 {
			t.Errorf("%d comments between events", got)
		}
	}
	s.SetKeepAlive(time.Second)
	if got := beats(10 * time.Second); got < 5 || got > 10 {
		t.Errorf("%d comments in ten times a changed keep-alive", got)
	}
	s.SetKeepAlive(0)
	if got := beats(time.Hour); got != 0 {
		t.Errorf("%d comments without keep-alive", got)
	}
	s.SetKeepAlive(time.Second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.Write([]byte("GET /next HTTP/1.1\r\nHost: h\r\n\r\n"))
	if got := beats(500 * time.Millisecond); got != 0 || strings.Count(string(p.Received()), "HTTP/1.1 200") != 2 {
		t.Errorf("%d comments behind the end; received %q", got, p.Received())
	}
}

// A client that does not read costs its stream's limit and no more: events are refused, comments
// are not added.
func TestEventsAreRefused(t *testing.T) {
	w, p, s, stop := simEvents(t)
	defer stop()
	p.StopReading()
	drained := 0
	s.OnDrained(func() { drained++ })
	refused := error(nil)
	for range 10_000 {
		if refused = s.Send(Event{Data: []byte(strings.Repeat("x", 500))}); refused != nil {
			break
		}
		w.RunFor(time.Millisecond)
	}
	if !errors.Is(refused, myriad.ErrFull) {
		t.Fatalf("10,000 events of 500 bytes to a client that does not read: %v, %d queued", refused, s.Queued())
	}
	queued := s.Queued()
	w.RunFor(10 * DefaultKeepAlive)
	if s.Queued() != queued {
		t.Errorf("%d bytes wait, before there were %d", s.Queued(), queued)
	}
	p.Resume()
	w.RunFor(time.Second)
	if drained != 1 || s.Queued() != 0 {
		t.Errorf("drained %d times, %d bytes wait", drained, s.Queued())
	}
	s.Abort(nil)
	w.RunFor(time.Second)
}
