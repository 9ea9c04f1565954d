package tunnel

import (
	"net"

	"github.com/myriad-go/myriad"
)

// A nested hands a conn with a layer to another conn of the same engine.
type nested struct {
	base
	engine    *myriad.Engine
	connected func(*myriad.Conn, error)
}

// Nested is the handler of a conn that is TLS to a proxy, for a Next that is TLS as well. Next
// serves another conn, which the engine adopts on a goroutine, and connected is called with that.
// It is the one case that costs goroutines: two for each connection (Engine.Adopt).
func Nested(e *myriad.Engine, d *Dial, connected func(*myriad.Conn, error)) myriad.Handler {
	return &nested{base{Dial: d}, e, connected}
}

func (n *nested) Opened(c *myriad.Conn) {
	h, stream := myriad.Stream(0)
	c.SetHandler(h, nil)
	next, connected := n.Next, n.connected
	n.Dial, n.connected = nil, nil // as in base.stands
	n.engine.System().Go(func() { connected(n.engine.Adopt(foreign{stream}, nil, next)) })
}

// foreign is a connection through the engine that the engine is to serve once more.
type foreign struct{ net.Conn }

// CloseWrite ends our side.
func (f foreign) CloseWrite() error { return f.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// Received is never called.
func (*nested) Received(*myriad.Conn, []byte) {}
