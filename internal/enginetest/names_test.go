package enginetest

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// What others build against, with exactly these signatures: a change here breaks them.
var (
	_ func(myriad.Config) (*myriad.Engine, error) = myriad.Start
	_ func() (*myriad.Engine, error)              = myriad.Default
	_ func(int) (myriad.Handler, net.Conn)        = myriad.Stream

	_ = myriad.Config{Loops: 0, Driver: "", Logger: (*slog.Logger)(nil)}

	_ interface {
		Listen(network, addr string, h myriad.Handler) (*myriad.Listener, error)
		Dial(ctx context.Context, network, addr string, h myriad.Handler) (*myriad.Conn, error)
		Adopt(nc net.Conn, unread []byte, h myriad.Handler) (*myriad.Conn, error)
		Shutdown(ctx context.Context) error
		Stats() myriad.Stats
	} = (*myriad.Engine)(nil)
	_ interface {
		Addr() net.Addr
		Close() error
		File() (*os.File, error)
	} = (*myriad.Listener)(nil)
	_ interface{ Do(f func()) error } = (*myriad.Loop)(nil)
	_ net.Conn                        = (*myriad.Conn)(nil)
	_ interface {
		WriteBlocks(b ...*buf.Block) error
		WriteFile(f *os.File, off, n int64) error
		CloseWrite() error
		CloseTruncated()
		Abort(err error)
		Queued() int
		Loop() *myriad.Loop
		SetHandler(h myriad.Handler, rest []byte)
		SetLayer(l myriad.Layer)
		SetTimer(d time.Duration)
		Pause()
		Resume()
		Detach(done func(nc net.Conn, unread []byte, err error))
	} = (*myriad.Conn)(nil)

	_ interface {
		Opened(c *myriad.Conn)
		Received(c *myriad.Conn, p []byte)
		Closed(c *myriad.Conn, err error)
	} = myriad.Handler(nil)
	_ interface{ Ended(c *myriad.Conn) }   = myriad.Ender(nil)
	_ interface{ Drained(c *myriad.Conn) } = myriad.Drainer(nil)
	_ interface{ Expired(c *myriad.Conn) } = myriad.Timed(nil)
	_ interface {
		Received(w myriad.Wire, p []byte)
		Write(w myriad.Wire, p []byte) (int, error)
		CloseWrite(w myriad.Wire) error
		Closed(err error) error
		Detach(raw net.Conn, unread []byte) (net.Conn, []byte)
	} = myriad.Layer(nil)
)
