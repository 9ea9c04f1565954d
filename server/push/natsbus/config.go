package natsbus

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// Config configures a Bus.
type Config struct {
	// Server is the NATS server in this process. Close leaves it running.
	Server *Server
	// URL is that of an external NATS instead, as in nats://user:password@host:4222; several are
	// separated by commas.
	URL string
	// Node names this node among the others. Default: the Server's name, or the host's.
	Node string
	// Dir is where the node notes how far it has followed each log. Without it, logs begin a new
	// epoch when no node follows them, unless Synced.
	Dir string
	// Synced says that NATS syncs every message to disk (sync_interval: always). Then logs lose
	// nothing in a power failure, and keep their epochs.
	Synced bool
	// Prefix begins all subjects, streams and files, so that several clusters can share a NATS.
	// Letters and digits. Default: myriad.
	Prefix string
	// Parts is how many logs the channels of one retention are divided into, 1 to 64, default 3. It
	// has to be the same on all nodes. More parts spread the work over more leaders.
	Parts int
	// Replicas is how many nodes store each log: 1, 3 or 5. Default: 3, or fewer while there are
	// fewer nodes.
	Replicas int
	// PositionAge is how long a client's position is valid, default 24 hours, at least a minute. A
	// client that comes back later cannot recover.
	PositionAge time.Duration
	// LogBytes bounds each log, default 1 GiB. JetStream reserves as much of its disk. Above it the
	// oldest publications are dropped.
	LogBytes int64
	// IDs is how many IDs of publications this node remembers, default 100,000.
	IDs int
	// Retentions are those whose logs are followed from the start. Others are when they are first
	// used.
	Retentions []bus.Retention
	// Logger gets what happens to logs and nodes. Default: slog.Default.
	Logger *slog.Logger
}

const maxParts = 64

// complete sets the defaults, creates Dir, and checks the rest.
func (c *Config) complete() error {
	set(&c.Prefix, "myriad")
	set(&c.Parts, 3)
	set(&c.PositionAge, 24*time.Hour)
	set(&c.LogBytes, 1<<30)
	set(&c.IDs, 100_000)
	set(&c.Logger, slog.Default())
	if c.Server != nil {
		set(&c.Node, c.Server.name)
	}
	if c.Node == "" {
		c.Node, _ = os.Hostname()
	}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("natsbus: the folder for positions: %w", err)
		}
	}
	notPlain := func(r rune) bool { return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9') }
	switch {
	case (c.Server == nil) == (c.URL == ""):
		return errors.New("natsbus: give a Server or a URL")
	case strings.ContainsFunc(c.Prefix, notPlain) || len(c.Prefix) > 32:
		return fmt.Errorf("natsbus: the prefix %q: use up to 32 letters and digits", c.Prefix)
	case c.Parts < 1 || c.Parts > maxParts:
		return fmt.Errorf("natsbus: %d parts: use 1 to %d", c.Parts, maxParts)
	case c.Replicas < 0 || c.Replicas > 5:
		return fmt.Errorf("natsbus: %d replicas: use 1, 3 or 5", c.Replicas)
	case c.PositionAge < time.Minute:
		return fmt.Errorf("natsbus: positions are valid for %v: use at least a minute", c.PositionAge)
	case c.Node == "" || len(c.Node) > 128:
		return fmt.Errorf("natsbus: the name of the node %q: use 1 to 128 bytes", c.Node)
	}
	return nil
}

func set[T comparable](field *T, standard T) {
	var zero T
	if *field == zero {
		*field = standard
	}
}
