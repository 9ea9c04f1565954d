package client

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/mux"
)

// An uploadWitness is a server of HTTP/2 that answers each request with a status at once, and notes
// what comes of its body.
type uploadWitness struct {
	code   string
	body   bool // it sends a body, which it does not end
	bytes  atomic.Int64
	resets chan http2.ErrCode
}

func (s *uploadWitness) serve(fr *http2.Framer, f http2.Frame) {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		answer(fr, f.StreamID, s.code, !s.body)
		if s.body {
			fr.WriteData(f.StreamID, false, []byte("no"))
		}
	case *http2.DataFrame:
		s.bytes.Add(int64(len(f.Data())))
		if f.Length > 0 {
			fr.WriteWindowUpdate(0, f.Length)
			fr.WriteWindowUpdate(f.StreamID, f.Length)
		}
	case *http2.RSTStreamFrame:
		s.resets <- f.ErrCode
	}
}

// A response whose status is no success ends the upload over HTTP/2: the body is closed although
// the response is not read, and no more of it comes.
func TestFailureEndsTheUpload(t *testing.T) {
	for name, body := range map[string]bool{"with a body": true, "without": false} {
		for _, code := range []string{"303", "413", "503"} {
			s := &uploadWitness{code: code, body: body, resets: make(chan http2.ErrCode, 2)}
			url := framed(t, s.serve)
			std := &http.Transport{Protocols: new(http.Protocols)}
			std.Protocols.SetUnencryptedHTTP2(true)
			defer std.CloseIdleConnections()
			for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
				upload := &endlessUpload{closed: make(chan struct{})}
				req := request(t, "POST", url, nil)
				req.Body, req.ContentLength = upload, -1
				r, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatalf("%s, %s %s: %v", of, code, name, err)
				}
				select {
				case <-upload.closed:
				case <-time.After(patience):
					t.Fatalf("%s, %s %s: the upload goes on", of, code, name)
				}
				r.Body.Close()
				if c := <-s.resets; c != http2.ErrCodeCancel && c != http2.ErrCodeNo {
					t.Errorf("%s, %s %s: the stream was reset with %v", of, code, name, c)
				}
			}
		}
	}
}

// endlessUpload is a body without an end.
type endlessUpload struct {
	closed chan struct{}
	once   atomic.Bool
}

func (b *endlessUpload) Read(p []byte) (int, error) { return min(len(p), 16<<10), nil }

func (b *endlessUpload) Close() error {
	if !b.once.Swap(true) {
		close(b.closed)
	}
	return nil
}

// A body that waits for 100 Continue is not sent if the server refuses the request, and is sent
// behind a 2xx. net/http does the same.
func TestExpectedBodyIsNotSentToARefusal(t *testing.T) {
	for code, want := range map[string]int64{"401": 0, "417": 0, "200": 6} {
		s := &uploadWitness{code: code, resets: make(chan http2.ErrCode, 2)}
		tr := overClearH2(t, &Transport{ExpectContinueTimeout: patience})
		req := request(t, "POST", framed(t, s.serve), strings.NewReader("secret"))
		req.Header.Set("Expect", "100-continue")
		r, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if want == 0 {
			<-s.resets // behind which nothing comes
		}
		for limit := time.Now().Add(patience); s.bytes.Load() != want && time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
		}
		if n := s.bytes.Load(); n != want {
			t.Errorf("%s: %d bytes of the body were sent, want %d", code, n, want)
		}
	}
}

// A refuser is a server of HTTP/2 in a simulated world. It refuses some requests, and answers those
// that follow with 204.
type refuser struct {
	w     *sim.World
	began time.Time
	times int
	code  h2.Code // of RST_STREAM
	asked []time.Duration
	cfg   mux.Config
}

// Opened gives a connection its handler.
func (s *refuser) Opened(c *myriad.Conn) {
	h := &refuserConn{s: s}
	h.Init(&s.cfg, h)
	c.SetHandler(h, nil)
}

func (*refuser) Received(*myriad.Conn, []byte) {}
func (*refuser) Closed(*myriad.Conn, error)    {}

type refuserConn struct {
	mux.Conn
	s *refuser
}

func (h *refuserConn) Accept(uint32) *mux.Stream {
	h.s.asked = append(h.s.asked, h.s.w.Now().Sub(h.s.began))
	st := &refuserStream{code: h2.NoError}
	if len(h.s.asked) <= h.s.times {
		st.code = h.s.code
	}
	st.Init(st)
	return &st.Stream
}

func (*refuserConn) Settings()              {}
func (*refuserConn) GoAway(uint32, h2.Code) {}
func (*refuserConn) Idle()                  {}
func (*refuserConn) Gone(error)             {}

type refuserStream struct {
	mux.Stream
	code h2.Code
}

func (s *refuserStream) Head(*h2.Head, bool) h2.Code {
	if s.code == h2.NoError {
		_ = s.Put(h2.AppendPair(nil, ":status", "204", false), nil, true)
	}
	return s.code
}

func (*refuserStream) Data([]byte, bool)      {}
func (*refuserStream) Trailers([]hpack.Field) {}
func (*refuserStream) Credit() int            { return 0 }
func (*refuserStream) Room()                  {}
func (s *refuserStream) Ended(h2.Code, error) { s.Release() }

