package client

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/myriad-go/myriad/internal/driver/sim"
)

// Each wait of a stream lasts as long as it is set to: the waits of other kinds that began before
// do not hold it up.
func TestHTTP2WaitsAreApart(t *testing.T) {
	for name, prepare := range map[string]func(*http.Request){
		"Expect": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		"probe":  func(r *http.Request) { r.Method = "DELETE" },
	} {
		t.Run(name, func(t *testing.T) {
			url := framed(t, func(fr *http2.Framer, f http2.Frame) {
				switch f := f.(type) {
				case *http2.HeadersFrame:
					if methodOf(f) == "DELETE" { // the head shows that the probe has ended
						answer(fr, f.StreamID, "204", true)
					}
				case *http2.DataFrame:
					if f.StreamEnded() {
						answer(fr, f.StreamID, "204", true)
					}
				}
			})
			tr := overClearH2(t, &Transport{ResponseHeaderTimeout: patience / 4,
				ExpectContinueTimeout: 20 * time.Millisecond})
			hangs := make(chan error, 1)
			tr.Do(request(t, "GET", url, nil), func(_ *http.Response, err error) { hangs <- err })
			blocked, write := io.Pipe()
			defer write.Close()
			body := io.Reader(strings.NewReader("text"))
			if name == "probe" {
				body = blocked
			}
			r := request(t, "POST", url, body)
			prepare(r)
			response, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			select {
			case err := <-hangs:
				t.Errorf("the first request ended before it: %v", err)
			default:
			}
		})
	}
}

func methodOf(f *http2.HeadersFrame) (method string) {
	hpack.NewDecoder(4096, func(field hpack.HeaderField) {
		if field.Name == ":method" {
			method = field.Value
		}
	}).Write(f.HeaderBlockFragment())
	return method
}

// A connection whose server is silent, although its system acknowledges, gets no more requests
// about a second after one was given up: one of its own, or one that waited for it.
func TestHTTP2LeavesDeadServer(t *testing.T) {
	for name, c := range map[string]struct {
		tr   *Transport
		held int // requests without a limit, which the dead server has
	}{
		"with room":            {&Transport{}, 0},
		"full, the only place": {&Transport{MaxConnsPerHost: 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns atomic.Int32
			held := make(chan bool, c.held)
			url := scripted(t, func(nc net.Conn, r *bufio.Reader) {
				io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
				fr := http2.NewFramer(nc, r)
				fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
				dead := conns.Add(1) == 1
				for {
					f, err := fr.ReadFrame()
					if err != nil {
						return
					}
					switch f := f.(type) {
					case *http2.SettingsFrame:
						if !f.IsAck() {
							fr.WriteSettingsAck()
						}
					case *http2.HeadersFrame:
						if !dead {
							answer(fr, f.StreamID, "204", true)
						} else if int(f.StreamID/2) < c.held {
							held <- true
						}
					}
				}
			})
			tr := overClearH2(t, c.tr)
			var waiting sync.WaitGroup
			defer waiting.Wait()
			hanging, end := context.WithCancel(t.Context())
			defer end()
			for range c.held {
				waiting.Go(func() {
					tr.RoundTrip(request(t, "GET", url, nil).WithContext(hanging))
				})
				<-held
			}
			for i := range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				r, err := tr.RoundTrip(request(t, "GET", url, nil).WithContext(ctx))
				cancel()
				if err == nil {
					r.Body.Close()
					if i < 2 {
						t.Errorf("request %d was answered", i)
					}
					return
				}
				if err != context.DeadlineExceeded {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			t.Errorf("200 requests went to the dead server, over %d connections", conns.Load())
		})
	}
}

// A request whose fields are more than the server takes fails alone, and is not sent.
func TestHTTP2HeaderListOfServer(t *testing.T) {
	s, tr := clearH2(t, ok, &Transport{})
	s.Config.MaxHeaderBytes = 1 << 10
	get(t, tr, s.URL) // the SETTINGS have come
	r := request(t, "GET", s.URL, nil)
	r.Header.Set("X-Large", strings.Repeat("x", 100_000))
	if _, err := tr.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "header list") {
		t.Errorf("%v", err)
	}
	get(t, tr, s.URL)
}

