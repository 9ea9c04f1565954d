package websocket

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

const (
	// slowPeersEnv is how many peers there are to be, instead of 500.
	slowPeersEnv = "MYRIAD_SLOW_PEERS"
	// slowPeersAtEnv makes a process of the test that of the peers: it has the server's address.
	slowPeersAtEnv = "MYRIAD_SLOW_PEERS_AT"
	slowText       = "xxxxxxxxxxxxxxxxxxxx"
)

// Peers that send a byte at a time, and never the last one of their message, occupy no worker. A
// pool of one is free for peers that send whole messages, and so is the loop, where quick callbacks
// run on it. They are in a process of their own, so that ten thousand of them need no more than
// 20,000 descriptors in any:
//
//	MYRIAD_SLOW_PEERS=10000 go test -v -run ByteByByte ./websocket
func TestByteByBytePeersOccupyNoWorker(t *testing.T) {
	n := 500
	if text := os.Getenv(slowPeersEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if addr := os.Getenv(slowPeersAtEnv); addr != "" {
		beSlowPeers(t, addr, n)
		return
	}
	t.Run("pool", func(t *testing.T) { testByteByByte(t, n, web.DispatchPool) })
	t.Run("quickly", func(t *testing.T) { testByteByByte(t, n, quickly) })
}

func testByteByByte(t *testing.T, n int, d web.Dispatch) {
	e := startEngine(t, myriad.Config{Loops: 1})
	pool := workers.New(workers.Config{Workers: 1})
	t.Cleanup(func() { _ = pool.Close(t.Context()) })
	o := &Options{Workers: pool, Dispatch: d, PingInterval: quiet, OnMessage: echoBack,
		Compression: Compression{Enabled: true}}
	addr := listen(t, e, handlerOf(t, o))
	slow := startSlowPeers(t, addr, n)
	slow.want("open")
	healthy := dialRaw(t, addr).open()
	tasks, spoken := pool.Stats().Done, uint64(0)
	wire := slowWire()
	for i := range len(wire) - 1 {
		slow.order("byte")
		if i%20 == 0 {
			_ = healthy.SetDeadline(time.Now().Add(hangs))
			healthy.write(clientFrame(true, OpText, "quick"))
			healthy.want(line(OpText, "quick"))
			spoken++
		}
		slow.want("sent")
	}
	slow.want("heard pongs")
	if held := e.Stats().Conns; held != n+1 {
		t.Errorf("the engine holds %d connections of %d", held, n+1)
	}
	least, most := spoken, spoken
	if d == quickly {
		if least = 0; e.Stats().Overstays == 0 { // or a callback was held up, and the next may run on the pool
			most = 0
		}
	}
	for end := time.Now().Add(hangs); pool.Stats().Done-tasks < least && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // a task is done a moment after its answer is sent
	}
	if got := pool.Stats().Done - tasks; got < least || got > most {
		t.Errorf("%d tasks of the pool ran for %d messages of the one who completed any, want %d to %d", got, spoken,
			least, most)
	}
	slow.order("byte")
	slow.want("sent")
	slow.want("heard echoes")
}

// slowWire is a message in two frames, with a ping between them.
func slowWire() string {
	return clientFrame(false, OpText, slowText) + clientFrame(true, OpPing, "?") +
		clientFrame(true, opContinuation, slowText)
}

// beSlowPeers is the other process: each line of its input has all peers send their next byte.
func beSlowPeers(t *testing.T, addr string, n int) {
	var peers []*rawPeer
	for range n {
		peers = append(peers, dialRaw(t, addr).open())
	}
	fmt.Println("open")
	wire, orders := slowWire(), bufio.NewScanner(os.Stdin)
	for i := range len(wire) {
		if !orders.Scan() {
			t.Fatalf("no more orders behind %d: %v", i, orders.Err())
		}
		for _, p := range peers {
			_ = p.SetDeadline(time.Now().Add(hangs))
			p.write(wire[i : i+1])
		}
		fmt.Println("sent")
		switch i {
		case len(wire) - 2:
			hear(peers, `pong "?"`, "pongs")
		case len(wire) - 1:
			hear(peers, line(OpText, slowText+slowText), "echoes")
		}
	}
}

func hear(peers []*rawPeer, frame, name string) {
	for _, p := range peers {
		p.want(frame)
	}
	fmt.Println("heard", name)
}

// slowPeers is the process of the peers, as this one sees it.
type slowPeers struct {
	t    *testing.T
	in   io.Writer
	says *bufio.Scanner
}

func startSlowPeers(t *testing.T, addr string, n int) *slowPeers {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), slowPeersAtEnv+"="+addr, fmt.Sprintf("%s=%d", slowPeersEnv, n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	says := bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = in.Close()
		rest := ""
		for says.Scan() {
			rest += says.Text() + "\n"
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the peers' process: %v\n%s", err, rest)
		}
	})
	return &slowPeers{t, in, says}
}

func (p *slowPeers) order(what string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.t.Fatal(err)
	}
}

func (p *slowPeers) want(line string) {
	p.t.Helper()
	if !p.says.Scan() || p.says.Text() != line {
		p.t.Fatalf("the peers said %q (%v), want %q", p.says.Text(), p.says.Err(), line)
	}
}
