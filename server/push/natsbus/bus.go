package natsbus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
	"github.com/nats-io/nats.go"
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

// maxRetentions bounds the retentions of a cluster: each has Parts logs, which every node follows.
const maxRetentions = 16

// A Bus is a bus.Bus over NATS. See the package's documentation.
type Bus struct {
	config  Config
	prefix  string
	log     *slog.Logger
	nc      *nats.Conn
	kept    *nats.Conn // for publications that a log keeps: while many wait, nc's requests do not
	closing chan struct{}

	unique    string // begins the IDs of messages
	published atomic.Uint64
	stepping  atomic.Bool // StepDown has been called

	registry registry
	receipts receipts.Table[bus.Position]
	inbox    inbox
	nodes    nodes

	background sync.WaitGroup
	closeOnce  sync.Once

	mu       sync.Mutex
	closed   bool
	logs     map[logID]*follower
	byStream map[string]*follower
	served   map[string]*service
}

var errClosing = bus.ErrClosed

// Open connects to NATS and returns when the node hears the others. The logs of c.Retentions are
// followed soon after; see State.
func Open(ctx context.Context, c Config) (*Bus, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	b := &Bus{config: c, prefix: c.Prefix, log: c.Logger, closing: make(chan struct{}), unique: randomText(),
		logs: make(map[logID]*follower), byStream: make(map[string]*follower),
		served: make(map[string]*service)}
	b.receipts.Most = c.IDs
	b.registry.init()
	if err := b.connect(); err != nil {
		b.disconnect()
		return nil, err
	}
	if err := b.begin(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

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
	case c.Parts < 1 || c.Parts > 64:
		return fmt.Errorf("natsbus: %d parts: use 1 to 64", c.Parts)
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

// reconnectEvery is how often a lost connection to an external NATS is tried again.
const reconnectEvery = 250 * time.Millisecond

func (b *Bus) connect() (err error) {
	options := []nats.Option{
		nats.Name("myriad " + b.config.Node), nats.NoEcho(), nats.MaxReconnects(-1), nats.Timeout(readyTime),
		nats.ReconnectWait(reconnectEvery), nats.ReconnectJitter(reconnectEvery, reconnectEvery),
		// Publish says that it failed, instead of sending later what its caller may have sent again
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.log.Warn("natsbus: the connection to NATS is down", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.log.Info("natsbus: the connection to NATS is back", "server", nc.ConnectedUrlRedacted())
			b.forgetReplicas()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("natsbus: NATS reports an error", "subject", subject, "error", err)
		}),
	}
	url := b.config.URL
	if s := b.config.Server; s != nil {
		url = ""
		options = append(options, nats.InProcessServer(s.nats), nats.UserInfo(clientUser, s.password))
	}
	if b.nc, err = nats.Connect(url, options...); err == nil {
		b.kept, err = nats.Connect(url, options...)
	}
	if err != nil {
		return fmt.Errorf("natsbus: connecting to NATS: %w", err)
	}
	return nil
}

func (b *Bus) disconnect() {
	for _, nc := range []*nats.Conn{b.nc, b.kept} {
		if nc != nil {
			nc.Close()
		}
	}
}

// forgetReplicas makes readers check again how far the replica is: it may be another one now.
func (b *Bus) forgetReplicas() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.logs {
		f.mu.Lock()
		f.replica = 0
		f.mu.Unlock()
	}
}

// begin subscribes, and starts what runs in the background.
func (b *Bus) begin(ctx context.Context) error {
	if err := b.openInbox(); err != nil {
		return err
	}
	if err := b.openNodes(); err != nil {
		return err
	}
	b.serve(questionPresent, b.rollCall)
	b.serve(questionFollows, b.vouch)
	if _, err := b.nc.Subscribe(b.prefix+".t.>", b.receivePassing); err != nil {
		return err
	}
	if err := b.nc.FlushWithContext(withDeadline(ctx)); err != nil {
		return fmt.Errorf("natsbus: NATS does not answer: %w", err)
	}
	for _, keep := range b.config.Retentions {
		if _, err := b.follow(keep); err != nil {
			return err
		}
	}
	b.background.Go(b.beat)
	b.background.Go(b.lookAround)
	return nil
}

