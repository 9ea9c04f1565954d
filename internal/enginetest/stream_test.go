package enginetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/myriad-go/myriad"
)

// streamPair is a stream on the engine and its peer on an ordinary socket.
func streamPair(t testing.TB, s setting, e *myriad.Engine, limit int) (stream, peer net.Conn) {
	t.Helper()
	server, client := socketPair(t, "tcp", "127.0.0.1:0")
	h, nc := myriad.Stream(limit)
	if _, err := e.Adopt(server, nil, s.wrap(h)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc, s.own(t, client)
}

// What every net.Conn must do, with an ordinary socket as the peer, and between two streams.
func TestStreamIsANetConn(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		if !s.layered { // the XOR peer is no net.Conn for several goroutines
			t.Run("socket", func(t *testing.T) {
				nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
					server, client := socketPair(t, "tcp", "127.0.0.1:0")
					h, nc := myriad.Stream(0)
					_, err := e.Adopt(server, nil, h)
					return nc, client, func() { nc.Close(); client.Close() }, err
				})
			})
		}
		t.Run("streams", func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				server, client := socketPair(t, "tcp", "127.0.0.1:0")
				h1, nc1 := myriad.Stream(1000)
				h2, nc2 := myriad.Stream(1000)
				_, err1 := e.Adopt(server, nil, s.wrap(h1))
				_, err2 := e.Adopt(client, nil, s.wrap(h2))
				return nc1, nc2, func() { nc1.Close(); nc2.Close() }, errors.Join(err1, err2)
			})
		})
	})
}

// Both directions carry any amount, held to the limits on both sides.
func TestStreamCopies(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{WriteLimit: 10_000, ReadBuffer: 4 << 10, MaxWrite: 3000})
		stream, peer := streamPair(t, s, e, 5000)
		msg := pattern(2_000_000)
		var work sync.WaitGroup
		for _, nc := range []net.Conn{stream, peer} {
			work.Go(func() {
				send(t, nc, msg)
				closeWrite(t, nc)
			})
			work.Go(func() { expectEnd(t, nc, msg) })
		}
		work.Wait()
		if _, err := stream.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
	})
}

// A stream that is not read holds its limit and a read buffer, and its peer is blocked.
func TestStreamIsBounded(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		t.Parallel()
		const limit, readBuffer = 10_000, 4 << 10
		e := start(t, myriad.Config{ReadBuffer: readBuffer})
		_, peer := streamPair(t, s, e, limit)
		_ = peer.SetWriteDeadline(time.Now().Add(time.Second))
		p := pattern(1 << 16)
		for sum := 0; ; sum += len(p) {
			if _, err := peer.Write(p); err != nil {
				break
			}
			if sum > 64<<20 {
				t.Fatal("the peer was never blocked")
			}
		}
		if in := e.Stats().BytesIn; in > limit+2*readBuffer {
			t.Errorf("%d bytes were taken in, the limit is %d", in, limit)
		}
	})
}

func TestStreamErrors(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		t.Run("reset", func(t *testing.T) {
			stream, peer := streamPair(t, s, e, 0)
			send(t, peer, []byte("first"))
			expect(t, stream, []byte("first"))
			reset(peer)
			_, err := io.ReadAll(stream)
			var op *net.OpError
			if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" || op.Addr == nil {
				t.Errorf("Read after a reset: %v", err)
			}
			if _, err := stream.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("Write after a reset: %v", err)
			}
		})
		t.Run("closed", func(t *testing.T) {
			stream, peer := streamPair(t, s, e, 0)
			send(t, peer, []byte("unread"))
			send(t, stream, []byte("last"))
			if err := errors.Join(stream.Close()); err != nil {
				t.Error(err)
			}
			for what, err := range map[string]error{
				"Read": second(stream.Read(make([]byte, 1))), "Write": second(stream.Write([]byte("x"))),
				"Close":       stream.Close(),
				"CloseWrite":  stream.(interface{ CloseWrite() error }).CloseWrite(),
				"SetDeadline": stream.SetDeadline(time.Now()),
			} {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("%s after Close: %v", what, err)
				}
			}
			expectEnd(t, peer, []byte("last"))
		})
		t.Run("deadlines", func(t *testing.T) {
			stream, peer := streamPair(t, s, e, 0)
			for range 2 {
				_ = stream.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("Read: %v", err)
				}
			}
			_ = stream.SetReadDeadline(time.Time{})
			send(t, peer, []byte("again"))
			expect(t, stream, []byte("again"))
			n := 0
			for wait := 20 * time.Millisecond; n == 0 && wait < 20*time.Second; wait *= 2 { // it may be held up
				_ = stream.SetWriteDeadline(time.Now().Add(wait))
				var err error
				if n, err = stream.Write(make([]byte, 16<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if n == 0 {
				t.Error("no Write has taken anything")
			}
		})
	})
}

func second[T any](_ T, err error) error { return err }

// A stream may be used before it is opened: calls wait, and are done then.
func TestStreamBeforeOpened(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		h, nc := myriad.Stream(0)
		var work sync.WaitGroup
		work.Go(func() { expect(t, nc, []byte("hello")) })
		work.Go(func() { send(t, nc, []byte("early")) })
		if nc.LocalAddr() == nil || nc.RemoteAddr() == nil {
			t.Error("no address before the conn is opened")
		}
		server, client := socketPair(t, "tcp", "127.0.0.1:0")
		peer := s.own(t, client)
		if _, err := e.Adopt(server, nil, s.wrap(h)); err != nil {
			t.Fatal(err)
		}
		send(t, peer, []byte("hello"))
		expect(t, peer, []byte("early"))
		work.Wait()
		extra, other := socketPair(t, "tcp", "127.0.0.1:0")
		defer other.Close()
		_ = other.SetDeadline(time.Now().Add(patience))
		if _, err := e.Adopt(extra, nil, s.wrap(h)); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Error("a second conn for one stream was served")
		}
		nc.Close()

		h, nc = myriad.Stream(0)
		_ = nc.SetDeadline(time.Unix(1, 0))
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read with a deadline in the past: %v", err)
		}
		_ = nc.SetDeadline(time.Time{})
		work.Go(func() {
			if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read of a stream that is closed: %v", err)
			}
		})
		nc.Close()
		work.Wait()
		server, client = socketPair(t, "tcp", "127.0.0.1:0")
		if _, err := e.Adopt(server, nil, h); err != nil {
			t.Fatal(err)
		}
		expectEnd(t, client, nil)
		client.Close()
	})
}

// A conn that another handler has paused becomes a stream with all its bytes.
func TestStreamAfterAnotherHandler(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h, nc := myriad.Stream(0)
		first := newProbe()
		first.received = func(c *myriad.Conn, p []byte) {
			c.Pause()
			c.SetTimer(time.Hour)
			c.SetHandler(h, bytes.Clone(p))
		}
		peer := s.one(t, myriad.Config{}, first)
		send(t, peer, []byte("all of it"))
		expect(t, nc, []byte("all of it"))
		nc.Close()
		expectEnd(t, peer, nil)
	})
}

func TestConnReadFails(t *testing.T) {
	h := newProbe()
	bare := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	bare.one(t, myriad.Config{}, h)
	c := await(t, "Opened", h.opens)
	if _, err := c.Read(make([]byte, 1)); err != myriad.ErrOnLoop {
		t.Errorf("Read: %v", err)
	}
	var _ net.Conn = c
}
