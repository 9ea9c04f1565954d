package natsbus

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ServerConfig configures a NATS server in this process.
type ServerConfig struct {
	// Name is this node's name, which no other node has and which stays the same.
	Name string
	// Dir is where JetStream stores logs. Other nodes use other folders.
	Dir string
	// Listen is the HOST:PORT for the other nodes. Empty: a node on its own.
	Listen string
	// Routes are the HOST:PORTs of other nodes. One that is up is enough: it tells the others.
	Routes []string
	// Secret is what nodes show each other.
	Secret string
	// TLS encrypts what nodes send each other; both sides use the same. nil: in the clear.
	TLS *tls.Config
	// SyncInterval is how often this node syncs what it has stored to disk. 0: always, before it
	// confirms a publication. It holds for all logs, so for every retention: JetStream has no
	// interval for a single one. With an interval, a power failure of most nodes loses what was not
	// synced.
	SyncInterval time.Duration
	// Logger gets what the server reports. Default: slog.Default.
	Logger *slog.Logger
}

// A Server is a NATS server in this process. It can be started again when it has been shut down.
type Server struct {
	name   string
	config ServerConfig

	starting sync.Mutex // held by Start and Shutdown
	lock     *folderLock

	mu       sync.Mutex // guards what a start makes
	password string     // of the client in this process
	system   string     // of the system account
	nats     *server.Server
}

const (
	clientUser    = "myriad"
	clientAccount = "MYRIAD"
	systemUser    = "system"
	nodeUser      = "node"
	// clusterName keeps clusters apart: one that has another name is not joined.
	clusterName = "myriad"
	// maxPayload is what NATS says works well. Publish refuses a larger publication.
	maxPayload = 8 << 20
	// readyTime is how long a server may take to listen, and to answer a connection.
	readyTime = time.Minute
	// readyPoll is how often a server that starts is asked whether it listens.
	readyPoll = time.Millisecond
)

// NewServer returns a server that is not running.
func NewServer(c ServerConfig) *Server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Server{name: c.Name, config: c}
}

// StartServer starts a server. It is ready for connections when StartServer returns; with other
// nodes, JetStream is when most of them are up.
func StartServer(c ServerConfig) (*Server, error) {
	s := NewServer(c)
	if err := s.Start(); err != nil {
		return nil, err
	}
	return s, nil
}

// Start starts a server that is not running, as StartServer does. It fails at once if another
// process uses the folder, or listens at the address. It does nothing if the server is running.
func (s *Server) Start() error {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.lock != nil {
		return nil
	}
	lock, err := lockFolder(s.config.Dir)
	if err != nil {
		return fmt.Errorf("natsbus: starting NATS: %w", err)
	}
	s.lock = lock
	err = s.checkAddress()
	if err == nil {
		err = s.start()
	}
	if err != nil {
		s.shutdown()
		return err
	}
	return nil
}

// checkAddress fails if another process listens there. NATS would find out when it has opened its
// stores, and a process that waits for the address tries often.
func (s *Server) checkAddress() error {
	if s.config.Listen == "" {
		return nil
	}
	_, port, err := splitAddress(s.config.Listen)
	if err != nil {
		return err
	}
	if port <= 0 { // NATS chooses one
		return nil
	}
	ln, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("natsbus: starting NATS: %w", err)
	}
	return ln.Close()
}

// start starts NATS. The caller has locked the folder.
func (s *Server) start() error {
	password, system := randomText(), randomText()
	options, err := optionsOf(s.config, password, system)
	if err != nil {
		return err
	}
	started, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("natsbus: starting NATS: %w", err)
	}
	s.mu.Lock()
	s.nats, s.password, s.system = started, password, system
	s.mu.Unlock()
	log := &natsLog{log: s.config.Logger, fatal: make(chan string, 1)}
	started.SetLoggerV2(log, false, false, false)
	started.Start()
	for end := time.Now().Add(readyTime); time.Now().Before(end); {
		if started.ReadyForConnections(readyPoll / 10) {
			return nil
		}
		select {
		case why := <-log.fatal:
			return fmt.Errorf("natsbus: NATS does not start: %s", why)
		case <-time.After(readyPoll):
		}
	}
	return errors.New("natsbus: NATS is not ready; the log says why")
}

// running returns NATS, and the passwords of its users.
func (s *Server) running() (started *server.Server, password, system string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nats, s.password, s.system
}

// connectSystem connects to the system account.
func (s *Server) connectSystem() (*nats.Conn, error) {
	started, _, system := s.running()
	if started == nil {
		return nil, errNotRunning
	}
	return nats.Connect("", nats.InProcessServer(started), nats.UserInfo(systemUser, system), nats.Timeout(readyTime))
}

