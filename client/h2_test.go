package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// secureH2 is a server that speaks HTTP/2 over TLS, and a transport that may.
func secureH2(t testing.TB, h http.HandlerFunc, tr *Transport) (*httptest.Server, *Transport) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	tr.TLSClientConfig, tr.ForceAttemptHTTP2 = trusting(s), true
	return s, fresh(t, tr)
}

// clearH2 is the same by prior knowledge.
func clearH2(t testing.TB, h http.HandlerFunc, tr *Transport) (*httptest.Server, *Transport) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	tr.Protocols = s.Config.Protocols
	return s, fresh(t, tr)
}

func TestHTTP2(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc, *Transport) (*httptest.Server, *Transport){
		"TLS": secureH2, "clear": clearH2,
	} {
		t.Run(name, func(t *testing.T) {
			s, tr := start(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Kind", r.Header.Get("X-Kind"))
				w.Header().Set("Trailer", "X-Sum")
				io.WriteString(w, r.Proto+" ")
				io.Copy(w, r.Body)
				w.Header().Set("X-Sum", r.Trailer.Get("X-Mine"))
			}, &Transport{})
			for _, size := range []int{0, 10, 100_000, 1_000_000} {
				text := strings.Repeat("0123456789", size/10)
				for kind, body := range map[string]io.Reader{
					"memory": strings.NewReader(text), "stream": &trickle{text},
				} {
					req := request(t, "POST", s.URL, body)
					req.Header.Set("X-Kind", kind)
					req.Header.Set("Connection", "keep-alive")
					if kind == "stream" {
						req.Trailer = http.Header{"X-Mine": {"42"}}
					}
					r, got := fetch(t, tr, req)
					if r.ProtoMajor != 2 || got != "HTTP/2.0 "+text || r.Header.Get("X-Kind") != kind ||
						r.Trailer.Get("X-Sum") != req.Trailer.Get("X-Mine") {
						t.Errorf("%s of %d: %d bytes, %+v", kind, size, len(got), r)
					}
				}
			}
			if r, _ := fetch(t, tr, request(t, "HEAD", s.URL, nil)); r.StatusCode != 200 || r.Body != http.NoBody {
				t.Errorf("HEAD: %+v", r)
			}
		})
	}
}

// Requests beyond a server's limit of streams get another connection, or wait for one
// (StrictMaxConcurrentRequests). No connection has more than the limit.
func TestHTTP2SharesAConnection(t *testing.T) {
	const limit = 10
	for _, strict := range []bool{false, true} {
		together := 3*limit + 1 // so many handlers wait for each other
		if strict {
			together = limit
		}
		var mu sync.Mutex
		running, most, total := map[string]int{}, 0, 0
		all := make(chan struct{})
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			running[r.RemoteAddr]++
			most = max(most, running[r.RemoteAddr])
			if total++; total == together+1 { // the first request is alone
				close(all)
			}
			first := total == 1
			mu.Unlock()
			if !first {
				<-all
			}
			mu.Lock()
			running[r.RemoteAddr]--
			mu.Unlock()
			io.WriteString(w, r.URL.Path)
		}))
		s.EnableHTTP2 = true
		s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: limit}
		s.StartTLS()
		tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: strict}})
		get(t, tr, s.URL)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				path := fmt.Sprint("/", i)
				if r, body := get(t, tr, s.URL+path); body != path || r.ProtoMajor != 2 {
					t.Errorf("%s: %q, %s", path, body, r.Proto)
				}
			})
		}
		wg.Wait()
		if n := len(running); most > limit || strict && n != 1 || !strict && n < 4 {
			t.Errorf("strict %v: %d connections, %d requests at once on one", strict, n, most)
		}
		s.Close()
	}
}

func TestHTTP2CancelAndTimeouts(t *testing.T) {
	s, tr := secureH2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
		}
		if r.URL.Path != "/quick" {
			<-r.Context().Done()
		}
	}, &Transport{ResponseHeaderTimeout: 100 * time.Millisecond})
	_, err := byDo{tr}.RoundTrip(request(t, "GET", s.URL+"/hangs", nil))
	if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Sent || !e.Timeout() {
		t.Errorf("ResponseHeaderTimeout: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := byDo{tr}.RoundTrip(request(t, "GET", s.URL+"/half", nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	io.ReadFull(r.Body, p)
	cancel()
	_, err = io.Copy(io.Discard, r.Body)
	if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Body || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in its body: %v", err)
	}
	r.Body.Close()
	fetch(t, tr, request(t, "GET", s.URL+"/quick", nil)) // the connection has survived
	noneInFlight(t, tr)
}

// noneInFlight waits until no call counts as under way. A reader of a body may learn of its end
// shortly before the count does.
func noneInFlight(t *testing.T, tr *Transport) {
	t.Helper()
	for end := time.Now().Add(patience); inFlight(tr) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d calls are counted as under way", inFlight(tr))
		}
	}
}

