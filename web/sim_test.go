package web

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// simSeeds is how many worlds each simulation runs through; MYRIAD_SIM_SEEDS asks for more.
func simSeeds(t *testing.T) uint64 {
	if s := os.Getenv("MYRIAD_SIM_SEEDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatalf("MYRIAD_SIM_SEEDS: %v", err)
		}
		return n
	}
	return soak.Size(t, uint64(20), 200)
}

// newWorld returns a simulated world. It panics if one of its goroutines is stuck.
func newWorld(seed uint64, o sim.Options) *sim.World {
	o.Stall = cmp.Or(o.Stall, soak.Patience(30*time.Second))
	return sim.New(seed, o)
}

// simFiller is the body of an answer to a GET.
var simFiller = strings.Repeat("filler", 500)

// simClient sends requests over one simulated connection and knows what must come back.
type simClient struct {
	peer *sim.Peer
	want []string // the body of each answer, in order
}

func newSimClient(w *sim.World, f *simServer, r *rand.Rand, id, most int) *simClient {
	c := &simClient{peer: w.Dial(f.addr)}
	var out bytes.Buffer
	n := 1 + r.IntN(most)
	for i := range n {
		body := strings.Repeat(string(rune('a'+i%26)), r.IntN(1<<r.IntN(18)))
		tail := ""
		if i == n-1 {
			tail = "Connection: close\r\n"
		}
		path := fmt.Sprintf("/%d/%d", id, i)
		if most > 6 || r.IntN(4) == 0 { // whole when its head is
			fmt.Fprintf(&out, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, tail)
			c.want = append(c.want, path+" "+simFiller)
			continue
		}
		if r.IntN(2) == 0 {
			fmt.Fprintf(&out, "POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", path, tail, len(body),
				body)
		} else {
			fmt.Fprintf(&out, "POST %s HTTP/1.1\r\nHost: h\r\n%sTransfer-Encoding: chunked\r\n\r\n", path, tail)
			for p := body; len(p) > 0; {
				k := 1 + r.IntN(len(p))
				fmt.Fprintf(&out, "%x\r\n%s\r\n", k, p[:k])
				p = p[k:]
			}
			out.WriteString("0\r\n\r\n")
		}
		c.want = append(c.want, path+" "+body)
	}
	c.peer.Write(out.Bytes())
	return c
}

// check holds the bytes that came against what had to come. A connection that the world broke may
// have less.
func (c *simClient) check() error {
	r := bufio.NewReader(bytes.NewReader(c.peer.Received()))
	for i, want := range c.want {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			if c.peer.Faulted() {
				return nil
			}
			return fmt.Errorf("answer %d: %w", i, err)
		}
		got, err := io.ReadAll(resp.Body)
		if !strings.HasPrefix(want, string(got)) || (err != nil || string(got) != want) && !c.peer.Faulted() {
			return fmt.Errorf("answer %d: %d bytes, %v; want %d %.20q", i, len(got), err, len(want), want)
		}
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 {
		return fmt.Errorf("%d bytes behind the last answer", len(rest))
	}
	return nil
}

type simServer struct {
	*Server
	addr interface {
		Network() string
		String() string
	}
}

// simRun serves clients in one world and returns its hash.
func simRun(t *testing.T, seed uint64, d Dispatch) uint64 {
	w := newWorld(seed, sim.Options{})
	cfg := myriad.Config{Loops: 2, System: w, Logger: quiet(), LingerTimeout: time.Hour}
	most := 6 // requests of a client
	if d != DispatchPool && seed%2 == 1 {
		cfg.WriteLimit = 2 << 10 // handlers have to wait for room
	}
	if d == DispatchAuto {
		cfg.Loops, most = 1, 60 // or nothing is learned
	}
	engine, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var errs lockedLog
	s := &Server{Engine: engine, mostAwake: int(seed % 3), Dispatch: d, PipelineDepth: int(seed % 5),
		ErrorLog: log.New(&errs, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
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
	f := &simServer{s, ln.Addr()}
	r := rand.New(rand.NewPCG(seed, 1))
	var clients []*simClient
	for id := range 1 + r.IntN(8) {
		clients = append(clients, newSimClient(w, f, r, id, most))
	}
	w.Run()
	for id, c := range clients {
		if err := c.check(); err != nil {
			t.Errorf("seed %d, client %d: %v", seed, id, err)
		}
	}
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Errorf("seed %d: Shutdown: %v", seed, err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Errorf("seed %d: engine Shutdown: %v", seed, err)
	}
	w.Settle()
	w.Check(t)
	stats := engine.Stats()
	simTakeovers.Add(int64(stats.Overstays))
	simHandOvers.Add(int64(stats.Handoffs))
	if s := errs.String(); s != "" {
		t.Errorf("seed %d: log: %s", seed, s)
	}
	return w.Hash()
}

// What the simulations have seen of loops that change hands.
var simTakeovers, simHandOvers atomic.Int64

func TestSimulated(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
		t.Run(d.String(), func(t *testing.T) {
			simTakeovers.Store(0)
			simHandOvers.Store(0)
			for seed := range simSeeds(t) {
				if simRun(t, seed, d); t.Failed() {
					t.FailNow()
				}
			}
			if took, gave := simTakeovers.Load(), simHandOvers.Load(); (d == DispatchPool) != (took == 0) ||
				(d == DispatchInline && gave == 0) {
				t.Errorf("%d takeovers, %d hand-overs", took, gave)
			} else {
				t.Logf("%d takeovers, %d hand-overs", took, gave)
			}
		})
	}
}

func TestSimulationRepeats(t *testing.T) {
	for seed := range uint64(20) {
		for _, d := range []Dispatch{DispatchPool, DispatchAuto} {
			if a, b := simRun(t, seed, d), simRun(t, seed, d); a != b {
				t.Fatalf("seed %d, %v: two traces: %x and %x", seed, d, a, b)
			}
		}
	}
}
