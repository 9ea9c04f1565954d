package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// pulled is a server's connection that is read by the test, and its peer.
func pulled(t *testing.T, o *Options) (*Conn, *rawPeer) {
	t.Helper()
	e := startEngine(t, myriad.Config{Loops: 1})
	conns := make(chan *Conn, 1)
	o.Pull, o.Workers, o.OnOpen = true, startPool(t), func(c *Conn) { conns <- c }
	p := dialRaw(t, listen(t, e, Handler(o))).open()
	return <-conns, p
}

func wantMessage(t *testing.T, c *Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	op, p, err := c.Read(ctx)
	if err != nil || describe(op, false, p) != want {
		t.Fatalf("Read: %v %.80q, %v, want %.80q", op, p, err, want)
	}
}

func TestReadWaits(t *testing.T) {
	c, p := pulled(t, &Options{})
	read := make(chan string)
	go func() {
		for range 3 {
			op, b, err := c.Read(context.Background())
			read <- fmt.Sprint(describe(op, false, b), err)
		}
	}()
	for _, text := range []string{"one", "", "three"} {
		p.write(clientFrame(true, OpText, text))
		if got := <-read; got != line(OpText, text)+"<nil>" {
			t.Errorf("read %q", got)
		}
	}
	p.write(clientFrame(true, OpText, "last") + clientFrame(true, OpClose, closeWith(1000, "done")))
	wantMessage(t, c, line(OpText, "last"))
	if err := c.Write(OpText, []byte("answer to the last")); err != nil {
		t.Errorf("the peer's close frame has been answered before its message was: %v", err)
	}
	for range 2 {
		if _, _, err := c.Read(context.Background()); CloseStatus(err) != StatusNormalClosure {
			t.Errorf("Read at the end: %v", err)
		}
	}
	p.want(line(OpText, "answer to the last"), line(OpClose, closeWith(1000, "")))
}

func TestReadEndsWithItsContext(t *testing.T) {
	c, p := pulled(t, &Options{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, _, err := c.Read(ctx)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.write(clientFrame(true, OpText, "still there"))
	wantMessage(t, c, line(OpText, "still there"))
	go func() {
		_, _, err := c.Read(context.Background())
		ended <- err
	}()
	c.Abort(nil)
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A peer whose messages are not read is not read either: it costs its limit, and its messages are
// all there in the end.
func TestReadHoldsThePeerUp(t *testing.T) {
	t.Parallel()
	const n = 400
	c, p := pulled(t, &Options{PingInterval: quiet})
	message := strings.Repeat("x", 32<<10)
	sent := make(chan error, 1)
	progress := make(chan int, n)
	go func() {
		for i := range n {
			_ = p.SetDeadline(time.Now().Add(hangs)) // each has so much time, however long those before have waited
			if _, err := io.WriteString(p.Conn, clientFrame(true, OpBinary, message)); err != nil {
				sent <- err
				return
			}
			progress <- i
		}
		sent <- nil
	}()
	last := -1
	for stalled := false; !stalled; {
		select {
		case last = <-progress:
		case <-time.After(300 * time.Millisecond):
			stalled = true
		}
	}
	if last == n-1 {
		t.Error("the peer was never held up")
	}
	c.mu.Lock()
	held := c.cold.inbox.bytes
	c.mu.Unlock()
	if held > maxBacklogBytes+len(message) {
		t.Errorf("%d bytes wait", held)
	}
	for range n {
		wantMessage(t, c, line(OpBinary, message))
	}
	noError(t, <-sent)
}

// A program that does not read does not delay the end of the connection: the close frame is
// answered when its time is over.
func TestCloseIsAnsweredUnread(t *testing.T) {
	c, p := pulled(t, &Options{CloseTimeout: 50 * time.Millisecond})
	p.write(clientFrame(true, OpText, "unread") + clientFrame(true, OpClose, closeWith(1001, "")))
	p.want(line(OpClose, closeWith(1001, "")))
	wantMessage(t, c, line(OpText, "unread"))
	if _, _, err := c.Read(context.Background()); CloseStatus(err) != StatusGoingAway {
		t.Error(err)
	}
}

func TestReadRefuses(t *testing.T) {
	if _, err := (&Options{Pull: true, OnMessage: echoBack}).settings(); err == nil {
		t.Error("Pull and OnMessage were taken")
	}
	e := startEngine(t, myriad.Config{Loops: 1})
	said := make(chan error, 3)
	o := &Options{Dispatch: web.DispatchInline, OnMessage: func(c *Conn, _ Op, _ []byte) {
		_, _, err := c.Read(context.Background())
		said <- err
	}}
	p := dialRaw(t, listen(t, e, Handler(o))).open()
	p.write(clientFrame(true, OpText, "x"))
	if err := <-said; !errors.Is(err, errNotPulled) {
		t.Errorf("Read without Pull: %v", err)
	}
	conns := make(chan *Conn, 1)
	o = &Options{Pull: true, Workers: startPool(t), OnOpen: func(c *Conn) { conns <- c }}
	dialRaw(t, listen(t, e, Handler(o))).open()
	c := <-conns
	_ = e.Loops()[0].Do(func() {
		_, _, err := c.Read(context.Background())
		said <- err
	})
	if err := <-said; !errors.Is(err, myriad.ErrOnLoop) {
		t.Errorf("Read on a loop: %v", err)
	}
}

// netPipe is a server's and a client's NetConn with each other.
func netPipe(t *testing.T, e *myriad.Engine, k Compression) (c1, c2 net.Conn, stop func(), err error) {
	conns := make(chan *Conn, 1)
	pool := startPool(t)
	o := &Options{Pull: true, Workers: pool, Compression: k, OnOpen: func(c *Conn) { conns <- c }}
	ln, err := e.Listen("tcp", "127.0.0.1:0", Handler(o))
	if err != nil {
		return nil, nil, nil, err
	}
	d := &DialOptions{}
	d.Engine, d.Pull, d.Workers, d.Compression = e, true, pool, k
	c, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), d)
	if err != nil {
		return nil, nil, nil, err
	}
	server := <-conns
	c1, c2 = NetConn(c, OpBinary), NetConn(server, OpBinary)
	return c1, c2, func() {
		c.Abort(nil)
		server.Abort(nil)
		_, _, _ = c1.Close(), c2.Close(), ln.Close() // what has not been read of a message is given back
	}, nil
}

// The suite of x/net for everything that calls itself a net.Conn.
func TestNetConn(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]Compression{"plain": {}, "compressed": {Enabled: true, Threshold: -1,
		WriteWindowBits: 12, ReadWindowBits: 15}} {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t, myriad.Config{})
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return netPipe(t, e, k) })
		})
	}
}

func TestNetConnEnds(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	a, b, stop, err := netPipe(t, e, Compression{})
	must(t, err)
	defer stop()
	go func() {
		_, _ = a.Write(bytes.Repeat([]byte("data "), 1000))
		_ = a.Close()
	}()
	if got, err := io.ReadAll(b); err != nil || len(got) != 5000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write behind Close: %v", err)
	}
}
