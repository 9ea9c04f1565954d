package websocket

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/workers"
)

// Peers that send a byte at a time, and never the last one of their message, occupy no worker: a pool of one is free for who has
// something to say. MYRIAD_SLOW_PEERS makes them more than 500, of two descriptors each.
func TestByteByBytePeersOccupyNoWorker(t *testing.T) {
	peers := 500
	if text := os.Getenv("MYRIAD_SLOW_PEERS"); text != "" {
		var err error
		if peers, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	e := startEngine(t, myriad.Config{Loops: 1})
	pool := workers.New(workers.Config{Workers: 1})
	t.Cleanup(func() { _ = pool.Close(t.Context()) })
	o := &Options{Workers: pool, PingInterval: quiet, OnMessage: echoBack, Compression: Compression{Enabled: true}}
	addr := listen(t, e, Handler(o))
	text := strings.Repeat("x", 20)
	wire := clientFrame(false, OpText, text) + clientFrame(true, OpPing, "?") + clientFrame(true, opContinuation, text)
	var slow []*rawPeer
	for range peers {
		slow = append(slow, dialRaw(t, addr).open())
	}
	healthy := dialRaw(t, addr).open()
	tasks := pool.Stats().Done
	for i := range len(wire) - 1 {
		for _, p := range slow {
			p.write(wire[i : i+1])
		}
		if i%20 == 0 {
			healthy.write(clientFrame(true, OpText, "quick"))
			healthy.want(line(OpText, "quick"))
		}
	}
	for _, p := range slow {
		p.want(`pong "?"`)
	}
	if got, most := pool.Stats().Done-tasks, uint64(len(wire)/20+1); got > most {
		t.Errorf("%d tasks ran for %d messages of the one who completed any", got, most)
	}
	for _, p := range slow {
		p.write(wire[len(wire)-1:])
		p.want(line(OpText, text+text))
	}
}
