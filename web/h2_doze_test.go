package web

import (
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	muxed "github.com/myriad-go/myriad/web/internal/http2"
)

// muxedFields are a request of Chromium, which enters most of them into the table of the server's
// decoder.
var muxedFields = [][2]string{
	{":method", "GET"}, {":authority", "www.example.com"}, {":scheme", "https"}, {":path", "/api/items?page=2"},
	{"sec-ch-ua", `"Chromium";v="142", "Google Chrome";v="142", "Not_A Brand";v="99"`}, {"sec-ch-ua-mobile", "?0"},
	{"sec-ch-ua-platform", `"Linux"`}, {"upgrade-insecure-requests", "1"},
	{"user-agent",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"},
	{"accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"},
	{"sec-fetch-site", "none"}, {"sec-fetch-mode", "navigate"}, {"sec-fetch-dest", "document"},
	{"accept-encoding", "gzip, deflate, br, zstd"}, {"accept-language", "en-US,en;q=0.9"}, {"priority", "u=0, i"},
}

// muxedBrowser is the beginning of a connection, and a request.
func muxedBrowser() []byte {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, f := range muxedFields {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	p := append([]byte(h2.Preface), h2.AppendSettingsAck(h2.AppendSettings(nil))...)
	return h2.AppendHeaders(p, 1, []byte(block.String()), true, h2.MinFrameSize)
}

// idleHeap is how many bytes n connections take each, and their peers, that have sent a browser's
// request and are then silent for so long.
func idleHeap(t *testing.T, n int, silence time.Duration) int {
	w := newWorld(1, sim.Calm())
	engine, err := myriad.Start(myriad.Config{System: w, Loops: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: engine, Protocols: plainHTTP2(), Handler: http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "answered") })}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	request := muxedBrowser()
	converse := func() *sim.Peer {
		p := w.Dial(ln.Addr())
		p.Write(request)
		w.Settle()
		if got := p.TakeReceived(); !strings.Contains(string(got), "answered") {
			t.Fatalf("got %q", got)
		}
		return p
	}
	peers := []*sim.Peer{converse()} // what all connections share is there now
	before := heapInUse()
	for range n {
		peers = append(peers, converse())
	}
	w.RunFor(silence)
	used := (heapInUse() - before) / n
	for _, p := range peers {
		p.Close()
	}
	w.Run()
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
	return used
}

func heapInUse() int {
	var m runtime.MemStats
	for range 3 { // pools need two
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A second after its last answer a connection gives back what it needs for streams: of a browser's
// connection its h2conn is left, and the table of fields that the browser refers to.
func TestHTTP2ConnectionDozes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes other allocations")
	}
	const conns = 300
	awake, dozing := idleHeap(t, conns, 500*time.Millisecond), idleHeap(t, conns, 2*time.Second)
	t.Logf("a connection that dozes takes %d bytes less than one that is awake; an h2conn has %d", awake-dozing,
		reflect.TypeFor[muxed.Conn]().Size())
	if awake-dozing < 3000 {
		t.Errorf("an idle connection takes %d bytes, and %d when it dozes", awake, dozing)
	}
	if size := reflect.TypeFor[muxed.Conn]().Size(); size > 256 {
		t.Errorf("an h2conn has %d bytes, at most 256 are allowed", size)
	}
}
