package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// At full size, the crowd tests open as many clients as one process may have descriptors. The
// clients run in a child process, because the server needs as many descriptors again.
const (
	usualCrowd    = 2000 // enough for a figure of memory
	usualAudience = 1000
	idleCrowd     = 19_000
	eventCrowd    = 15_000
	channelCrowd  = 15_000
	broadcasts    = 20
	mostRoutines  = 50
	crowdPatience = 2 * time.Minute
)

// spareFiles is how many descriptors a process needs besides its connections.
const spareFiles = 300

// crowdSize returns usual, or at full size wanted, or less if the limit on descriptors requires it.
func crowdSize(t *testing.T, usual, wanted int) int {
	t.Helper()
	wanted = soak.Size(t, usual, wanted)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n := min(wanted, int(limit.Max)-spareFiles)
	if n < wanted {
		t.Logf("only %d clients instead of %d: the hard limit on file descriptors is %d", n, wanted, limit.Max)
	}
	return n
}

// startCrowd runs n clients of a kind in a child process and waits until all are connected.
func startCrowd(t *testing.T, s server, kind string, n int) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"MYRIAD_CROWD=" + kind, "MYRIAD_CROWD_ADDR=" + s.addr,
		"MYRIAD_CROWD_SIZE=" + strconv.Itoa(n)}, self)
	p.want("^ready$")
	return p
}

func TestIdleCrowd(t *testing.T) {
	s := serve(t)
	before := s.resident()
	n := crowdSize(t, usualCrowd, idleCrowd)
	startCrowd(t, s, "idle", n)
	s.fewRoutines(n)
	perClient := (s.resident() - before) / n
	t.Logf("%d connected WebSocket clients: %d bytes each, no GC forced", n, perClient)
	if perClient > 6<<10 {
		t.Errorf("%d bytes for each connected client", perClient)
	}
}

func TestEventCrowd(t *testing.T) { broadcastTo(t, "events", crowdSize(t, usualAudience, eventCrowd)) }
func TestChannelCrowd(t *testing.T) {
	broadcastTo(t, "channel", crowdSize(t, usualAudience, channelCrowd))
}

// broadcastTo publishes to n subscribers. Each must get everything, in order.
func broadcastTo(t *testing.T, kind string, n int) {
	s := serve(t)
	before := s.resident()
	crowd := startCrowd(t, s, kind, n)
	s.fewRoutines(n)
	t.Logf("%d subscribers (%s): %d bytes each, no GC forced", n, kind, (s.resident()-before)/n)
	for i := range broadcasts {
		body := fmt.Sprintf(`{"channel":"crowd","data":{"seq":%d,"pad":"%s"}}`, i, strings.Repeat("x", 100))
		r, err := http.Post("http://"+s.addr+"/api/publish", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Fatalf("publish: %s", r.Status)
		}
	}
	crowd.want(fmt.Sprintf("^all %d have had %d$", n, broadcasts))
	s.fewRoutines(n)
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// resident returns the server's resident memory in bytes.
func (s server) resident() int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Skipf("the memory figure needs /proc: %v", err)
	}
	kib, err := strconv.Atoi(string(residentLine.FindSubmatch(status)[1]))
	if err != nil {
		s.t.Fatal(err)
	}
	return kib << 10
}

var routinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// fewRoutines waits until the goroutines that accepted the crowd have ended. Few must remain while
// all connections are open.
func (s server) fewRoutines(clients int) {
	s.t.Helper()
	var n int
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		r, err := http.Get("http://" + s.addr + "/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		page, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		if n, err = strconv.Atoi(string(routinesLine.FindSubmatch(page)[1])); err != nil {
			s.t.Fatal(err)
		}
		if n < mostRoutines {
			s.t.Logf("%d goroutines with %d clients", n, clients)
			return
		}
	}
	s.t.Errorf("%d goroutines with %d clients, want fewer than %d", n, clients, mostRoutines)
}

