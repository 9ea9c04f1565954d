package web

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
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
	return 100
}

// simClient sends requests over one simulated connection and knows what must come back.
type simClient struct {
	peer *sim.Peer
	want []string // the body of each answer, in order
}

func newSimClient(w *sim.World, f *simServer, r *rand.Rand, id int) *simClient {
	c := &simClient{peer: w.Dial(f.addr)}
	var out bytes.Buffer
	n := 1 + r.IntN(6)
	for i := range n {
		body := strings.Repeat(string(rune('a'+i)), r.IntN(1<<r.IntN(18)))
		tail := ""
		if i == n-1 {
			tail = "Connection: close\r\n"
		}
		path := fmt.Sprintf("/%d/%d", id, i)
		if r.IntN(2) == 0 {
			fmt.Fprintf(&out, "POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", path, tail, len(body), body)
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

// check holds the bytes that came against what had to come. A connection that the world broke may have less.
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
			return fmt.Errorf("answer %d: %d bytes, %v; want %d", i, len(got), err, len(want))
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
	w := sim.New(seed, sim.Options{})
	engine, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet(), LingerTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var errs lockedLog
	s := &Server{Engine: engine, Dispatch: d, ErrorLog: log.New(&errs, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, r.URL.Path+" ")
		io.Copy(rw, r.Body)
	})}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &simServer{s, ln.Addr()}
	r := rand.New(rand.NewPCG(seed, 1))
	var clients []*simClient
	for id := range 1 + r.IntN(8) {
		clients = append(clients, newSimClient(w, f, r, id))
	}
	w.Run()
	for id, c := range clients {
		if err := c.check(); err != nil {
			t.Errorf("seed %d, client %d: %v", seed, id, err)
		}
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: Shutdown: %v", seed, err)
	}
	if err := engine.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: engine Shutdown: %v", seed, err)
	}
	w.Settle()
	w.Check(t)
	if s := errs.String(); s != "" {
		t.Errorf("seed %d: log: %s", seed, s)
	}
	return w.Hash()
}

func TestSimulated(t *testing.T) {
	for seed := range simSeeds(t) {
		simRun(t, seed, DispatchPool)
		simRun(t, seed, DispatchInline)
		if t.Failed() {
			t.FailNow()
		}
	}
}

func TestSimulationRepeats(t *testing.T) {
	for seed := range uint64(20) {
		if a, b := simRun(t, seed, DispatchPool), simRun(t, seed, DispatchPool); a != b {
			t.Fatalf("seed %d gave two traces: %x and %x", seed, a, b)
		}
	}
}
