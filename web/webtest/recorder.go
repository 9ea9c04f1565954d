package webtest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/web"
)

// A Recorder is a client that reads one answer. Its methods belong to the test's goroutine.
type Recorder struct {
	// Response is the answer. Its Body is read by Event, Line and Rest.
	*http.Response

	t      testing.TB
	body   *bufio.Reader
	cancel context.CancelFunc
}

// Record sends r, as httptest.NewRequest makes it, to a server of its own that serves h, and
// returns when the head of the answer has come. The server ends with the test. It fails the test if
// there is no answer within a minute.
func Record(t testing.TB, h http.Handler, r *http.Request) *Recorder {
	t.Helper()
	s := NewServer(h)
	t.Cleanup(s.Close)
	return s.Record(t, r)
}

// Record is the function Record for this server.
func (s *Server) Record(t testing.TB, r *http.Request) *Recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	out := r.Clone(ctx)
	out.RequestURI = ""
	client := s.Client()
	out.URL.Scheme, out.URL.Host, _ = strings.Cut(s.URL, "://")
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(out)
	if err != nil {
		cancel()
		t.Fatalf("webtest: %s %s: %v", r.Method, r.URL, err)
	}
	rec := &Recorder{res, t, bufio.NewReader(res.Body), cancel}
	t.Cleanup(rec.Leave)
	return rec
}

// Event waits for the next event of a stream and returns it. Comments are passed over. It fails the
// test if the answer ends before.
func (r *Recorder) Event() web.Event {
	r.t.Helper()
	e, err := ReadEvent(r.body)
	if err != nil {
		r.t.Fatalf("webtest: wait for an event: %v", err)
	}
	return e
}

// Line waits for the next line and returns it without its end. It fails the test if the answer ends
// before.
func (r *Recorder) Line() string {
	r.t.Helper()
	line, err := r.body.ReadString('\n')
	if err != nil {
		r.t.Fatalf("webtest: wait for a line: %v, behind %q", err, line)
	}
	return strings.TrimRight(line, "\r\n")
}

// Rest waits for the end of the answer and returns what it has not read before. It fails the test
// if the end is not in order.
func (r *Recorder) Rest() string {
	r.t.Helper()
	p, err := io.ReadAll(r.body)
	if err != nil {
		r.t.Fatalf("webtest: read to the end: %v, behind %q", err, p)
	}
	return string(p)
}

// Leave ends the connection, as a client that goes away. The test ends it too.
func (r *Recorder) Leave() {
	r.cancel()
	_ = r.Body.Close()
}
