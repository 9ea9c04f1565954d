package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how a body ends before its end, in fake time: for its handler, and for its
// connection.

const (
	inChunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
	short    = "Content-Length: 10\r\n\r\nabc"
)

var long = fmt.Sprintf("Content-Length: %d\r\n\r\nabc", exchange.MaxDiscard+10)

// flushed answers with a head of its own before the handler returns.
func flushed(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "0")
	w.(http.Flusher).Flush()
}

// The head of an answer says whether the connection stays, also if only "abc" of the request's body
// has come. As with net/http, that depends on what the handler has read and may still read.
func TestHeadBesideABody(t *testing.T) {
	read := func(_ http.ResponseWriter, r *http.Request) { r.Body.Read(make([]byte, 1)) }
	duplex := func(w http.ResponseWriter, _ *http.Request) { http.NewResponseController(w).EnableFullDuplex() }
	closed := func(_ http.ResponseWriter, r *http.Request) { r.Body.Close() }
	tooLarge := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) }
	type steps []func(http.ResponseWriter, *http.Request)
	returns := func(http.ResponseWriter, *http.Request) {}
	flush := func(w http.ResponseWriter, _ *http.Request) { flushed(w) }
	for name, tc := range map[string]struct {
		request string
		do      steps
		kept    bool
		within  time.Duration // until the head comes
	}{
		"short, not read":              {post + short, steps{flush}, true, 0},
		"short, begun":                 {post + short, steps{read, flush}, true, 0},
		"short, begun and closed":      {post + short, steps{read, closed, flush}, true, 0},
		"short, duplex":                {post + short, steps{duplex, flush}, true, 0},
		"long, not read":               {post + long, steps{flush}, false, 0},
		"long, begun":                  {post + long, steps{read, flush}, true, 0},
		"long, begun and closed":       {post + long, steps{read, closed, flush}, false, 0},
		"long, duplex":                 {post + long, steps{duplex, flush}, true, 0},
		"long, duplex, at return":      {post + long, steps{duplex, returns}, false, 0},
		"chunks, not read":             {post + inChunks, steps{flush}, false, 0},
		"chunks, begun":                {post + inChunks, steps{read, flush}, true, 0},
		"chunks, begun and closed":     {post + inChunks, steps{read, closed, flush}, true, 0},
		"chunks, duplex":               {post + inChunks, steps{duplex, flush}, true, 0},
		"chunks, duplex, at return":    {post + inChunks, steps{duplex, read, returns}, true, 0},
		"chunks, not read, at return":  {post + inChunks, steps{returns}, false, exchange.StopTimeout},
		"chunks, begun, at return":     {post + inChunks, steps{read, returns}, false, exchange.StopTimeout},
		"chunks that have come":        {post + inChunks + "0\r\n\r\n", steps{flush}, true, 0},
		"none, too large":              {get + "\r\n", steps{tooLarge, flush}, true, 0},
		"short, begun, too large":      {post + short, steps{read, tooLarge, flush}, false, 0},
		"short, not read, too large":   {post + short, steps{tooLarge, flush}, true, 0},
		"short, to its end, too large": {post + short + "defghij", steps{read, drainBody, tooLarge, flush}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st := calmStage(t, &Server{Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					for _, f := range tc.do {
						f(w, r)
					}
				})})
			p := st.Dial(st.at)
			p.Write([]byte(tc.request))
			if st.RunFor(tc.within + time.Second/2); p.Count() == 0 {
				t.Fatalf("there is no answer after %v", tc.within)
			}
			if got := string(p.Received()); strings.Contains(got, "\r\nConnection: close\r\n") == tc.kept {
				t.Errorf("got %q", got)
			}
			p.Close()
		})
	}
}

func drainBody(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }

// A Read that fails because the client has ended its side ends the context. One that comes to the
// end of the body does not.
func TestContextOfAReader(t *testing.T) {
	for _, tc := range []struct {
		head, rest string
		read       error
	}{{short, "", io.ErrUnexpectedEOF}, {short, "defghij", nil}, {inChunks, "", io.ErrUnexpectedEOF},
		{inChunks, "0\r\n\r\n", nil}} {
		var failed, lost error
		st := calmStage(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, failed = io.ReadAll(r.Body)
				lost = r.Context().Err()
			})})
		p := st.Dial(st.at)
		p.Write([]byte(post + tc.head + tc.rest))
		if st.RunFor(time.Millisecond); tc.rest == "" {
			p.CloseWrite()
		}
		st.RunFor(time.Second)
		if !errors.Is(failed, tc.read) || (lost == nil) != (tc.read == nil) {
			t.Errorf("%.20q, %q: read with %v, then the context is %v", tc.head, tc.rest, failed, lost)
		}
		p.Close()
	}
}

