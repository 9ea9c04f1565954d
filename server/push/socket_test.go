package push_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/web"
)

// A liveServer is a Server on real sockets.
type liveServer struct {
	*push.Server
	hub     *hub.Hub
	handler http.Handler // of all requests: the Server, or what the test has put around it
	t       *testing.T
	addr    string
	log     *pushtest.Log

	engine *myriad.Engine
}

func newLiveServer(t *testing.T, c push.Config) *liveServer {
	t.Helper()
	buf.CheckLeaks(t)
	if c.Timing.Ping == 0 {
		c.Timing.Ping = time.Hour // these tests expect no ping
	}
	log := new(pushtest.Log)
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	// After LingerBytes a refused client has only half a second to read the answer, so the limit is
	// high.
	engine, err := myriad.Start(myriad.Config{Logger: c.Logger, LingerBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if c.Doors == nil {
		c.Doors = testDoors(mercure.Config{})
	}
	seam := new(seamDoor)
	c.Doors = append(c.Doors, seam)
	s, err := push.New(c)
	if err != nil {
		t.Fatal(err)
	}
	live := &liveServer{Server: s, hub: seam.Hub, handler: s, t: t, log: log, engine: engine}
	h := &web.Server{Engine: engine,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { live.handler.ServeHTTP(w, r) })}
	listener, err := h.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		s.Drain()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
		if c.Bus != nil {
			if err := c.Bus.Close(); err != nil {
				t.Errorf("the bus: %v", err)
			}
		}
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("web: %v", err)
		}
		if err := engine.Shutdown(ctx); err != nil {
			t.Errorf("engine: %v", err)
		}
	})
	live.addr = listener.Addr().String()
	return live
}

// publishAs publishes p, whose fields a program cannot all set.
func (s *liveServer) publishAs(ctx context.Context, channel string, p push.Publication) (push.Position, error) {
	return s.hub.Publish(ctx, channel, p, false, false)
}

// A rawClient reads and writes raw bytes, without a goroutine.
type rawClient struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (s *liveServer) dial(request string) *rawClient {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(60 * time.Second))
	c := &rawClient{s.t, nc, bufio.NewReaderSize(nc, 4096)}
	io.WriteString(nc, request)
	return c
}

const upgradeRequest = "GET /connection/websocket HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\n" +
	"Connection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// subscribe connects a client by WebSocket to the channel "news".
func (s *liveServer) subscribe() *rawClient {
	s.t.Helper()
	c := s.dial(upgradeRequest + maskedText(connectAndSubscribe))
	if line := c.head(); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		s.t.Fatalf("upgrade: %s", line)
	}
	if _, p := c.frame(); !strings.Contains(p, `"subscribe":{}`) {
		s.t.Fatalf("subscribe: %s", p)
	}
	return c
}

// maskedText is a text frame as clients send it, with a key of zeros, which changes nothing.
func maskedText(p string) string {
	b := []byte{0x81, 0x80 | byte(len(p))}
	if len(p) > 125 {
		b = binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(p)))
	}
	return string(b) + "\x00\x00\x00\x00" + p
}

// head reads the head of an answer and returns its first line.
func (c *rawClient) head() string {
	c.t.Helper()
	first := c.line()
	for c.line() != "" {
	}
	return first
}

func (c *rawClient) line() string {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading a line: %v", err)
	}
	return strings.TrimRight(line, "\r\n")
}

// frame reads a frame and returns its opcode and payload.
func (c *rawClient) frame() (op byte, payload string) {
	c.t.Helper()
	op, payload, err := readFrame(c.r)
	if err != nil {
		c.t.Fatalf("reading a frame: %v", err)
	}
	return op, payload
}

func readFrame(r io.Reader) (op byte, payload string, err error) {
	var h [8]byte
	if _, err := io.ReadFull(r, h[:2]); err != nil {
		return 0, "", err
	}
	op = h[0] & 15
	n := uint64(h[1])
	switch n {
	case 126:
		_, err = io.ReadFull(r, h[:2])
		n = uint64(binary.BigEndian.Uint16(h[:]))
	case 127:
		_, err = io.ReadFull(r, h[:8])
		n = binary.BigEndian.Uint64(h[:])
	}
	if err != nil {
		return 0, "", err
	}
	var p bytes.Buffer
	_, err = io.CopyN(&p, r, int64(n))
	return op, p.String(), err
}