// A body that is not read holds up its stream, and no other.
func TestHTTP2Backpressure(t *testing.T) {
	s, tr := secureH2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Write(make([]byte, 2<<20))
		}
	}, &Transport{})
	r, err := tr.RoundTrip(request(t, "GET", s.URL+"/large", nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		get(t, tr, s.URL+"/small")
	}
	b := r.Body.(*body)
	b.mu.Lock()
	held := b.data.Len()
	b.mu.Unlock()
	n, err := io.Copy(io.Discard, r.Body)
	if n != 2<<20 || err != nil || held > 64<<10 {
		t.Errorf("%d bytes, %v; %d were held", n, err, held)
	}
	r.Body.Close()
}

// A server that speaks HTTP/1 only gets its connections as before.
func TestHTTP2Declined(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	defer s.Close()
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, body := get(t, tr, s.URL); body != "HTTP/1.1" {
				t.Errorf("got %q", body)
			}
		})
	}
	wg.Wait()
}

// framed is a server that reads frames after the preface, and answers as serve says.
func framed(t *testing.T, serve func(fr *http2.Framer, f http2.Frame)) string {
	return framedUntil(t, func(fr *http2.Framer, f http2.Frame) bool {
		serve(fr, f)
		return true
	})
}

// framedUntil is the same, and closes when serve returns false.
func framedUntil(t *testing.T, serve func(fr *http2.Framer, f http2.Frame) bool) string {
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
		fr := http2.NewFramer(c, r)
		fr.WriteSettings()
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
				fr.WriteSettingsAck()
			}
			if !serve(fr, f) {
				return
			}
		}
	})
}

// fields is a field block of names and values.
func fields(pairs ...string) []byte {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return block.Bytes()
}

func status(code string) []byte {
	var block bytes.Buffer
	hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: code})
	return block.Bytes()
}

func answer(fr *http2.Framer, id uint32, code string, end bool) {
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: status(code), EndHeaders: true,
		EndStream: end})
}

func overClearH2(t *testing.T, tr *Transport) *Transport {
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	return fresh(t, tr)
}

// A request that the server has not processed is sent again, whatever its method: refused, or above
// the last stream of GOAWAY. One that it may have processed is not.
func TestHTTP2Retries(t *testing.T) {
	for name, refuse := range map[string]func(fr *http2.Framer, id uint32){
		"REFUSED_STREAM": func(fr *http2.Framer, id uint32) { fr.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
		"GOAWAY":         func(fr *http2.Framer, id uint32) { fr.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"CANCEL":         func(fr *http2.Framer, id uint32) { fr.WriteRSTStream(id, http2.ErrCodeCancel) },
	} {
		var asked atomic.Int32
		url := framed(t, func(fr *http2.Framer, f http2.Frame) {
			if f.Header().Type == http2.FrameHeaders {
				if asked.Add(1) < 3 {
					refuse(fr, f.Header().StreamID)
					return
				}
				answer(fr, f.Header().StreamID, "204", true)
			}
		})
		tr := overClearH2(t, &Transport{})
		r, err := byDo{tr}.RoundTrip(request(t, "POST", url, strings.NewReader("x")))
		e, named := errors.AsType[*Error](err)
		switch {
		case name == "CANCEL" && (!named || e.Phase != Sent || asked.Load() != 1):
			t.Errorf("%s: %v after %d requests", name, err, asked.Load())
		case name != "CANCEL" && (err != nil || r.StatusCode != 204 || asked.Load() != 3):
			t.Errorf("%s: %v, %v after %d requests", name, r, err, asked.Load())
		}
	}
}

// Floods of a server end at their limits, and so does a head that has none.
func TestHTTP2Floods(t *testing.T) {
	for name, flood := range map[string]func(fr *http2.Framer, id uint32) error{
		"interim": func(fr *http2.Framer, id uint32) error {
			answer(fr, id, "103", false)
			return nil
		},
		"PING":     func(fr *http2.Framer, _ uint32) error { return fr.WritePing(false, [8]byte{}) },
		"SETTINGS": func(fr *http2.Framer, _ uint32) error { return fr.WriteSettings() },
		"CONTINUATION": func(fr *http2.Framer, id uint32) error {
			return fr.WriteContinuation(id, false, make([]byte, 1000))
		},
		"PUSH_PROMISE": func(fr *http2.Framer, id uint32) error {
			return fr.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, EndHeaders: true})
		},
	} {
		url := framed(t, func(fr *http2.Framer, f http2.Frame) {
			if f.Header().Type != http2.FrameHeaders {
				return
			}
			id := f.Header().StreamID
			if name == "CONTINUATION" {
				fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: status("200")})
			}
			for range 100_000 {
				if flood(fr, id) != nil {
					return
				}
			}
		})
		tr := overClearH2(t, &Transport{MaxResponseHeaderBytes: 100_000})
		_, err := byDo{tr}.RoundTrip(request(t, "POST", url, strings.NewReader("x")))
		if e, named := errors.AsType[*Error](err); !named || e.Phase > Head {
			t.Errorf("%s: %v", name, err)
		}
	}
}