// Close makes a Read return that waits on another goroutine. A Read after the handler has returned
// fails, too.
func TestReadOfAClosedBody(t *testing.T) {
	var st *stage
	var body io.Reader
	var waited, after error
	st = calmStage(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body = r.Body; r.URL.RawQuery == "left" {
				return
			}
			read := false
			st.Go(func() {
				io.ReadFull(r.Body, make([]byte, 3))
				_, waited = r.Body.Read(make([]byte, 1))
				read = true
			})
			st.wait(time.Millisecond)
			r.Body.Close()
			if st.wait(time.Millisecond); !read {
				t.Error("the Read still waits after Close")
			}
		})})
	p := st.Dial(st.at)
	p.Write([]byte(post + short))
	st.RunFor(time.Second)
	if waited != http.ErrBodyReadAfterClose {
		t.Errorf("the Read that waited: %v", waited)
	}
	q := st.Dial(st.at)
	q.Write([]byte("POST /?left HTTP/1.1\r\nHost: h\r\n" + short))
	st.RunFor(time.Second)
	_, after = body.Read(make([]byte, 1))
	if after != http.ErrBodyReadAfterClose {
		t.Errorf("a Read after the handler: %v", after)
	}
	p.Close()
	q.Close()
}

// If a handler leaves a chunked body unread, the server discards up to maxDiscard bytes before the
// next request. If one more comes, the connection ends.
func TestRestInChunks(t *testing.T) {
	for more, kept := range map[int]bool{exchange.MaxDiscard: true, exchange.MaxDiscard + 1: false} {
		st := calmStage(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body.Read(make([]byte, 1))
				flushed(w)
			})})
		p := st.Dial(st.at)
		p.Write([]byte(post + inChunks))
		st.RunFor(time.Second)
		if p.Ended() {
			t.Fatal("the connection has ended before the rest has come")
		}
		p.Write([]byte(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n%s\r\n", more, strings.Repeat("b", more), get)))
		st.RunFor(time.Second)
		if got := len(codes(t, p.Received())); p.Ended() == kept || got != 1 && !kept || got != 2 && kept {
			t.Errorf("%d bytes: %d answers; the connection has ended: %v", more, got, p.Ended())
		}
		p.Close()
	}
}

// After a Read of a chunked body has exceeded its deadline, later ones fail, even with another
// deadline, and the connection ends with the answer. A body with a length can be read on.
func TestReadAfterItsDeadline(t *testing.T) {
	for _, head := range []string{short, inChunks} {
		var st *stage
		var late, then error
		st = calmStage(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				c.SetReadDeadline(st.Now().Add(10 * time.Millisecond))
				io.ReadFull(r.Body, make([]byte, 3))
				_, late = r.Body.Read(make([]byte, 1))
				c.SetReadDeadline(time.Time{})
				st.wait(20 * time.Millisecond)
				_, then = r.Body.Read(make([]byte, 1))
			})})
		p := st.Dial(st.at)
		p.Write([]byte(post + head))
		st.RunFor(20 * time.Millisecond)
		rest := "defghij"
		if head == inChunks {
			rest = "7\r\ndefghij\r\n"
		}
		p.Write([]byte(rest))
		st.RunFor(time.Second)
		if !errors.Is(late, os.ErrDeadlineExceeded) || errors.Is(then, os.ErrDeadlineExceeded) != (head == inChunks) {
			t.Errorf("%.20q: %v, then %v", head, late, then)
		}
		ends := strings.Contains(string(p.Received()), "\r\nConnection: close\r\n")
		if p.Count() == 0 || ends != (head == inChunks) || p.Ended() != ends {
			t.Errorf("%.20q: got %q; the connection has ended: %v", head, p.Received(), p.Ended())
		}
		p.Close()
	}
}

