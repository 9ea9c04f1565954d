package webtest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/web/webtest"
	"github.com/myriad-go/myriad/websocket"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// What a handler writes when it has returned is received, and it is called when the client leaves.
func TestRecordEvents(t *testing.T) {
	streams := make(chan *web.EventStream, 1)
	answer := webtest.Record(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "example.com" || r.URL.RawQuery != "q=1" || r.Header.Get("X-Asked") != "yes" {
			t.Errorf("the request is for %s %s with %v", r.Host, r.URL, r.Header)
		}
		s, err := web.Events(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		streams <- s
	}), func() *http.Request {
		r := httptest.NewRequest("GET", "/events?q=1", nil)
		r.Header.Set("X-Asked", "yes")
		return r
	}())
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%s, %v", answer.Status, answer.Header)
	}
	s := <-streams
	want := web.Event{ID: "1", Name: "news", Data: []byte("a\nb"), Retry: time.Second}
	if err := errors.Join(s.Comment("not an event"), s.Send(want)); err != nil {
		t.Fatal(err)
	}
	if got := answer.Event(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	answer.Leave()
	<-s.Context().Done()
	if err := context.Cause(s.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestRecordDetached(t *testing.T) {
	answer := webtest.Record(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		s, err := web.Detached(w)
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(s, "%s\nline\nrest", body)
		s.Close()
	}), httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if got := answer.StatusCode; got != http.StatusAccepted {
		t.Errorf("status %d", got)
	}
	if a, b, rest := answer.Line(), answer.Line(), answer.Rest(); a != "body" || b != "line" || rest != "rest" {
		t.Errorf("got %q, %q, %q", a, b, rest)
	}
}

func TestDial(t *testing.T) {
	ended := make(chan error, 1)
	o := &websocket.Options{
		Dispatch:     web.DispatchInline, // no pool of its own outlives the test
		Subprotocols: []string{"chat"},
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
			if string(p) == "bye" {
				_ = c.Close(4000, "as asked")
				return
			}
			_ = c.Write(op, append([]byte("you said "), p...))
		},
		OnClose: func(_ *websocket.Conn, err error) { ended <- err },
	}
	r := httptest.NewRequest("GET", "/chat?room=1", nil)
	r.Header.Set("Sec-WebSocket-Protocol", "other, chat")
	r.Header.Set("Cookie", "session=1")
	s := webtest.Dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "room=1" || r.Header.Get("Cookie") != "session=1" {
			t.Errorf("the request is for %s with %v", r.URL, r.Header)
		}
		w.Header().Set("X-Request-Id", "7")
		if _, err := websocket.Accept(w, r, o); err != nil {
			t.Error(err)
		}
	}), r)
	if s.Subprotocol() != "chat" || s.Response.Header.Get("X-Request-Id") != "7" {
		t.Errorf("subprotocol %q, %v", s.Subprotocol(), s.Response.Header)
	}
	s.Send("hello")
	if got := s.Receive(); got != "you said hello" {
		t.Errorf("got %q", got)
	}
	s.Send("bye")
	if got := s.Closed(); got != 4000 {
		t.Errorf("closed with %v", got)
	}
	<-ended
}

