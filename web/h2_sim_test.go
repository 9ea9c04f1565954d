package web

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A muxClient asks over one simulated HTTP/2 connection, and knows what must come back.
type muxClient struct {
	peer *sim.Peer
	want map[uint32]string // the body of each answer, by stream
}

func newMuxClient(w *sim.World, f *simServer, r *rand.Rand, id int) *muxClient {
	c := &muxClient{peer: w.Dial(f.addr), want: map[uint32]string{}}
	var out, block bytes.Buffer
	fr, enc := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	out.WriteString(http2.ClientPreface)
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	fr.WriteSettingsAck()
	fr.WriteWindowUpdate(0, 1<<30)
	for i := range 1 + r.IntN(6) {
		stream := uint32(2*i + 1)
		path := fmt.Sprintf("/%d/%d", id, i)
		method, body := "GET", ""
		if r.IntN(2) == 0 {
			method, body = "POST", strings.Repeat(string(rune('a'+i)), r.IntN(1<<r.IntN(15)))
		}
		block.Reset()
		for _, f := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "h"}, {":path", path}} {
			enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true,
			EndStream: method == "GET"})
		for p := body; method == "POST"; p = p[min(len(p), 5000):] {
			last := len(p) <= 5000
			fr.WriteData(stream, last, []byte(p[:min(len(p), 5000)]))
			if last {
				break
			}
		}
		c.want[stream] = path + " " + body
		if method == "GET" {
			c.want[stream] += simFiller
		}
		if r.IntN(10) == 0 {
			fr.WriteRSTStream(stream, http2.ErrCodeCancel)
			delete(c.want, stream)
		}
	}
	c.peer.Write(out.Bytes())
	return c
}

// check holds what came against what had to come. A connection that the world broke may have less.
func (c *muxClient) check() error {
	got := map[uint32]string{}
	ended := map[uint32]bool{}
	fr := http2.NewFramer(nil, bytes.NewReader(c.peer.Received()))
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			break
		}
		switch v := frame.(type) {
		case *http2.DataFrame:
			got[v.StreamID] += string(v.Data())
			ended[v.StreamID] = v.StreamEnded()
		case *http2.GoAwayFrame:
			if v.ErrCode != http2.ErrCodeNo && !c.peer.Faulted() {
				return fmt.Errorf("GOAWAY %v %q", v.ErrCode, v.DebugData())
			}
		}
	}
	for stream, want := range c.want {
		if !strings.HasPrefix(want, got[stream]) || (got[stream] != want || !ended[stream]) && !c.peer.Faulted() {
			return fmt.Errorf("stream %d: %d bytes, ended %v; want %d", stream, len(got[stream]), ended[stream],
				len(want))
		}
	}
	return nil
}

// muxRun serves HTTP/2 clients in one world and returns its hash.
func muxRun(t *testing.T, seed uint64, d Dispatch) uint64 {
	w := newWorld(seed, sim.Options{})
	cfg := myriad.Config{Loops: 2, System: w, Logger: quiet(), LingerTimeout: time.Hour}
	if seed%2 == 1 {
		cfg.WriteLimit = 2 << 10 // handlers have to wait for room
	}
	engine, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: engine, Dispatch: d, Protocols: plainHTTP2(), WriteTimeout: time.Hour,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.URL.Path+" ")
			w.Linger()
			io.Copy(rw, r.Body)
			if r.Method == http.MethodGet {
				io.WriteString(rw, simFiller)
			}
		})}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, r := &simServer{Server: s, addr: ln.Addr()}, rand.New(rand.NewPCG(seed, 2))
	var clients []*muxClient
	for i := range 8 {
		clients = append(clients, newMuxClient(w, f, r, i))
	}
	w.Run()
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	for i, c := range clients {
		if err := c.check(); err != nil {
			t.Errorf("seed %d, %v: client %d: %v", seed, d, i, err)
		}
		c.peer.Close()
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
	return w.Hash()
}

// HTTP/2 on the simulator, with faults: each answer is whole and in its stream, or its connection
// broke; and a run repeats itself.
func TestHTTP2Simulation(t *testing.T) {
	for _, d := range dispatches {
		for seed := range simSeeds(t) {
			if a := muxRun(t, seed, d); seed%10 == 0 && a != muxRun(t, seed, d) {
				t.Errorf("seed %d, %v: two runs differ", seed, d)
			}
			if t.Failed() {
				return
			}
		}
	}
}
