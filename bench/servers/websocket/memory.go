package main

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/websocket"
)

// upgrades is the work of upgrading connections without a kernel: the engine runs with one loop on
// a driver that simulates peers. Each of them connects, sends the request, gets the answer and is
// reset.
func upgrades(o harness.Order) (harness.Report, error) {
	w := &world{request: o.Input, left: o.Times, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w})
	if err != nil {
		return harness.Report{}, err
	}
	if _, err := e.Listen("tcp", "127.0.0.1:0",
		websocket.Handler(&websocket.Options{OnMessage: echo, PingInterval: -1,
			OriginPatterns: []string{"*"}})); err != nil {
		return harness.Report{}, err
	}
	<-w.done
	return harness.Report{Done: w.answered, Output: w.output}, e.Shutdown(context.Background())
}

// A world is the driver.System and its only Driver. It has one connection at a time.
type world struct {
	driver.Process
	request  []byte
	left     int
	answered int
	output   []byte // of the last connection
	done     chan struct{}
	wake     chan struct{}
	awake    atomic.Bool

	listener driver.ID
	accepts  bool
	current  uint32 // generation of the connection that is open, if open
	open     bool
	ended    []driver.ID // that have been closed by the engine
}

const listenerSlot, connSlot = 0, 1

func (*world) Name() string                                        { return "memory" }
func (w *world) Open(uint8, driver.Options) (driver.Driver, error) { return side{w}, nil }
func (*world) Import(net.Conn) (driver.Socket, error)              { return nil, driver.ErrUnsupported }
func (*world) Duplicate(*os.File) (driver.File, error)             { return nil, driver.ErrUnsupported }
func (*world) Dial(net.Addr) (driver.ID, error)                    { return 0, driver.ErrUnsupported }
func (*world) Detach(driver.ID) error                              { return driver.ErrUnsupported }
func (*world) Capabilities() driver.Capabilities                   { return driver.Capabilities{} }
func (*world) Shutdown() error                                     { return nil }
func (*world) CloseWrite(driver.ID)                                {}
func (*world) Pause(driver.ID)                                     {}
func (*world) Resume(driver.ID)                                    {}
func (w *world) StopAccept(driver.ID)                              { w.accepts = false }
func (w *world) ResumeAccept(driver.ID)                            { w.accepts = true }
func (w *world) CloseListener(id driver.ID)                        { w.accepts, w.ended = false, append(w.ended, id) }
func (w *world) Close(id driver.ID)                                { w.ended = append(w.ended, id) }
func (w *world) Abort(id driver.ID)                                { w.ended = append(w.ended, id) }
func (*world) SendFile(driver.ID, driver.File, int64, int64) (int64, error) {
	return 0, driver.ErrUnsupported
}

func (w *world) Listen(context.Context, string, string) (driver.Listener, error) { return place{}, nil }

// Wake ends a Poll that waits.
func (w *world) Wake() {
	if w.awake.CompareAndSwap(false, true) {
		w.wake <- struct{}{}
	}
}

// side is the world as a Driver: both have a method Listen.
type side struct{ *world }

func (s side) Listen(driver.Listener) (driver.ID, error) {
	s.listener, s.accepts = driver.MakeID(0, listenerSlot, 1), true
	return s.listener, nil
}

func (w *world) Attach(driver.Socket) (driver.ID, error) {
	w.current++
	w.open = true
	return driver.MakeID(0, connSlot, w.current), nil
}

// Send keeps the answer, and takes all of it at once.
func (w *world) Send(_ driver.ID, c *buf.Chain) int64 {
	w.output = c.AppendTo(w.output[:0])
	c.Release()
	return 0
}

// Poll has the next peer come.
func (w *world) Poll(wait time.Duration, ev driver.Events) (int, error) {
	n := len(w.ended)
	for _, id := range w.ended {
		ev.Closed(id, nil)
	}
	w.ended = w.ended[:0]
	if n > 0 {
		return n, nil
	}
	if !w.accepts || w.left == 0 {
		w.sleep(wait)
		return 0, nil
	}
	w.left--
	ev.Accepted(w.listener, place{})
	if !w.open {
		return 1, nil
	}
	id := driver.MakeID(0, connSlot, w.current)
	ev.Received(id, w.request)
	if len(w.output) > 0 {
		w.answered++
	}
	w.open = false
	ev.Closed(id, errReset)
	if w.left == 0 {
		close(w.done)
	}
	return 3, nil
}

func (w *world) sleep(wait time.Duration) {
	switch {
	case wait == 0:
	case wait < 0:
		<-w.wake
		w.awake.Store(false)
	default:
		select {
		case <-w.wake:
			w.awake.Store(false)
		case <-time.After(wait):
		}
	}
}

var errReset = errors.New("the peer has reset the connection")

// A place is a listening socket, or an accepted one.
type place struct{}

func (place) Addr() net.Addr          { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (place) File() (*os.File, error) { return nil, driver.ErrUnsupported }
func (place) Refuse()                 {}
func (place) Unshare()                {}
func (place) Close() error            { return nil }
func (place) Local() driver.Addr      { return driver.AddrFrom4([4]byte{127, 0, 0, 1}, 1) }
func (place) Remote() driver.Addr     { return driver.AddrFrom4([4]byte{127, 0, 0, 1}, 2) }
func (place) Conn() (net.Conn, error) { return nil, driver.ErrUnsupported }