func (s *liveServer) publish(data string) {
	s.t.Helper()
	r, err := http.Post("http://"+s.addr+"/api/publish", "application/json",
		strings.NewReader(`{"channel":"news","data":`+data+`}`))
	if err != nil {
		s.t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if string(body) != `{"result":{}}` {
		s.t.Fatalf("publish: %d %s", r.StatusCode, body)
	}
	http.DefaultClient.CloseIdleConnections()
}

// busy returns the number of goroutines, without the idle workers of pools.
func busy() int {
	stacks := leaktest.Goroutines()
	return strings.Count(stacks, "\n\n") + 1 - strings.Count(stacks, "workers.(*worker).next(")
}

// Every subscriber receives every broadcast, complete and in order. The server has no goroutine per
// subscriber.
func TestSubscribersOverSockets(t *testing.T) {
	s := newLiveServer(t, push.Config{})
	before := busy()
	const each, broadcasts = 150, 20
	var sockets, streams []*rawClient
	for range each {
		sockets = append(sockets, s.subscribe())
		c := s.dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
		if line := c.head(); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatal(line)
		}
		streams = append(streams, c)
	}
	pushtest.WaitFor(t, "all clients to connect", func() bool { return s.Figures(0).Connections == 2*each })
	pushtest.WaitFor(t, fmt.Sprintf("no more than 45 goroutines more for %d clients", 2*each),
		func() bool { return busy() <= before+45 })
	for i := range broadcasts {
		s.publish(fmt.Sprintf(`{"n":%d}`, i))
	}
	for _, c := range sockets {
		for i := range broadcasts {
			if _, p := c.frame(); p != fmt.Sprintf(`{"push":{"channel":"news","pub":{"data":{"n":%d}}}}`, i) {
				t.Fatalf("broadcast %d: %s", i, p)
			}
		}
	}
	for _, c := range streams {
		for i := range broadcasts {
			for line := c.line(); ; line = c.line() {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					if data != fmt.Sprintf(`{"n":%d}`, i) {
						t.Fatalf("broadcast %d: %s", i, data)
					}
					break
				}
			}
		}
	}
}

