package web

import (
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

// A plainSink is the connection as the sink of an answer that ends with it, a chunkedSink that of
// one in chunks.
type (
	plainSink   myriad.Conn
	chunkedSink myriad.Conn
)

// outlive implements carrier.
func (x *h1stream) outlive() error {
	if err := x.awaitTurn(); err != nil {
		return err
	}
	if !x.body.complete() {
		x.enc.closeAfter = true // what is still to come of it would be taken for a request
	}
	return nil
}

// sink implements carrier.
func (x *h1stream) sink() sink {
	if x.enc.chunked {
		return (*chunkedSink)(x.h.c)
	}
	return (*plainSink)(x.h.c)
}

func (c *plainSink) conn() *myriad.Conn { return (*myriad.Conn)(c) }

func (c *plainSink) write(p []byte) error {
	_, err := c.conn().Write(p)
	return err
}

func (c *plainSink) chunk(k *Chunk) error { return c.write(k.data()) }
func (c *plainSink) end() error           { return nil }
func (c *plainSink) queued() int          { return c.conn().Queued() }
func (c *plainSink) setLimit(n int)       { c.conn().SetWriteLimit(n) }
func (c *plainSink) abort(err error)      { c.conn().Abort(err) }
func (c *plainSink) notify()              { c.conn().Notify() }
func (c *plainSink) remoteAddr() net.Addr { return c.conn().RemoteAddr() }

func (c *chunkedSink) conn() *myriad.Conn { return (*myriad.Conn)(c) }

func (c *chunkedSink) write(p []byte) error {
	b := buf.Get(len(p) + chunkRoom)
	b.Commit(len(h1.AppendChunk(b.Extend()[:0], p)))
	return c.conn().WriteBlocks(b)
}

func (c *chunkedSink) chunk(k *Chunk) error { return c.conn().WriteBlocks(k.block.Retain()) }

func (c *chunkedSink) end() error {
	_, err := c.conn().Write([]byte(h1.LastChunk + "\r\n"))
	return err
}

func (c *chunkedSink) queued() int          { return c.conn().Queued() }
func (c *chunkedSink) setLimit(n int)       { c.conn().SetWriteLimit(n) }
func (c *chunkedSink) abort(err error)      { c.conn().Abort(err) }
func (c *chunkedSink) notify()              { c.conn().Notify() }
func (c *chunkedSink) remoteAddr() net.Addr { return c.conn().RemoteAddr() }

// settle goes on with the connection once its Stream has been closed. Requests behind it are
// answered, also if the client's FIN has come. At the FIN a Stream that is open ends without an end
// of its body, because only its owner knows whether that is complete.
func (h *conn) settle(s *Stream) {
	over, owed := s.look(h.c.SetTimer)
	switch {
	case over && owed: // Drained goes on
	case over:
		s.lost(nil)
		if s.cut || h.last || h.leaving() && s.from == nil {
			h.close() // Closed ends what has lined up behind s
			return
		}
		h.stream = nil
		h.goOn(s.from, never)
	case h.leaving():
		_ = s.Close()
	case h.ended:
		h.close()
	}
}
