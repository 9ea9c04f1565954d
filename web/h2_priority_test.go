package web

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// A downloader reads a large answer in a simulated world, and asks for small ones meanwhile. Its
// window lets the server send 64 KiB ahead.
type downloader struct {
	*sim.World
	t     *testing.T
	s     *Server
	peer  *sim.Peer
	in    []byte
	got   map[uint32]int // bytes of DATA
	ended map[uint32]int // bytes of all streams together when a stream had ended
	total int
}

const largeAnswer = 8 << 20

func newDownloader(t *testing.T) *downloader {
	d := &downloader{World: newWorld(1, sim.Calm()), t: t, got: map[uint32]int{}, ended: map[uint32]int{}}
	engine, err := myriad.Start(myriad.Config{System: d.World, Loops: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	chunk := []byte(strings.Repeat("x", 32<<10))
	d.s = &Server{Engine: engine, Protocols: plainHTTP2(), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/small" {
				io.WriteString(w, "small")
				return
			}
			for n := 0; n < largeAnswer; n += len(chunk) {
				w.Write(chunk)
			}
		})}
	ln, err := d.s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.peer = d.Dial(ln.Addr())
	p := h2.AppendSettings([]byte(h2.Preface), h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 30})
	d.peer.Write(h2.AppendSettingsAck(p)) // the connection's window is 64 KiB
	return d
}

func (d *downloader) ask(stream uint32, path string, more ...string) {
	fields := append([]string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", path}, more...)
	var block []byte
	for i := 0; i < len(fields); i += 2 {
		block = hpack.AppendField(block, []byte(fields[i]), []byte(fields[i+1]), false)
	}
	d.peer.Write(h2.AppendHeaders(nil, stream, block, true, h2.MinFrameSize))
}

// readUntil lets a little time pass again and again until the streams have got so many bytes.
func (d *downloader) readUntil(enough func() bool) {
	d.t.Helper()
	for i := 0; !enough(); i++ {
		if i == 1e7 {
			d.t.Fatalf("got %v", d.got)
		}
		if !d.Step() {
			d.t.Fatalf("nothing happens any more; got %v", d.got)
		}
		d.in = append(d.in, d.peer.TakeReceived()...)
		for {
			n, f, err := h2.ParseFrame(d.in, h2.MaxFrameSize)
			if n == 0 || err != nil {
				break
			}
			d.in = d.in[n:]
			if f.Type == h2.Data {
				d.got[f.Stream] += len(f.Data)
				d.total += len(f.Data)
				d.peer.Write(h2.AppendWindowUpdate(nil, 0, max(1, len(f.Data))))
				if f.Has(h2.EndStream) {
					d.ended[f.Stream] = d.total
				}
			}
		}
	}
}

// small asks for a small answer, and returns how many bytes of other answers come before its end.
func (d *downloader) small(stream uint32, more ...string) int {
	d.t.Helper()
	before := d.total
	d.ask(stream, "/small", more...)
	d.readUntil(func() bool { return d.ended[stream] > 0 })
	return d.ended[stream] - before - d.got[stream]
}

func (d *downloader) stop() {
	d.peer.Close()
	d.Run()
	if err := d.s.Shutdown(context.Background()); err != nil {
		d.t.Error(err)
	}
	if err := d.s.Engine.Shutdown(context.Background()); err != nil {
		d.t.Error(err)
	}
	d.Settle()
	d.Check(d.t)
}

// A large download leaves room for small answers of the same connection, whatever its client says
// of priorities: before one comes what is on its way already. Only where the client says that its
// download comes first does it, and even then one block in sixteen is another's.
func TestDownloadLeavesRoom(t *testing.T) {
	const (
		onItsWay = 128 << 10
		turn     = 16 * h2.MinFrameSize
	)
	for _, tt := range []struct {
		name            string
		download, small []string // fields of the requests
		update          string   // PRIORITY_UPDATE of the download
		first           bool     // the download comes first
	}{
		{name: "no signals"},
		{name: "both incremental", download: []string{"priority", "u=3, i"}, small: []string{"priority", "u=3, i"}},
		{name: "small urgent", download: []string{"priority", "u=3"}, small: []string{"priority", "u=0"}},
		{name: "download in the background", download: []string{"priority", "u=7"}},
		{name: "put into the background", download: []string{"priority", "u=0"}, update: "u=7"},
		{name: "one after the other", download: []string{"priority", "u=3"}, small: []string{"priority", "u=3"},
			first: true},
		{name: "download urgent", download: []string{"priority", "u=0"}, small: []string{"priority", "u=7"},
			first: true},
		{name: "made incremental", download: []string{"priority", "u=3"}, small: []string{"priority", "u=3"},
			update: "u=3, i"},
	} {
		var most int
		for phase := range 16 { // the block at which the small request comes
			d := newDownloader(t)
			d.ask(1, "/large", tt.download...)
			d.readUntil(func() bool { return d.got[1] > largeAnswer/8+phase*h2.MinFrameSize })
			if tt.update != "" {
				d.peer.Write(h2.AppendPriorityUpdate(nil, 1, tt.update))
			}
			most = max(most, d.small(3, tt.small...))
			if phase == 0 {
				d.readUntil(func() bool { return d.ended[1] > 0 })
				if d.got[1] != largeAnswer {
					t.Errorf("%s: the download has %d bytes", tt.name, d.got[1])
				}
			}
			d.stop()
		}
		t.Logf("%s: at most %d KiB come before a small answer", tt.name, most>>10)
		if most > onItsWay+turn || most > onItsWay != tt.first {
			t.Errorf("%s: %d KiB of the download have come before a small answer", tt.name, most>>10)
		}
	}
}

// The more urgent of two downloads gets most of the bandwidth, and PRIORITY_UPDATE turns that. The
// other one has what is left while the first one's handler has nothing ready.
func TestPriorityUpdateTurnsDownloads(t *testing.T) {
	d := newDownloader(t)
	d.ask(1, "/large", "priority", "u=2")
	d.ask(3, "/large", "priority", "u=5")
	d.readUntil(func() bool { return d.got[1] > largeAnswer/4 })
	first := d.got[3]
	d.peer.Write(h2.AppendPriorityUpdate(nil, 1, "u=6"))
	d.readUntil(func() bool { return d.ended[3] > 0 })
	t.Logf("before the update stream 3 has got %d KiB to %d KiB of stream 1, which is at %d KiB when 3 has all",
		first>>10, largeAnswer/4>>10, d.got[1]>>10)
	if first > largeAnswer/8 || d.got[1] > largeAnswer*3/4 {
		t.Errorf("stream 3 had %d bytes, stream 1 then %d", first, d.got[1])
	}
	d.stop()
}