// A server of HTTPS has a client that trusts it, which speaks HTTP/2 if that is asked for. Streams
// and WebSockets are tested on it as on any other.
func TestTLSServer(t *testing.T) {
	o := &websocket.Options{Dispatch: web.DispatchInline,
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) { _ = c.Write(op, p) }}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			_, _ = websocket.Accept(w, r, o)
			return
		}
		fmt.Fprintf(w, "%s %v\n", r.Proto, r.TLS != nil)
	})
	for _, both := range []bool{false, true} {
		s := webtest.NewUnstartedServer(handler)
		s.EnableHTTP2 = both
		s.StartTLS()
		defer s.Close()
		want := map[bool]string{false: "HTTP/1.1 true", true: "HTTP/2.0 true"}[both]
		if line := s.Record(t, httptest.NewRequest("GET", "/", nil)).Line(); line != want {
			t.Errorf("with HTTP/2 %v: %s", both, line)
		}
		res, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if !strings.HasPrefix(s.URL, "https://127.0.0.1:") || !res.TLS.PeerCertificates[0].Equal(s.Certificate()) {
			t.Errorf("%s has another certificate than %v", s.URL, s.Certificate().Subject)
		}
		socket := s.Dial(t, httptest.NewRequest("GET", "/", nil))
		socket.Send("hello")
		if got := socket.Receive(); got != "hello" {
			t.Errorf("got %q", got)
		}
	}
	s := webtest.NewTLSServer(handler)
	defer s.Close()
	stranger := &http.Client{Transport: &http.Transport{}}
	if _, err := stranger.Get(s.URL); err == nil {
		t.Error("a client that does not know the certificate trusts it")
	}
	names := s.Certificate()
	for _, name := range []string{"127.0.0.1", "::1", "localhost", "example.com", "www.example.com"} {
		if err := names.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

// Config may be changed before the start. Here it asks for a certificate, serves HTTP/1 alone, and
// has an engine that Close leaves running.
func TestUnstartedServer(t *testing.T) {
	engine, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Shutdown(t.Context())
	s := webtest.NewUnstartedServer(http.NotFoundHandler())
	mustPanic(t, "a client before the start", func() { s.Client() })
	s.Config.Engine = engine
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.TLSConfig = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.EnableHTTP2 = true
	s.StartTLS()
	mustPanic(t, "a second start", s.Start)
	if _, err := s.Client().Get(s.URL); err == nil {
		t.Error("a client without a certificate was served")
	}
	s.Close()
	next := webtest.NewUnstartedServer(http.NotFoundHandler())
	next.Config.Engine = engine
	next.Start() // panics if Close has stopped the program's engine
	next.Close()
	webtest.NewUnstartedServer(nil).Close()
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s does not panic", what)
		}
	}()
	f()
}

// What goes wrong is the test's failure.
func TestFailures(t *testing.T) {
	s := webtest.NewServer(http.NotFoundHandler())
	defer s.Close()
	for name, f := range map[string]func(t testing.TB){
		"404 for a WebSocket": func(t testing.TB) { s.Dial(t, httptest.NewRequest("GET", "/", nil)) },
		"no event":            func(t testing.TB) { s.Record(t, httptest.NewRequest("GET", "/", nil)).Event() },
		"no line": func(t testing.TB) {
			r := s.Record(t, httptest.NewRequest("GET", "/", nil))
			r.Line()
			r.Line()
		},
	} {
		if !fails(t, f) {
			t.Errorf("%s: the test did not fail", name)
		}
	}
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic(f)
}

func fails(t *testing.T, f func(t testing.TB)) bool {
	failure := &failing{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(failure) {
				panic(v)
			}
		}()
		f(failure)
	}()
	return failure.failed
}

// What Append writes, ReadEvent reads, and no field leaks into another.
func FuzzEvent(f *testing.F) {
	f.Add("1", "news", []byte("a\r\nb\rc\n"), int64(1500))
	f.Add("", "", []byte("x\n\ndata: y"), int64(0))
	f.Add(" 1", ":", []byte(" :"), int64(-1))
	f.Fuzz(func(t *testing.T, id, name string, data []byte, ms int64) {
		e := web.Event{ID: id, Name: name, Data: data, Retry: time.Duration(ms%(1<<31)) * time.Millisecond}
		wire, err := e.Append(nil)
		if err != nil {
			return
		}
		in := bufio.NewReader(bytes.NewReader(wire))
		got, err := webtest.ReadEvent(in)
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		if err != nil || got.ID != id || got.Name != name || string(got.Data) != lines || got.Retry != e.Retry {
			t.Errorf("%q is read as %+v, %v", wire, got, err)
		}
		if more, err := webtest.ReadEvent(in); err != io.EOF {
			t.Errorf("%q is read as two events, the second %+v, %v", wire, more, err)
		}
	})
}

// A handler that goes on when it has returned is tested as any other.
func ExampleRecord() {
	t := new(testing.T) // a test has its own
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream, err := web.Events(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		go func() {
			_ = stream.Send(web.Event{Name: "score", Data: []byte("2:1")})
			_ = stream.Close()
		}()
	})
	s := webtest.NewServer(handler)
	defer s.Close()
	answer := s.Record(t, httptest.NewRequest("GET", "/events", nil))
	e := answer.Event()
	fmt.Printf("%s: %s", e.Name, e.Data)
	answer.Leave()
	// Output: score: 2:1
}

// A server whose Config is changed before it starts, and speaks HTTP/2 over TLS.
func ExampleNewUnstartedServer() {
	s := webtest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	s.Config.WriteTimeout = time.Minute
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	response, err := s.Client().Get(s.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	fmt.Println(string(text), err)
	// Output: HTTP/2.0 <nil>
}