// runRefused sends one request to s and returns what came of it, when, and what the server has
// seen.
func runRefused(t *testing.T, s *refuser, req *http.Request, cancelAt time.Duration) (after time.Duration, err error) {
	t.Helper()
	s.w = sim.New(1, sim.Options{})
	s.cfg.Now, s.began = s.w.Now, s.w.Now()
	s.cfg.Take(nil)
	e, failed := myriad.Start(myriad.Config{Loops: 1, System: s.w, Logger: slog.New(slog.DiscardHandler)})
	if failed != nil {
		t.Fatal(failed)
	}
	ln, failed := e.Listen("tcp", "127.0.0.1:0", s)
	if failed != nil {
		t.Fatal(failed)
	}
	tr := &Transport{Engine: e, Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	req.URL.Host = ln.Addr().String()
	s.w.Go(func() {
		call := tr.Do(req, func(r *http.Response, got error) {
			if err, after = got, s.w.Now().Sub(s.began); err == nil && r.StatusCode != http.StatusNoContent {
				t.Errorf("status %d", r.StatusCode)
			}
		})
		if cancelAt > 0 {
			s.w.AfterFunc(cancelAt, call.Cancel)
		}
	})
	s.w.Run()
	tr.CloseIdleConnections()
	_ = ln.Close()
	if failed := e.Shutdown(context.Background()); failed != nil {
		t.Error(failed)
	}
	s.w.Run()
	s.w.Check(t)
	for _, left := range Leftovers(tr) {
		t.Error(left)
	}
	return after, err
}

// A server that refuses requests for a while is asked again later and later: the first time at
// once, and then after 100 ms and twice as long each time, until 6.3 s have passed.
func TestRefusedRequestsAreSpreadInTime(t *testing.T) {
	all := []time.Duration{0, 0, 100, 300, 700, 1500, 3100, 6300}
	for i := range all {
		all[i] *= time.Millisecond
	}
	post := func(body io.Reader) *http.Request { return request(t, "POST", "http://x/", body) }
	for _, tt := range []struct {
		name     string
		times    int
		code     h2.Code
		req      *http.Request
		cancelAt time.Duration
		attempts int
		err      string
	}{
		{"six times", 6, h2.RefusedStream, post(strings.NewReader("x")), 0, 7, ""},
		{"once", 1, h2.RefusedStream, post(strings.NewReader("x")), 0, 2, ""},
		{"for ever", 1000, h2.RefusedStream, post(nil), 0, 8, "REFUSED_STREAM; received from peer"},
		{"until it is cancelled", 1000, h2.RefusedStream, post(nil), time.Second, 5, "context canceled"},
		{"a body that cannot be had again", 1000, h2.RefusedStream, post(&trickle{"x"}), 0, 1,
			"define Request.GetBody"},
		{"with PROTOCOL_ERROR", 5, h2.ProtocolError, request(t, "GET", "http://x/", nil), 0, 1, "PROTOCOL_ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &refuser{times: tt.times, code: tt.code}
			after, err := runRefused(t, s, tt.req, tt.cancelAt)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want %q", err, tt.err)
			}
			want := all[:tt.attempts]
			near := func(at, want time.Duration) bool { return at >= want && at < want+want/10+20*time.Millisecond }
			if !slices.EqualFunc(s.asked, want, near) {
				t.Errorf("it was asked at %v, want %v", s.asked, want)
			}
			if tt.cancelAt > 0 && !near(after, tt.cancelAt) {
				t.Errorf("it was cancelled at %v, and ended at %v", tt.cancelAt, after)
			}
		})
	}
}

// The errors of connections over HTTP/2 have the words of net/http, for which programs look.
func TestConnectionErrorsOfHTTP2(t *testing.T) {
	const goneAway = `http2: server sent GOAWAY and closed the connection; ` +
		`LastStreamID=1, ErrCode=ENHANCE_YOUR_CALM, debug="calm"`
	for want, act := range map[string]func(fr *http2.Framer, id uint32) (goesOn bool){
		goneAway: func(fr *http2.Framer, id uint32) bool {
			fr.WriteGoAway(id, http2.ErrCodeEnhanceYourCalm, []byte("calm"))
			return false
		},
		"stream error: stream ID 1; HTTP_1_1_REQUIRED; received from peer": func(fr *http2.Framer, id uint32) bool {
			fr.WriteRSTStream(id, http2.ErrCodeHTTP11Required)
			return true
		},
		"net/http: server replied with more than declared Content-Length; truncated": func(fr *http2.Framer,
			id uint32) bool {
			head := fields(":status", "200", "content-length", "1")
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true})
			fr.WriteData(id, true, []byte("two"))
			return true
		},
	} {
		url := framedUntil(t, func(fr *http2.Framer, f http2.Frame) bool {
			return f.Header().Type != http2.FrameHeaders || act(fr, f.Header().StreamID)
		})
		std := &http.Transport{Protocols: new(http.Protocols)}
		std.Protocols.SetUnencryptedHTTP2(true)
		defer std.CloseIdleConnections()
		for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
			r, err := rt.RoundTrip(request(t, "GET", url, nil))
			if err == nil {
				_, err = io.ReadAll(r.Body)
				r.Body.Close()
			}
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", of, err, want)
			}
		}
	}
}