// Upgrade gives the bytes of the body that the handler has not read to the new protocol. After that
// the handler can neither read them nor ask for them by 100 Continue.
func TestUnreadBodyIsHandedOn(t *testing.T) {
	for _, all := range []bool{false, true} {
		var st *stage
		var read error
		next := new(recorder)
		st = calmStage(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if all {
					drainBody(w, r)
				}
				if err := Upgrade(w, []byte(switching), next); err != nil {
					t.Error(err)
				}
				st.wait(time.Millisecond)
				_, read = r.Body.Read(make([]byte, 1))
			})})
		p := st.Dial(st.at)
		p.Write([]byte(post + "Expect: 100-continue\r\n" + short + "defghij" + "behind"))
		st.RunFor(time.Second)
		want, fails, sent := "abcdefghijbehind", http.ErrHijacked, switching
		if all {
			want, fails, sent = "behind", io.EOF, continues+switching
		}
		if string(next.got) != want || read != fails || string(p.Received()) != sent {
			t.Errorf("all was read: %v; the next protocol got %q, want %q; a Read then: %v; the client got %q", all,
				next.got, want, read, p.Received())
		}
		p.Close()
	}
}

// After its client's FIN the context of a handler ends, but not before the handler has read all of
// the body or closed it.
func TestClientThatHasSentAll(t *testing.T) {
	half := func(_ http.ResponseWriter, r *http.Request) { r.Body.Read(make([]byte, 1)) }
	closed := func(_ http.ResponseWriter, r *http.Request) { r.Body.Close() }
	for name, tc := range map[string]struct {
		request string
		do      func(http.ResponseWriter, *http.Request)
		gone    bool
	}{
		"no body":      {get + "\r\n", drainBody, true},
		"not read":     {post + short + "defghij", func(http.ResponseWriter, *http.Request) {}, false},
		"half read":    {post + short + "defghij", half, false},
		"read":         {post + short + "defghij", drainBody, true},
		"closed":       {post + short + "defghij", closed, true},
		"chunks, read": {post + inChunks + "0\r\n\r\n", drainBody, true},
	} {
		t.Run(name, func(t *testing.T) {
			var st *stage
			gone := false
			st = calmStage(t, &Server{Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tc.do(w, r)
					st.wait(time.Second)
					gone = r.Context().Err() != nil
				})})
			p := st.Dial(st.at)
			p.Write([]byte(tc.request))
			p.CloseWrite()
			if st.RunFor(2 * time.Second); gone != tc.gone {
				t.Errorf("the context has ended: %v", gone)
			}
			p.Close()
		})
	}
}

// A widened is an executor that counts how many more tasks it has been told to run.
type widened struct {
	driver.Executor
	by int
}

func (w *widened) Widen(n int) { w.by += n }

// widen makes the handlers of a server run on a widened.
func (s *stage) widen(of *Server) *widened {
	w := &widened{Executor: s.Executor()}
	of.state.Tasks.UsePool(w)
	return w
}

// While a handler waits for its client, one more handler may run: one, even if several of its
// goroutines wait. While a handler waits for its turn behind another one, none more may run.
func TestWaitingHandlersDoNotCount(t *testing.T) {
	var st *stage
	s := &Server{Dispatch: DispatchPool, PipelineDepth: 2,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Write(make([]byte, 4<<20))
				return
			}
			st.Go(func() { r.Body.Read(make([]byte, 1)) })
			io.ReadFull(r.Body, make([]byte, 4))
			st.wait(2 * time.Millisecond)
			io.Copy(io.Discard, r.Body)
		})}
	st = calmStage(t, s)
	pool := st.widen(s)
	p := st.Dial(st.at)
	step := func(what, more string, want int) {
		p.Write([]byte(more))
		if st.RunFor(time.Millisecond); pool.by != want {
			t.Errorf("%s: there is room for %d more, want %d", what, pool.by, want)
		}
	}
	step("two goroutines wait for the body", post+"Content-Length: 10\r\n\r\n", 1)
	step("one waits for it", "abc", 1)
	step("none waits", "de", 0)
	st.RunFor(10 * time.Millisecond)
	step("it waits again", "", 1)
	step("the request is answered", "fghij", 0)
	p.StopReading()
	step("an answer is not read, and one waits behind it", strings.Repeat(get+"\r\n", 2), 1)
	p.Resume()
	st.RunFor(time.Second)
	step("all is read", "", 0)
	if got := len(codes(t, p.Received())); got != 3 {
		t.Errorf("%d answers, want 3", got)
	}
	p.Close()
}