// runCrowd is the child process. It connects, prints "ready", and reports when every client has
// received every broadcast.
func runCrowd(kind string) error {
	n, err := strconv.Atoi(os.Getenv("MYRIAD_CROWD_SIZE"))
	if err != nil {
		return err
	}
	c := crowd{addr: os.Getenv("MYRIAD_CROWD_ADDR"), deadline: time.Now().Add(crowdPatience)}
	join := map[string]func(net.Conn) error{"idle": c.idle, "events": c.events, "channel": c.channel}[kind]
	clients := make(chan struct{}, 128) // at most 128 connect at a time
	errs := make(chan error, n)
	var ready sync.WaitGroup
	for range n {
		ready.Add(1)
		clients <- struct{}{}
		go func() {
			nc, err := c.connect(join)
			<-clients
			ready.Done()
			if err == nil && kind != "idle" {
				err = c.follow(nc, kind)
			}
			errs <- err
		}()
	}
	ready.Wait()
	fmt.Println("ready")
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	if kind != "idle" {
		fmt.Printf("all %d have had %d\n", n, broadcasts)
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

type crowd struct {
	addr     string
	deadline time.Time
	mu       sync.Mutex
	kept     []net.Conn // idle connections, kept from the garbage collector
}

func (c *crowd) connect(join func(net.Conn) error) (net.Conn, error) {
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(c.deadline)
	return nc, join(nc)
}

func (c *crowd) idle(nc net.Conn) error {
	c.mu.Lock()
	c.kept = append(c.kept, nc)
	c.mu.Unlock()
	return c.command(nc, `{"id":1,"connect":{}}`)
}

func (c *crowd) channel(nc net.Conn) error {
	return c.command(nc, `{"id":1,"connect":{}}`+"\n"+`{"id":2,"subscribe":{"channel":"crowd"}}`)
}

// command upgrades, sends one frame, and waits for one answer to each command in it.
func (c *crowd) command(nc net.Conn, commands string) error {
	fmt.Fprintf(nc, "GET /connection/websocket HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", c.addr)
	if err := readHead(nc, "HTTP/1.1 101 "); err != nil {
		return err
	}
	frame := []byte{0x81, 0x80 | byte(len(commands)), 0, 0, 0, 0} // masked with zeros
	if _, err := nc.Write(append(frame, commands...)); err != nil {
		return err
	}
	for answers := strings.Count(commands, "\n") + 1; answers > 0; {
		message, err := readFrame(nc)
		if err != nil {
			return err
		}
		if bytes.Contains(message, []byte(`"error"`)) {
			return fmt.Errorf("answer: %s", message)
		}
		answers -= bytes.Count(message, []byte(`"id":`))
	}
	return nil
}

func (c *crowd) events(nc net.Conn) error {
	fmt.Fprintf(nc, "GET /events?channel=crowd HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", c.addr)
	return readHead(nc, "HTTP/1.1 200 ")
}

// readHead reads byte by byte up to the empty line, so that it does not consume what follows.
func readHead(r io.Reader, want string) error {
	var head []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := io.ReadFull(r, one); err != nil {
			return err
		}
		head = append(head, one[0])
	}
	if !bytes.HasPrefix(head, []byte(want)) {
		return fmt.Errorf("got %q, want %q", head, want)
	}
	return nil
}

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return nil, err
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		if _, err := io.ReadFull(r, head[2:]); err != nil {
			return nil, err
		}
		n = int(head[2])<<8 | int(head[3])
	}
	if head[0] != 0x81 || n == 127 {
		return nil, fmt.Errorf("unexpected frame % x", head[:2])
	}
	p := make([]byte, n)
	_, err := io.ReadFull(r, p)
	return p, err
}

// follow reads broadcasts up to the last one. Each must come once, and in order.
func (c *crowd) follow(nc net.Conn, kind string) error {
	r := bufio.NewReaderSize(nc, 512)
	next := 0
	for next < broadcasts {
		var message []byte
		var err error
		if kind == "events" {
			message, err = readEvent(r)
		} else {
			message, err = readFrame(r)
		}
		if err != nil {
			return fmt.Errorf("after %d broadcasts: %w", next, err)
		}
		for line := range bytes.SplitSeq(message, []byte("\n")) {
			if next, err = inOrder(line, next); err != nil {
				return err
			}
		}
	}
	return nil
}

// readEvent reads a line of an event stream and returns its data; for chunk sizes, comments and
// empty lines it returns none.
func readEvent(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	data, found := bytes.CutPrefix(line, []byte("data: "))
	if !found {
		return nil, err
	}
	return bytes.TrimSpace(data), err
}

var sequence = regexp.MustCompile(`"seq":(\d+)`)

func inOrder(message []byte, next int) (int, error) {
	found := sequence.FindSubmatch(message)
	if found == nil {
		return next, nil // a ping
	}
	if got := string(found[1]); got != strconv.Itoa(next) {
		return next, fmt.Errorf("got broadcast %s, want %d", got, next)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(message, &whole); err != nil {
		return next, fmt.Errorf("broadcast %d: %w: %s", next, err, message)
	}
	return next + 1, nil
}
