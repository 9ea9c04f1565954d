package enginetest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/myriad-go/myriad"
)

// A sniffer has another handler, below which there is a layer, speak behind the first line.
type sniffer struct {
	*probe
	next myriad.Handler
	line []byte
}

func newSniffer(next myriad.Handler) *sniffer {
	s := &sniffer{probe: newProbe(), next: next}
	s.received = func(c *myriad.Conn, p []byte) {
		s.line = append(s.line, p...)
		if _, rest, ok := bytes.Cut(s.line, []byte("\n")); ok {
			c.SetHandler(withXOR(s.next), rest)
		}
	}
	return s
}

// A layer that a later handler sets decodes the rest that this one was given, and all that comes.
func TestLayerBehindASniffer(t *testing.T) {
	h := echo{}
	whole := append([]byte("line\n"), new(xor).apply(pattern(3000))...)
	e := start(t, myriad.Config{})
	for _, cut := range []int{1, 4, 5, 6, 100, len(whole) - 1, len(whole)} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			sniff := newSniffer(h)
			nc := setting{client: keep}.dial(t, setting{wrap: bare}.listen(t, e, sniff))
			send(t, nc, whole[:cut])
			if cut < len(whole) {
				eventually(t, "the first part has come", func() bool { return e.Stats().BytesIn >= uint64(cut) })
				send(t, nc, whole[cut:])
			}
			back := &xorConn{Conn: nc}
			expect(t, back, pattern(3000))
		})
	}
}

// What was held, and the FIN, go through the layer, too; the handler that is last is called for the
// end, once.
func TestLateLayerGetsWhatWasHeld(t *testing.T) {
	for _, newLayer := range []func() myriad.Layer{
		func() myriad.Layer { return new(xorLayer) }, func() myriad.Layer { return new(lateCutLayer) },
	} {
		last, said := newProbe(), make(chan string, 10)
		last.received = func(_ *myriad.Conn, p []byte) { said <- string(p) }
		last.ended = func(c *myriad.Conn) { said <- "Ended"; c.Close() }
		h := cutProbe{last, func(c *myriad.Conn, _ error) { said <- "Truncated"; c.Close() }}
		first := newProbe()
		first.opened = func(c *myriad.Conn) { c.Pause() }
		first.notified = func(c *myriad.Conn) {
			c.SetHandler(withLayer{h, newLayer}, new(xor).apply([]byte("a")))
			c.Resume()
		}
		nc := setting{wrap: bare, client: keep}.one(t, myriad.Config{}, first)
		c := await(t, "Opened", first.opens)
		send(t, nc, new(xor).apply([]byte("ab"))[1:])
		closeWrite(t, nc)
		c.Notify()
		want := []string{"a", "b", "Ended"}
		if _, cuts := newLayer().(*lateCutLayer); cuts {
			want[2] = "Truncated"
		}
		for _, want := range want {
			if got := await(t, "call", said); got != want {
				t.Errorf("called with %q, want %q", got, want)
			}
		}
		nc.Close()
		await(t, "Closed", last.closes)
		if len(said) > 0 {
			t.Errorf("called again: %q", <-said)
		}
	}
}
