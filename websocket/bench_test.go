package websocket

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/web"
)

// BenchmarkEcho is what an echoed message costs without a kernel: a driver whose peers have the
// next message ready as soon as the last one has been answered. Allocations are those of messages,
// and of 1,000 connections once.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{128, 1024} {
		for _, d := range []web.Dispatch{web.DispatchInline, web.DispatchAuto, web.DispatchPool} {
			b.Run(fmt.Sprintf("%v/%d", d, size), func(b *testing.B) {
				m := &memory{message: clientFrame(true, OpBinary, strings.Repeat("m", size)), left: b.N,
					wake: make(chan struct{}, 1), done: make(chan struct{})}
				m.serve(b, &Options{Dispatch: d, OnMessage: echoBack, PingInterval: -1, Workers: startPool(b)})
			})
		}
	}
}

var memoryListener = driver.MakeID(0, 0, 1)

const (
	memoryConns = 1000
	memoryBatch = 100 // conns that one Poll has something for
)

// memory is a driver and its system. All but done is the loop's.
type memory struct {
	driver.Driver // nil: for what is not called here
	message       string
	left          int           // messages to send
	wake          chan struct{} // to Poll
	done          chan struct{}

	listening bool
	accepted  int
	ready     []driver.ID // those that have been answered
	ended     []driver.ID
	received  [8 << 10]byte
	closing   bool
}

func (m *memory) serve(b *testing.B, o *Options) {
	e, err := myriad.Start(myriad.Config{Loops: 1, System: memorySystem{driver.Process{}, m}})
	must(b, err)
	b.ReportAllocs()
	if _, err := e.Listen("tcp", "memory", Handler(o)); err != nil {
		b.Fatal(err)
	}
	<-m.done
	b.StopTimer()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the peers answer no close frame
	_ = e.Shutdown(ctx)
}

// Poll has conns come, and then messages on those that have been answered.
func (m *memory) Poll(wait time.Duration, ev driver.Events) (n int, err error) {
	for ; len(m.ended) > 0; n++ {
		id := m.ended[0]
		m.ended = m.ended[1:]
		ev.Closed(id, nil)
	}
	if m.listening && m.accepted < memoryConns {
		ev.Accepted(memoryListener, memoryPlace{})
		k := copy(m.received[:], sampleRequest)
		ev.Received(driver.MakeID(0, uint32(m.accepted), 1), m.received[:k:k])
		return n + 2, nil
	}
	for len(m.ready) > 0 && m.left > 0 && n < memoryBatch {
		id := m.ready[0]
		m.ready = m.ready[1:]
		m.left--
		k := copy(m.received[:], m.message)
		ev.Received(id, m.received[:k:k])
		n++
	}
	if m.left == 0 && len(m.ready) == memoryConns && !m.closing {
		m.closing = true
		close(m.done)
	}
	if n == 0 && wait != 0 {
		<-m.wake
	}
	return n, nil
}

// Send takes an answer, to the handshake or to a message, and has the peer send the next.
func (m *memory) Send(id driver.ID, c *buf.Chain) int64 {
	c.Release()
	m.ready = append(m.ready, id)
	return 0
}

func (m *memory) Attach(driver.Socket) (driver.ID, error) {
	m.accepted++
	return driver.MakeID(0, uint32(m.accepted), 1), nil
}

func (m *memory) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *memory) Listen(driver.Listener) (driver.ID, error) {
	m.listening = true
	return memoryListener, nil
}

func (m *memory) StopAccept(driver.ID)              { m.listening = false }
func (m *memory) CloseListener(id driver.ID)        { m.ended = append(m.ended, id) }
func (m *memory) CloseWrite(driver.ID)              {}
func (m *memory) Resume(driver.ID)                  {}
func (m *memory) Close(id driver.ID)                { m.ended = append(m.ended, id) }
func (m *memory) Abort(id driver.ID)                { m.ended = append(m.ended, id) }
func (m *memory) Capabilities() driver.Capabilities { return driver.Capabilities{} }
func (m *memory) Shutdown() error                   { return nil }

type memorySystem struct {
	driver.Process
	m *memory
}

func (memorySystem) Name() string                                        { return "memory" }
func (s memorySystem) Open(uint8, driver.Options) (driver.Driver, error) { return s.m, nil }
func (memorySystem) Import(net.Conn) (driver.Socket, error)              { return nil, driver.ErrUnsupported }
func (memorySystem) Duplicate(*os.File) (driver.File, error)             { return nil, driver.ErrUnsupported }
func (memorySystem) Listen(context.Context, string, string) (driver.Listener, error) {
	return memoryPlace{}, nil
}

// memoryPlace is the listener, and every socket.
type memoryPlace struct{}

func (memoryPlace) Addr() net.Addr          { return &net.UnixAddr{Name: "memory", Net: "unix"} }
func (memoryPlace) File() (*os.File, error) { return nil, driver.ErrUnsupported }
func (memoryPlace) Refuse()                 {}
func (memoryPlace) Unshare()                {}
func (memoryPlace) Local() driver.Addr      { return driver.UnixAddr }
func (memoryPlace) Remote() driver.Addr     { return driver.AddrFrom4([4]byte{127, 0, 0, 1}, 12345) }
func (memoryPlace) Conn() (net.Conn, error) { return nil, driver.ErrUnsupported }
func (memoryPlace) Close() error            { return nil }
