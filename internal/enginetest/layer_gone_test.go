package enginetest

import (
	"net"
	"testing"

	"github.com/myriad-go/myriad"
)

// A goneLayer counts the calls of Gone.
type goneLayer struct {
	xorLayer
	gone chan string
}

func (l *goneLayer) Gone() { l.gone <- "Gone" }

// A layer's Gone is called once, before the handler's Closed, for a conn that ends in the engine,
// and not for one that leaves it.
func TestLayerGone(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(t *testing.T, c *myriad.Conn, nc net.Conn)
		want []string
	}{
		"by the peer": {func(_ *testing.T, _ *myriad.Conn, nc net.Conn) { nc.Close() }, []string{"Gone", "Closed"}},
		"by a reset":  {func(_ *testing.T, _ *myriad.Conn, nc net.Conn) { reset(nc) }, []string{"Gone", "Closed"}},
		"by Close": {func(_ *testing.T, c *myriad.Conn, nc net.Conn) { c.Close(); nc.Close() },
			[]string{"Gone", "Closed"}},
		"by Abort": {func(_ *testing.T, c *myriad.Conn, _ net.Conn) { c.Abort(nil) }, []string{"Gone", "Closed"}},
		"by Detach": {func(t *testing.T, c *myriad.Conn, _ net.Conn) {
			left := make(chan net.Conn, 1)
			if err := c.Loop().Do(func() {
				c.Detach(func(nc net.Conn, _ []byte, err error) {
					if err != nil {
						t.Error(err)
					}
					left <- nc
				})
			}); err != nil {
				t.Fatal(err)
			}
			await(t, "net.Conn", left).Close()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			said := make(chan string, 10)
			h := newProbe()
			end := goneProbe{h, said}
			newLayer := func() myriad.Layer { return &goneLayer{gone: said} }
			nc := setting{wrap: func(h myriad.Handler) myriad.Handler { return withLayer{h, newLayer} }, client: keep}.
				one(t, myriad.Config{}, end)
			tt.end(t, await(t, "Opened", h.opens), nc)
			for _, want := range tt.want {
				if got := await(t, "call", said); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			if len(said) > 0 {
				t.Errorf("%s, too", <-said)
			}
		})
	}
}

// A goneProbe says when it is closed.
type goneProbe struct {
	*probe
	said chan string
}

func (h goneProbe) Closed(c *myriad.Conn, err error) {
	h.said <- "Closed"
	h.probe.Closed(c, err)
}