// withDeadline gives ctx one, as the client library requires.
func withDeadline(ctx context.Context) context.Context {
	if _, has := ctx.Deadline(); has {
		return ctx
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	context.AfterFunc(limited, cancel)
	return limited
}

// follow returns the logs of a retention, which this node follows from now on.
func (b *Bus) follow(keep bus.Retention) ([]*follower, error) {
	if keep.Size <= 0 || keep.Age <= 0 {
		return nil, fmt.Errorf("natsbus: the retention %v: both a size and an age are needed", keep)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, bus.ErrClosed
	}
	if b.logs[logID{keep, 0, b.config.Parts}] == nil && len(b.logs) >= maxRetentions*b.config.Parts {
		return nil, fmt.Errorf("natsbus: more than %d retentions: let namespaces share theirs", maxRetentions)
	}
	list := make([]*follower, b.config.Parts)
	for part := range list {
		list[part] = b.followLocked(logID{keep, part, b.config.Parts})
	}
	return list, nil
}

// followLocked returns the follower of one log. The caller holds mu.
func (b *Bus) followLocked(id logID) *follower {
	f := b.logs[id]
	if f == nil {
		f = b.newFollower(id)
		b.logs[id], b.byStream[f.stream] = f, f
	}
	return f
}

// followerOf returns the follower of t's log.
func (b *Bus) followerOf(t bus.Topic) (*follower, error) {
	id := idOf(t, b.config.Parts)
	b.mu.Lock()
	f := b.logs[id]
	b.mu.Unlock()
	if f != nil {
		return f, nil
	}
	list, err := b.follow(t.Keep)
	if err != nil {
		return nil, err
	}
	return list[id.part], nil
}

// live returns the follower of t's log when it is live.
func (b *Bus) live(ctx context.Context, t bus.Topic) (*follower, error) {
	f, err := b.followerOf(t)
	if err != nil {
		return nil, err
	}
	return f, f.waitFor(ctx, 0)
}

// usable returns an error if ctx has ended or the bus is closed.
func (b *Bus) usable(ctx context.Context) error {
	select {
	case <-b.closing:
		return bus.ErrClosed
	default:
		return ctx.Err()
	}
}

// Subscribe implements bus.Bus.
func (b *Bus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	if _, err := tokenOf(t.Name); err != nil {
		return err
	}
	if t.Keep.Size <= 0 {
		return b.registry.add(t.Name, r, func(*topic) {})
	}
	f, err := b.live(ctx, t)
	if err != nil {
		return err
	}
	err = b.registry.add(t.Name, r, func(at *topic) {
		at.log = f
		if at.epoch == "" {
			at.epoch = channelEpoch(f.epochNow(), t.Name)
		}
	})
	if err != nil {
		return err
	}
	// A message that is being handled may have missed r. When it has been, a History includes it.
	f.work.Lock()
	defer f.work.Unlock()
	return nil
}

// Unsubscribe implements bus.Bus.
func (b *Bus) Unsubscribe(channel string, r bus.Receiver) { b.registry.remove(channel, r) }

// Close implements bus.Bus.
func (b *Bus) Close() error {
	b.closeOnce.Do(func() {
		b.mu.Lock()
		b.closed = true
		logs := b.logs
		b.mu.Unlock()
		close(b.closing)
		for _, f := range logs {
			f.close()
		}
		b.background.Wait()
		b.registry.close()
		b.disconnect()
	})
	return nil
}

var _ bus.Bus = (*Bus)(nil)

// replicas is how many nodes should store a log now: an odd number, of the nodes that are there.
func (b *Bus) replicas() int {
	want := b.config.Replicas
	if want == 0 {
		want = 3
	}
	there := len(b.nc.Servers()) // those of an external NATS
	if b.config.Server != nil {
		there = len(b.nodes.alive()) + 1
	}
	for want > there {
		want -= 2
	}
	return max(want, 1)
}
