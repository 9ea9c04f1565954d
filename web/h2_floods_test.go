package web

import (
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad"
)

// figuresOf returns the figures of HTTP/2 by name.
func figuresOf(e *myriad.Engine) map[string]int64 {
	all := map[string]int64{}
	for _, f := range e.Figures() {
		if f.Title == "web: HTTP/2" {
			for _, c := range f.Counts {
				all[c.Name] = c.Count
			}
		}
	}
	return all
}

// untilGoAway reads frames to the connection's end, and counts them.
func untilGoAway(t *testing.T, fr *http2.Framer) (code http2.ErrCode, frames int) {
	t.Helper()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("no GOAWAY behind %d frames: %v", frames, err)
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			return g.ErrCode, frames
		}
		frames++
	}
}

// floods are what a client repeats, each time on another stream.
var floods = []struct {
	name   string
	flood  func(fr *http2.Framer, id uint32) error
	frames int // that the server sends at most
	figure string
}{
	{"rapid reset", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, false)
		return fr.WriteRSTStream(id, http2.ErrCodeCancel)
	}, 1000, "streams reset by clients"},
	{"MadeYouReset by WINDOW_UPDATE", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, false)
		return fr.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0})
	}, 1000, "streams reset for mistakes"},
	{"MadeYouReset by a window's overflow", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, false)
		return fr.WriteWindowUpdate(id, 1<<31-1)
	}, 1000, "streams reset for mistakes"},
	{"MadeYouReset by PRIORITY of a wrong length", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, false)
		return fr.WriteRawFrame(http2.FramePriority, 0, id, []byte{0, 0, 0, 0})
	}, 1000, "streams reset for mistakes"},
	{"MadeYouReset by PRIORITY on itself", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, false)
		return fr.WriteRawFrame(http2.FramePriority, 0, id, []byte{0, 0, byte(id >> 8), byte(id), 0})
	}, 1000, "streams reset for mistakes"},
	{"MadeYouReset by DATA after END_STREAM", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, true)
		return fr.WriteData(id, false, []byte("x"))
	}, 2000, "streams reset for mistakes"},
	{"streams that are refused", func(fr *http2.Framer, id uint32) error {
		openStream(fr, id, false)
		return nil
	}, 2000, "streams refused"},
	{"empty DATA", func(fr *http2.Framer, id uint32) error {
		if id == 1 {
			openStream(fr, id, false)
		}
		return fr.WriteData(1, false, nil)
	}, 10, ""},
	{"PRIORITY", func(fr *http2.Framer, id uint32) error {
		return fr.WritePriority(id, http2.PriorityParam{})
	}, 10, ""},
	{"WINDOW_UPDATE", func(fr *http2.Framer, id uint32) error {
		return fr.WriteWindowUpdate(0, 1)
	}, 10, ""},
	{"SETTINGS", func(fr *http2.Framer, id uint32) error {
		return fr.WriteSettings()
	}, 2000, ""},
	{"CONTINUATION", func(fr *http2.Framer, id uint32) error {
		if id == 1 {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: indexedGet})
		}
		return fr.WriteContinuation(1, false, nil)
	}, 10, ""},
	{"PING", func(fr *http2.Framer, id uint32) error {
		return fr.WritePing(false, [8]byte{})
	}, 40_000, ""},
}

// Floods end with a code, after a bounded number of answers and handlers, and the engine's figures
// say so. The client writes until the server has had enough.
func TestHTTP2Floods(t *testing.T) {
	for _, tt := range floods {
		t.Run(tt.name, func(t *testing.T) {
			const most = 5
			var ran atomic.Int64
			release := make(chan struct{})
			f, _ := serveHTTP2(t, &Server{Dispatch: DispatchPool, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: most},
				Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					ran.Add(1)
					<-release
				})})
			before := figuresOf(f.state.Engine)
			_, fr := rawHTTP2(t, f)
			go func() {
				for id := uint32(1); id < 1<<16 && tt.flood(fr, id) == nil; id += 2 {
				}
			}()
			code, frames := untilGoAway(t, fr)
			close(release)
			if code != http2.ErrCodeEnhanceYourCalm || frames > tt.frames {
				t.Errorf("%v after %d frames", code, frames)
			}
			if n := ran.Load(); n > 2*most {
				t.Errorf("%d handlers have run", n)
			}
			after := figuresOf(f.state.Engine)
			if n := after["connections ended for floods"] - before["connections ended for floods"]; n != 1 {
				t.Errorf("%d connections ended for floods", n)
			}
			if tt.figure != "" && after[tt.figure] <= before[tt.figure] {
				t.Errorf("no %s", tt.figure)
			}
		})
	}
}
