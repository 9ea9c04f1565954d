package enginetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/myriad-go/myriad"
)

// A cutLayer takes every FIN for one that came before the end of its stream.
type cutLayer struct{ xorLayer }

func (*cutLayer) Closed(err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// A lateCutLayer does so as a BufferedLayer.
type lateCutLayer struct{ cutLayer }

func (*lateCutLayer) Encode(myriad.Wire) bool { return false }
func (*lateCutLayer) Ended(w myriad.Wire)     { w.Truncated(io.ErrUnexpectedEOF) }

// A cutProbe is a probe that is called for truncated streams.
type cutProbe struct {
	*probe
	truncated func(c *myriad.Conn, err error)
}

func (h cutProbe) Truncated(c *myriad.Conn, err error) { h.truncated(c, err) }

// onCutLayers runs a test with both kinds of layers. peer is a peer of h.
func onCutLayers(t *testing.T, f func(t *testing.T, peer func(h myriad.Handler) net.Conn)) {
	for name, newLayer := range map[string]func() myriad.Layer{
		"Layer":         func() myriad.Layer { return new(cutLayer) },
		"BufferedLayer": func() myriad.Layer { return new(lateCutLayer) },
	} {
		t.Run(name, func(t *testing.T) {
			s := setting{true, func(h myriad.Handler) myriad.Handler { return withLayer{h, newLayer} }, newXORConn}
			f(t, func(h myriad.Handler) net.Conn { return s.one(t, myriad.Config{}, h) })
		})
	}
}

// A handler that knows of truncation may answer what has come, and end as it likes; no end is one
// in order for it.
func TestTruncatedIsAnswered(t *testing.T) {
	onCutLayers(t, func(t *testing.T, peer func(myriad.Handler) net.Conn) {
		answer := pattern(3 << 20)
		for name, end := range map[string]func(c *myriad.Conn){
			"Close": func(c *myriad.Conn) { c.Close() }, "CloseWrite": func(c *myriad.Conn) { c.CloseWrite() },
		} {
			h := newProbe()
			h.opened = func(c *myriad.Conn) { c.SetWriteLimit(4 << 20) }
			var got bytes.Buffer
			h.received = func(_ *myriad.Conn, p []byte) { got.Write(p) }
			h.ended = func(*myriad.Conn) { t.Error("Ended: a cut stream looks whole") }
			nc := peer(cutProbe{h, func(c *myriad.Conn, err error) {
				if err != io.ErrUnexpectedEOF || got.String() != "question" {
					t.Errorf("%s: Truncated(%v) behind %q", name, err, got.String())
				}
				if _, err := c.Write(answer); err != nil {
					t.Error(err)
				}
				end(c)
			}})
			send(t, nc, []byte("question"))
			closeWrite(t, nc)
			expectEnd(t, nc, answer)
			nc.Close()
			if err := await(t, "Closed", h.closes); err != io.ErrUnexpectedEOF {
				t.Errorf("%s: Closed(%v)", name, err)
			}
		}
	})
}

// Others get what came, and then the reason in Closed. What they have queued by then is sent.
func TestTruncatedEndsOthers(t *testing.T) {
	onCutLayers(t, func(t *testing.T, peer func(myriad.Handler) net.Conn) {
		h, answer := newProbe(), pattern(1<<20)
		h.opened = func(c *myriad.Conn) { c.SetWriteLimit(4 << 20) }
		h.received = func(c *myriad.Conn, _ []byte) { c.Write(answer) }
		h.ended = func(*myriad.Conn) { t.Error("Ended: a cut stream looks whole") }
		nc := peer(h)
		send(t, nc, []byte("?"))
		closeWrite(t, nc)
		expectEnd(t, nc, answer[:len(answer):len(answer)])
		nc.Close()
		if err := await(t, "Closed", h.closes); err != io.ErrUnexpectedEOF {
			t.Errorf("Closed(%v)", err)
		}
	})
}

// Truncated comes behind the bytes that were held back by a pause, to the handler that speaks then.
func TestTruncatedComesLast(t *testing.T) {
	onCutLayers(t, func(t *testing.T, peer func(myriad.Handler) net.Conn) {
		next, said := newProbe(), make(chan string, 10)
		next.received = func(_ *myriad.Conn, p []byte) { said <- string(p) }
		second := cutProbe{next, func(c *myriad.Conn, err error) { said <- err.Error(); c.Close() }}
		first := newProbe()
		first.opened = func(c *myriad.Conn) { c.Pause() }
		first.notified = func(c *myriad.Conn) { c.SetHandler(second, nil); c.Resume() }
		nc := peer(cutProbe{first, func(*myriad.Conn, error) { t.Error("Truncated while paused") }})
		c := await(t, "Opened", first.opens)
		send(t, nc, []byte("x"))
		closeWrite(t, nc)
		c.Notify()
		if got := await(t, "Received", said) + await(t, "Truncated", said); got != "xunexpected EOF" {
			t.Errorf("the second handler got %q", got)
		}
		nc.Close()
		await(t, "Closed", next.closes)
	})
}

// A Stream whose peer's side is cut gives what came, then an error that is not io.EOF; its Write
// goes on.
func TestStreamOfATruncatedConn(t *testing.T) {
	onCutLayers(t, func(t *testing.T, peer func(myriad.Handler) net.Conn) {
		h, stream := myriad.Stream(0)
		nc := peer(h)
		send(t, nc, []byte("question"))
		closeWrite(t, nc)
		got, err := io.ReadAll(stream)
		if string(got) != "question" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := stream.Write(pattern(3 << 20)[:1000]); err != nil {
			t.Error(err)
		}
		stream.Close()
		expectEnd(t, nc, pattern(3 << 20)[:1000])
	})
}
