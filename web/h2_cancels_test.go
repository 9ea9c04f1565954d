package web

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	muxed "github.com/myriad-go/myriad/web/internal/http2"
)

// framesUntil reads frames until stop says so, and answers PINGs. It fails at the connection's end.
func framesUntil(t *testing.T, fr *http2.Framer, stop func(f http2.Frame) bool) {
	t.Helper()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			t.Fatalf("GOAWAY %v: %s", f.ErrCode, f.DebugData())
		case *http2.PingFrame:
			if !f.IsAck() {
				fr.WritePing(true, f.Data)
			}
		}
		if stop(frame) {
			return
		}
	}
}

// endOf stops at the end of a stream that is answered.
func endOf(t *testing.T, id uint32) func(f http2.Frame) bool {
	return func(f http2.Frame) bool {
		if r, ok := f.(*http2.RSTStreamFrame); ok {
			t.Errorf("RST_STREAM %d %v", r.StreamID, r.ErrCode)
		}
		h := f.Header()
		return h.StreamID == id && h.Flags.Has(http2.FlagDataEndStream) && h.Type <= http2.FrameHeaders
	}
}

// A client that has as many requests as it may have, and cancels all but one at once, time and
// again, is served as any other.
func TestHTTP2AllButOneAreCancelled(t *testing.T) {
	var running atomic.Int64
	first := make(chan struct{})
	f, _ := serveHTTP2(t, &Server{Dispatch: DispatchPool, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			defer running.Add(-1)
			if running.Add(1); r.URL.Path == "/first" {
				<-first
				return
			}
			<-r.Context().Done()
		})})
	_, fr := rawHTTP2(t, f)
	let := sync.OnceFunc(func() { close(first) })
	defer let()
	block := strings.Replace(string(indexedGet), "\x84", "\x04\x06/first", 1)
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block), EndHeaders: true,
		EndStream: true})
	next := uint32(3)
	for range 20 {
		begun := next
		for range muxed.MaxStreams - 1 {
			openStream(fr, next, true)
			next += 2
		}
		within(t, "all handlers run", func() bool { return running.Load() == muxed.MaxStreams })
		for id := begun; id < next; id += 2 {
			fr.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		fr.WritePing(false, [8]byte{1})
		framesUntil(t, fr, func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && p.IsAck() })
		within(t, "all handlers but one have returned", func() bool { return running.Load() == 1 })
	}
	let()
	framesUntil(t, fr, endOf(t, 1))
}

// Clients of Go that read a download through a small buffer grant it again in small pieces.
func TestHTTP2DownloadInPieces(t *testing.T) {
	const size = 64 << 20
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		io.CopyN(w, zeros{}, size)
	}, func(t *testing.T, f *fixture, c *http.Client) {
		resp, err := c.Get(f.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 4<<10))
		if n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// Calls that end by their deadline, as fast as clients of Go make them, leave the others of their
// connection alone.
func TestHTTP2CancelsByDeadline(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	f, clients := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthy" {
			entered <- struct{}{}
			<-release
			return
		}
		<-r.Context().Done()
	})})
	ended := figuresOf(f.state.Engine)["connections ended for floods"]
	var healthy sync.WaitGroup
	for name, c := range clients {
		healthy.Go(func() {
			resp, err := c.Get(f.url("/healthy"))
			mustBody(t, resp, err)
		})
		<-entered
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
					req, _ := http.NewRequestWithContext(ctx, "GET", f.url("/"), nil)
					if resp, err := c.Do(req); err == nil { // else its deadline, or that of its dial
						t.Errorf("%s: a call that is not answered has status %s", name, resp.Status)
						resp.Body.Close()
					}
					cancel()
				}
			})
		}
		calls.Wait()
	}
	close(release)
	healthy.Wait()
	if n := figuresOf(f.state.Engine)["connections ended for floods"] - ended; n != 0 {
		t.Errorf("%d connections were ended", n)
	}
}