// What a server's window holds back is not its delay: ResponseHeaderTimeout begins when the request
// has left.
func TestHTTP2HeaderTimeoutBehindWindow(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
		fr := http2.NewFramer(c, r)
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					fr.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				if f.StreamEnded() {
					answer(fr, f.StreamID, "204", true)
					continue
				}
				time.Sleep(timeout * 3 / 2)
				fr.WriteWindowUpdate(f.StreamID, 100)
			case *http2.DataFrame:
				if f.StreamEnded() {
					answer(fr, f.StreamID, "204", true)
				}
			}
		}
	})
	tr := overClearH2(t, &Transport{ResponseHeaderTimeout: timeout})
	for _, method := range []string{"GET", "POST"} { // the first one learns the SETTINGS
		body := io.Reader(nil)
		if method == "POST" {
			body = strings.NewReader("text")
		}
		response, err := tr.RoundTrip(request(t, method, url, body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
}

// answersHTTP2 is for a server of HTTP/2 that answers each request 10 ms later.
func answersHTTP2(h *calmHost, p *sim.Peer) {
	var in, out bytes.Buffer
	fr := http2.NewFramer(&out, &in)
	number := len(h.accepted)
	flush := func() {
		if number > h.dead {
			p.Write(bytes.Clone(out.Bytes()))
		}
		out.Reset()
	}
	fr.WriteSettings(h.settings...)
	flush()
	preface := len(http2.ClientPreface)
	p.OnReceived = func(b []byte) {
		n := min(preface, len(b))
		preface -= n
		in.Write(b[n:])
		for in.Len() > 0 { // in a calm world frames come whole
			f, err := fr.ReadFrame()
			if err != nil {
				h.t.Fatalf("the client has sent a wrong frame: %v", err)
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					fr.WriteSettingsAck()
				}
			case *http2.PingFrame:
				fr.WritePing(true, f.Data)
			case *http2.HeadersFrame:
				h.AfterFunc(10*time.Millisecond, func() {
					answer(fr, f.StreamID, "204", true)
					flush()
				})
			}
		}
		flush()
	}
}

// idleHTTP2 is a server of HTTP/2 with so many idle connections, of which each takes one request at
// a time.
func idleHTTP2(t *testing.T, conns int) *calmHost {
	tr := &Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	h := newCalmHost(t, tr, answersHTTP2)
	h.settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}
	h.answered(conns)
	if len(h.accepted) != conns {
		t.Fatalf("%d connections for %d requests", len(h.accepted), conns)
	}
	return h
}

// answered sends n requests at once, which have to be answered in a second.
func (h *calmHost) answered(n int) {
	h.t.Helper()
	var results []*error
	for range n {
		results = append(results, h.ask("http", time.Second))
	}
	h.RunFor(time.Second)
	for _, err := range results {
		if *err != nil {
			h.t.Errorf("with %d connections, of which %d are dead: %v; %v", len(h.accepted), h.dead, *err, PoolOf(h.tr))
		}
	}
}

// When an HTTP/2 connection is left because its server is silent, the others of its host are asked.
// Those that are dead as well are left together, a second later.
func TestDeadConnectionsAreLeftTogether(t *testing.T) {
	h := idleHTTP2(t, 10)
	h.dead = 10
	h.ask("http", 100*time.Millisecond)
	h.RunFor(110*time.Millisecond + 2*silence)
	h.answered(1)
}

// Connections that answer are kept, however often others of their host are left.
func TestAnsweringConnectionsAreKept(t *testing.T) {
	h := idleHTTP2(t, 10)
	for h.dead < 6 {
		h.dead++ // the first has room and is taken
		h.ask("http", 100*time.Millisecond)
		h.RunFor(10 * time.Second)
	}
	h.answered(4)
	if len(h.accepted) != 10 {
		t.Errorf("%d connections for 4 requests, although 4 of 10 answer", len(h.accepted))
	}
}

// A host keeps nothing of the connections that have left it.
func TestLeftConnectionsAreLetGo(t *testing.T) {
	h := idleHTTP2(t, 3)
	h.dead = 2
	h.ask("http", 100*time.Millisecond)
	h.RunFor(110*time.Millisecond + 2*silence)
	for key, host := range h.tr.pool.hosts {
		if len(host.muxes) != 1 {
			t.Errorf("%v has %d connections", key, len(host.muxes))
		}
		for _, m := range host.muxes[len(host.muxes):cap(host.muxes)] {
			if m != nil {
				t.Errorf("%v keeps a connection that has left", key)
			}
		}
	}
}
