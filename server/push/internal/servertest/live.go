package servertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/web"
)

// A Live is a push.Server on real sockets.
type Live struct {
	*push.Server
	Hub     *hub.Hub
	Handler http.Handler // of all requests: the Server, or what the test has put around it
	T       *testing.T
	Addr    string
	Log     *pushtest.Log

	Engine *myriad.Engine
	Web    *web.Server
}

// NewLive returns a server, which ends with the test.
func NewLive(t *testing.T, c push.Config) *Live {
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
		c.Doors = Doors(mercure.Config{})
	}
	c.Engine = engine
	seam := new(Seam)
	c.Doors = append(c.Doors, seam)
	s, err := push.New(c)
	if err != nil {
		t.Fatal(err)
	}
	live := &Live{Server: s, Hub: seam.Hub, Handler: s, T: t, Log: log, Engine: engine}
	h := &web.Server{Engine: engine,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { live.Handler.ServeHTTP(w, r) })}
	live.Web = h
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
	live.Addr = listener.Addr().String()
	return live
}

// PublishAs publishes p, whose fields a program cannot all set.
func (s *Live) PublishAs(ctx context.Context, channel string, p push.Publication) (push.Position, error) {
	return s.Hub.Publish(ctx, channel, p, false, false)
}

// Dial connects a client, and sends the request.
func (s *Live) Dial(request string) *RawClient {
	s.T.Helper()
	nc, err := net.Dial("tcp", s.Addr)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(60 * time.Second))
	c := &RawClient{s.T, nc, bufio.NewReaderSize(nc, 4096)}
	io.WriteString(nc, request)
	return c
}

// SubscribeNews connects a client by WebSocket to the channel "news".
func (s *Live) SubscribeNews() *RawClient {
	s.T.Helper()
	c := s.Dial(UpgradeRequest + MaskedText(ConnectAndSubscribe))
	if line := c.Head(); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		s.T.Fatalf("upgrade: %s", line)
	}
	if _, p := c.Frame(); !strings.Contains(p, `"subscribe":{}`) {
		s.T.Fatalf("subscribe: %s", p)
	}
	return c
}

// PublishNews publishes to the channel "news".
func (s *Live) PublishNews(data string) {
	s.T.Helper()
	r, err := http.Post("http://"+s.Addr+"/api/publish", "application/json",
		strings.NewReader(`{"channel":"news","data":`+data+`}`))
	if err != nil {
		s.T.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if string(body) != `{"result":{}}` {
		s.T.Fatalf("publish: %d %s", r.StatusCode, body)
	}
	http.DefaultClient.CloseIdleConnections()
}

// ConnectAndSubscribe are a client's first commands.
const ConnectAndSubscribe = "{\"id\":1,\"connect\":{\"name\":\"js\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"

// UpgradeRequest opens a WebSocket of the Centrifuge protocol.
const UpgradeRequest = "GET /connection/websocket HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\n" +
	"Connection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// A RawClient reads and writes raw bytes, without a goroutine.
type RawClient struct {
	T *testing.T
	net.Conn
	R *bufio.Reader
}

// Head reads the head of an answer and returns its first line.
func (c *RawClient) Head() string {
	c.T.Helper()
	first := c.Line()
	for c.Line() != "" {
	}
	return first
}

// Line reads a line.
func (c *RawClient) Line() string {
	c.T.Helper()
	line, err := c.R.ReadString('\n')
	if err != nil {
		c.T.Fatalf("reading a line: %v", err)
	}
	return strings.TrimRight(line, "\r\n")
}

// Frame reads a frame and returns its opcode and payload.
func (c *RawClient) Frame() (op byte, payload string) {
	c.T.Helper()
	op, payload, err := ReadFrame(c.R)
	if err != nil {
		c.T.Fatalf("reading a frame: %v", err)
	}
	return op, payload
}

// MaskedText returns a text frame as clients send it, with a key of zeros, which changes nothing.
func MaskedText(p string) string {
	b := []byte{0x81, 0x80 | byte(len(p))}
	if len(p) > 125 {
		b = binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(p)))
	}
	return string(b) + "\x00\x00\x00\x00" + p
}

// ReadFrame reads a frame of a server.
func ReadFrame(r io.Reader) (op byte, payload string, err error) {
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
