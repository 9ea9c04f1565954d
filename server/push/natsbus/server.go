package natsbus

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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

// A Server is a NATS server in this process.
type Server struct {
	name     string
	password string // of the client in this process, made anew at each start
	system   string // of the system account
	nats     *server.Server
	options  *server.Options
}

const (
	clientUser = "myriad"
	systemUser = "system"
	nodeUser   = "node"
	// clusterName keeps clusters apart: one that has another name is not joined.
	clusterName = "myriad"
	// maxPayload is what NATS says works well. Publish refuses a larger publication.
	maxPayload = 8 << 20
	// readyTime is how long a server may take to listen, and to answer a connection.
	readyTime = time.Minute
)

// StartServer starts a server. It is ready for connections when StartServer returns; with other
// nodes, JetStream is when most of them are up.
func StartServer(c ServerConfig) (*Server, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Server{name: c.Name, password: randomText(), system: randomText()}
	options, err := s.optionsOf(c)
	if err != nil {
		return nil, err
	}
	s.options = options
	if s.nats, err = server.NewServer(options); err != nil {
		return nil, fmt.Errorf("natsbus: starting NATS: %w", err)
	}
	s.nats.SetLoggerV2(&natsLog{log: c.Logger}, false, false, false)
	s.nats.Start()
	if !s.nats.ReadyForConnections(readyTime) {
		s.Shutdown()
		return nil, errors.New("natsbus: NATS is not ready; the log says why")
	}
	return s, nil
}

func randomText() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// optionsOf returns NATS's options. A server that does not listen for clients cannot be part of a
// cluster, so it listens on a port of this machine that it chooses, with a password that only
// this process has.
func (s *Server) optionsOf(c ServerConfig) (*server.Options, error) {
	options := &server.Options{}
	// accounts can only be set up by text; the passwords are hexadecimal
	err := options.ProcessConfigString(fmt.Sprintf(`accounts {
		SYSTEM { users = [ { user: %s, password: %q } ] }
		MYRIAD { jetstream: enabled, users = [ { user: %s, password: %q } ] }
	}
	system_account: SYSTEM`, systemUser, s.system, clientUser, s.password))
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

// Shutdown stops the server and waits until what it has is on disk.
func (s *Server) Shutdown() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}