// A subscriber that never reads is disconnected. The others receive everything meanwhile.
func TestSlowConsumerOverSockets(t *testing.T) {
	s := newLiveServer(t, push.Config{Limits: push.Limits{Queue: 256 << 10},
		Timing: push.Timing{Close: 200 * time.Millisecond}})
	slowSocket, quick := s.subscribe(), s.subscribe()
	slowStream := s.dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
	slowStream.head()
	for _, c := range []*rawClient{slowSocket, slowStream} {
		c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	pushtest.WaitFor(t, "all clients to connect", func() bool { return s.Figures(0).Connections == 3 })
	data := `"` + strings.Repeat("x", 100<<10) + `"`
	for i := 0; s.Figures(0).SlowDisconnects < 2; i++ {
		if i == 1000 {
			t.Fatal("no client is slow after 100 MB")
		}
		s.publish(data)
		if _, p := quick.frame(); len(p) < len(data) {
			t.Fatalf("broadcast %d: %d bytes", i, len(p))
		}
	}
	pushtest.WaitFor(t, "the slow clients to be disconnected", func() bool { return s.Figures(0).Connections == 1 })
	for _, want := range []string{"disconnected a slow client", "channel=news", "limit_bytes=262144"} {
		if strings.Count(s.log.String(), want) != 2 {
			t.Errorf("the log says %q %d times, want 2:\n%s", want, strings.Count(s.log.String(), want), s.log)
		}
	}
	s.publish(`"still here"`)
	if _, p := quick.frame(); !strings.Contains(p, "still here") {
		t.Errorf("received %s", p)
	}
}

// At shutdown, clients get what was queued, and then a close with its code, or the end of the
// stream.
func TestShutdownOverSockets(t *testing.T) {
	s := newLiveServer(t, push.Config{})
	socket := s.subscribe()
	stream := s.dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
	stream.head()
	pushtest.WaitFor(t, "all clients to connect", func() bool { return s.Figures(0).Connections == 2 })
	s.publish(`"last"`)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- s.Shutdown(ctx)
	}()
	if _, p := socket.frame(); p != `{"push":{"channel":"news","pub":{"data":"last"}}}` {
		t.Errorf("received %s", p)
	}
	if op, p := socket.frame(); op != 8 || p != "\x0b\xb9shutdown" {
		t.Errorf("received opcode %d, %q, want a close with 3001", op, p)
	}
	// the client's close frame, after which the server ends the connection
	io.WriteString(socket, "\x88\x82\x00\x00\x00\x00\x0b\xb9")
	if _, err := socket.r.ReadByte(); err != io.EOF {
		t.Errorf("behind the close: %v", err)
	}
	socket.Close()
	var tail string
	for !strings.HasSuffix(tail, "0\r\n\r\n") { // the last chunk: the connection itself goes on
		b, err := stream.r.ReadByte()
		if err != nil {
			t.Fatalf("the stream broke behind %q: %v", tail, err)
		}
		tail += string(b)
	}
	if !strings.Contains(tail, "data: \"last\"\n\n") {
		t.Errorf("the stream ended with %q", tail)
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A client can put bytes that are not UTF-8 into binary frames and requests. The server must not
// copy them into text frames: clients that receive them fail their connections (RFC 6455 §8.1).
func TestOnlyUTF8IsSpread(t *testing.T) {
	s := newLiveServer(t, push.Config{})
	other, c := s.subscribe(), s.dial(upgradeRequest)
	c.head()
	for _, tt := range []struct{ command, want string }{
		{"{\"id\":1,\"connect\":{\"name\":\"\xff\",\"version\":\"\xff\",\"data\":\"\xff\"}}",
			`{"id":1,"connect":{"client":"`},
		{"{\"id\":2,\"publish\":{\"channel\":\"news\",\"data\":\"\xff\"}}",
			`{"id":2,"error":{"code":107,"message":"bad request"}}`},
		{"{\"id\":3,\"subscribe\":{\"channel\":\"\xff\"}}", `{"id":3,"error":{"code":107,"message":"bad request"}}`},
	} {
		io.WriteString(c, "\x82"+maskedText(tt.command)[1:])
		if op, p := c.frame(); op != 1 || !strings.HasPrefix(p, tt.want) || !utf8.ValidString(p) {
			t.Errorf("%q was answered with opcode %d, %q", tt.command, op, p)
		}
	}
	r, err := http.Post("http://"+s.addr+"/api/publish", "application/json",
		strings.NewReader("{\"channel\":\"news\",\"data\":\"\xff\"}"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.HasPrefix(string(answer), `{"error":{"code":107,`) {
		t.Errorf("publish by HTTP: %s, %s, %v", r.Status, answer, err)
	}
	s.publish(`"é"`)
	if op, p := other.frame(); op != 1 || p != `{"push":{"channel":"news","pub":{"data":"é"}}}` {
		t.Errorf("a subscriber received opcode %d, %q", op, p)
	}
}

// A publisher whose body is far too long is refused while it still sends, and receives the reason.
func TestTooLargeOverSockets(t *testing.T) {
	s := newLiveServer(t, push.Config{})
	body := `{"channel":"news","data":"` + strings.Repeat("x", 5<<20) + `"}`
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	var publishers sync.WaitGroup
	for i := range 20 {
		publishers.Go(func() {
			r, err := client.Post("http://"+s.addr+"/api/publish", "application/json", strings.NewReader(body))
			if err != nil {
				t.Errorf("publication %d: %v", i, err)
				return
			}
			answer, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.StatusCode != http.StatusRequestEntityTooLarge ||
				!strings.Contains(string(answer), `"code":106`) {
				t.Errorf("publication %d: %s %s, %v", i, r.Status, answer, err)
			}
		})
	}
	publishers.Wait()
}

// Input that is not the protocol is refused with a clear answer.
func TestGarbageOverSockets(t *testing.T) {
	s := newLiveServer(t, push.Config{Limits: push.Limits{Frame: 1000}})
	for _, tt := range []struct {
		name, frame, want string
	}{
		{"not JSON", maskedText("hello"), "\x0d\xadbad request"},
		{"before connect", maskedText(`{"id":1,"subscribe":{"channel":"x"}}`), "\x0d\xadbad request"},
		{"too long", maskedText(strings.Repeat("x", 1001)), "\x03\xf1"},
		{"not masked", "\x81\x02{}", "\x03\xea"},
		{"not UTF-8", maskedText("\xff\xff"), "\x03\xef"},
	} {
		c := s.dial(upgradeRequest + tt.frame)
		c.head()
		if op, p := c.frame(); op != 8 || !strings.HasPrefix(p, tt.want) {
			t.Errorf("%s: opcode %d, %q, want a close with %q", tt.name, op, p, tt.want)
		}
	}
}
