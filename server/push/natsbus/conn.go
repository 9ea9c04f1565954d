package natsbus

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// A conn is this node's connection to NATS. All parts of a session have it, and learn from it the
// node's name and whether the session ends.
type conn struct {
	node    string
	prefix  string // begins all subjects and streams
	log     *slog.Logger
	closing chan struct{} // closed when the session ends

	nc   *nats.Conn
	kept *nats.Conn // for publications that a log keeps: while many wait, nc's requests do not
}

func newConn(c Config) *conn {
	return &conn{node: c.Node, prefix: c.Prefix, log: c.Logger, closing: make(chan struct{})}
}

// reconnectEvery is how often a lost connection to an external NATS is tried again.
const reconnectEvery = 250 * time.Millisecond

// connect connects to the Server or the URL of config. reconnected is called each time that a lost
// connection is back.
func (c *conn) connect(config Config, reconnected func()) (err error) {
	options := []nats.Option{
		nats.Name("myriad " + c.node), nats.NoEcho(), nats.MaxReconnects(-1), nats.Timeout(readyTime),
		nats.ReconnectWait(reconnectEvery), nats.ReconnectJitter(reconnectEvery, reconnectEvery),
		// Publish says that it failed, instead of sending later what its caller may have sent again
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.log.Warn("natsbus: the connection to NATS is down", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.log.Info("natsbus: the connection to NATS is back", "server", nc.ConnectedUrlRedacted())
			reconnected()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			c.log.Warn("natsbus: NATS reports an error", "subject", subject, "error", err)
		}),
	}
	url := config.URL
	if s := config.Server; s != nil {
		started, password, _ := s.running()
		if started == nil {
			return errNotRunning
		}
		url = ""
		options = append(options, nats.InProcessServer(started), nats.UserInfo(clientUser, password))
	}
	if c.nc, err = nats.Connect(url, options...); err == nil {
		c.kept, err = nats.Connect(url, options...)
	}
	if err != nil {
		return fmt.Errorf("natsbus: connecting to NATS: %w", err)
	}
	return nil
}

// flush returns when NATS has everything that was sent, the subscriptions included.
func (c *conn) flush(ctx context.Context) error {
	if _, has := ctx.Deadline(); !has { // the client library requires one
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		ctx = limited
	}
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("natsbus: NATS does not answer: %w", err)
	}
	return nil
}

func (c *conn) disconnect() {
	for _, nc := range []*nats.Conn{c.nc, c.kept} {
		if nc != nil {
			nc.Close()
		}
	}
}