// stepDownMeta has another node lead the cluster if this one does, and not one that is unfit. It
// returns when one does, or with an error when ctx ends. Of two nodes no other one can lead alone.
func (s *Server) stepDownMeta(ctx context.Context, unfit map[string]bool) error {
	started, _, _ := s.running()
	if started == nil || !started.JetStreamIsLeader() || s.clusterSize() < 3 {
		return nil
	}
	nc, err := s.connectSystem()
	if err != nil {
		return err
	}
	defer nc.Close()
	for started.JetStreamIsLeader() {
		if to := metaSuccessor(started, unfit); to == "" {
			err = errNoSuccessor
		} else {
			err = askToLead(ctx, nc, to)
		}
		if err == nil {
			err = errLeadsItself
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("natsbus: no other node leads the cluster: %w", err), ctx.Err())
		case <-time.After(stepDownPoll):
		}
	}
	return nil
}

var errNoSuccessor = errors.New("none has all that the leader has")

// metaSuccessor returns a node that can lead the cluster, or "".
func metaSuccessor(leader *server.Server, unfit map[string]bool) string {
	info, err := leader.Jsz(nil)
	if err != nil || info.Meta == nil {
		return ""
	}
	for _, r := range info.Meta.Replicas {
		if r.Current && !r.Offline && r.Active < leadsAlone && !unfit[r.Name] {
			return r.Name
		}
	}
	return ""
}

// askToLead asks the leader of the cluster to step down for another node.
func askToLead(ctx context.Context, nc *nats.Conn, to string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	body, err := json.Marshal(preferring(to))
	if err != nil {
		return err
	}
	m, err := nc.RequestWithContext(ctx, "$JS.API.META.LEADER.STEPDOWN", body)
	if err != nil {
		return err
	}
	return decode(m, nil)
}

// lastOf returns the number of the last message of a log that is stored here; 0: there is none, or
// this node does not take part in the log's elections yet.
func (s *Server) lastOf(stream string) uint64 {
	started, _, _ := s.running()
	if started == nil {
		return 0
	}
	info, err := started.Jsz(&server.JSzOptions{Account: clientAccount, Streams: true})
	if err != nil {
		return 0
	}
	for _, account := range info.AccountDetails {
		for i := range account.Streams {
			if s := &account.Streams[i]; s.Name == stream && s.Cluster != nil && s.Cluster.Leader != "" {
				return s.State.LastSeq
			}
		}
	}
	return 0
}

var errNotRunning = errors.New("natsbus: the NATS server is not running")

func randomText() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// optionsOf returns NATS's options. A server that does not listen for clients cannot be part of a
// cluster, so it listens on a port of this machine that it chooses, with a password that only
// this process has.
func optionsOf(c ServerConfig, password, system string) (*server.Options, error) {
	options := &server.Options{}
	// accounts can only be set up by text; the passwords are hexadecimal
	err := options.ProcessConfigString(fmt.Sprintf(`accounts {
		SYSTEM { users = [ { user: %s, password: %q } ] }
		%s { jetstream: enabled, users = [ { user: %s, password: %q } ] }
	}
	system_account: SYSTEM`, systemUser, system, clientAccount, clientUser, password))
	if err != nil {
		return nil, err
	}
	options.ServerName, options.Host, options.Port = c.Name, "127.0.0.1", -1
	options.NoSigs, options.MaxPayload = true, maxPayload
	options.JetStream, options.StoreDir = true, c.Dir
	options.SyncAlways, options.SyncInterval = c.SyncInterval == 0, c.SyncInterval
	// A reader in this process that stops for a while must not hold up its publishers.
	options.NoFastProducerStall = true
	options.JetStreamMaxMemory, options.JetStreamMaxStore = -1, -1
	if c.Listen == "" {
		return options, nil
	}
	host, port, err := splitAddress(c.Listen)
	if err != nil {
		return nil, err
	}
	options.Cluster = server.ClusterOpts{Name: clusterName, Host: host, Port: port, Username: nodeUser,
		Password: c.Secret, TLSConfig: c.TLS, TLSTimeout: 5, AuthTimeout: 5}
	routes := c.Routes
	if len(routes) == 0 { // JetStream wants one: this node itself, which is recognised
		routes = []string{c.Listen}
	}
	for i, address := range routes {
		if slices.Contains(routes[:i], address) { // NATS expects as many nodes as there are routes
			continue
		}
		options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: address,
			User: url.UserPassword(nodeUser, c.Secret)})
	}
	return options, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("natsbus: the address %q: write HOST:PORT", address)
	}
	return host, port, nil
}

// Shutdown stops the server, and waits until what it has is on disk. It does nothing if the server
// is not running.
func (s *Server) Shutdown() {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.shutdown()
}

// shutdown lets go of the folder in the end. The caller holds starting.
func (s *Server) shutdown() {
	if s.lock == nil {
		return
	}
	if started, _, _ := s.running(); started != nil {
		started.Shutdown()
		started.WaitForShutdown()
	}
	s.lock.release()
	s.lock = nil
}
