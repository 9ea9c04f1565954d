package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/natsbus"
)

// clusterSettings are the options of a node of a cluster.
type clusterSettings struct {
	listen        string   // for the other nodes; empty: no cluster in this process
	routes        []string // addresses of other nodes
	secret        string
	cert, key, ca string // files, of the connections between nodes
	node          string
	data          string
	sync          string // "always", or how often
	nats          string // URL of an external NATS
}

// inUse reports whether the server is a node of a cluster.
func (c *clusterSettings) inUse() bool { return c.listen != "" || c.nats != "" }

// check reports what is missing. Connections between nodes carry all publications, and a program
// that can make one can publish and read everything: so they need a secret and TLS, unless only
// programs of this machine can reach them.
func (c *clusterSettings) check() error {
	if !c.inUse() {
		for option, given := range map[string]bool{"--cluster-route": len(c.routes) > 0, "--data": c.data != "",
			"--cluster-secret": c.secret != ""} {
			if given {
				return fmt.Errorf("%s needs --cluster-listen, or --nats: a server on its own has no use for it", option)
			}
		}
		return nil
	}
	if c.listen != "" && c.nats != "" {
		return errors.New("--nats and --cluster-listen exclude each other: an external NATS is a cluster of its own")
	}
	wrong := []error{c.checkSync()}
	if c.listen == "" {
		return errors.Join(append(wrong, c.checkExternal())...)
	}
	if c.data == "" {
		wrong = append(wrong, errors.New("--cluster-listen needs --data: the folder where this node stores histories"))
	}
	local := true
	for _, address := range append([]string{c.listen}, c.routes...) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--cluster-listen or --cluster-route %q: write HOST:PORT, as in "+
				"10.0.0.1:6222", address))
			continue
		}
		local = local && isLoopback(host)
	}
	if !local && c.secret == "" {
		wrong = append(wrong, errors.New("--cluster-listen can be reached from other machines: set --cluster-secret "+
			"(MYRIAD_CLUSTER_SECRET), the same on all nodes"))
	}
	if !local && c.cert == "" {
		wrong = append(wrong, errors.New("--cluster-listen can be reached from other machines: set --cluster-cert, "+
			"--cluster-key and --cluster-ca, so that nodes encrypt what they send each other"))
	}
	if (c.cert == "") != (c.key == "") || (c.cert == "") != (c.ca == "") {
		wrong = append(wrong, errors.New("--cluster-cert, --cluster-key and --cluster-ca belong together"))
	}
	return errors.Join(wrong...)
}

// checkExternal reports options that say nothing to an external NATS.
func (c *clusterSettings) checkExternal() error {
	switch {
	case c.secret != "" || c.cert != "" || c.key != "" || c.ca != "" || len(c.routes) > 0:
		return errors.New("--cluster-route, --cluster-secret, --cluster-cert, --cluster-key and --cluster-ca are for " +
			"--cluster-listen; --nats takes a user and a password in its URL")
	case c.sync != "" && c.sync != "always":
		return errors.New("--cluster-sync is for --cluster-listen: with --nats the sync_interval of those servers " +
			"holds")
	}
	return nil
}

func (c *clusterSettings) checkSync() error {
	_, err := c.syncInterval()
	return err
}

// syncInterval returns 0 for "always".
func (c *clusterSettings) syncInterval() (time.Duration, error) {
	if c.sync == "always" || c.sync == "" {
		return 0, nil
	}
	d, err := parseTime(c.sync)
	if err != nil {
		return 0, fmt.Errorf("--cluster-sync %q: write always, or a time with its unit, as in 10s", c.sync)
	}
	return d, nil
}

// tls returns the configuration of connections between nodes: both sides show a certificate of the
// same authority.
func (c *clusterSettings) tls() (*tls.Config, error) {
	if c.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("--cluster-cert and --cluster-key: %w", err)
	}
	text, err := os.ReadFile(c.ca)
	if err != nil {
		return nil, fmt.Errorf("--cluster-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--cluster-ca: %s has no certificate (PEM)", c.ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}, nil
}

// A clusterNode is this process's part of a cluster.
type clusterNode struct {
	server *natsbus.Server // nil with an external NATS
	bus    *natsbus.Bus
}

// joinCluster starts this node's NATS, if it has one, and its bus. If this process takes the place
// of another one, both start when that has stopped them.
func (r *running) joinCluster() (*clusterNode, error) {
	c := &r.cluster
	if c.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("--node is missing, and this machine has no name: %w", err)
		}
		c.node = name
	}
	interval, err := c.syncInterval()
	if err != nil {
		return nil, err
	}
	secure, err := c.tls()
	if err != nil {
		return nil, err
	}
	n := new(clusterNode)
	if c.listen != "" {
		n.server = natsbus.NewServer(natsbus.ServerConfig{Name: c.node, Dir: filepath.Join(c.data, "jetstream"),
			Listen: c.listen, Routes: c.routes, Secret: c.secret, TLS: secure, SyncInterval: interval, Logger: r.log})
		r.push.RemoveNode = n.server.Remove
	}
	config := natsbus.Config{Server: n.server, URL: c.nats, Node: c.node, Synced: c.listen != "" && interval == 0,
		Retentions: retentions(r.push.Namespaces), IDs: r.push.Limits.IdempotencyKeys, Logger: r.log}
	if c.data != "" {
		config.Dir = filepath.Join(c.data, "positions")
	}
	if r.predecessor != nil {
		n.bus, err = natsbus.Await(config)
	} else {
		err = n.open(config)
	}
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	r.push.Bus, r.push.Node = n.bus, c.node
	r.push.Timing.Spread = min(r.shutdownTimeout/3, maxSpread)
	return n, nil
}

// open starts NATS, if this process has one, and the bus.
func (n *clusterNode) open(config natsbus.Config) (err error) {
	if n.server != nil {
		if err := n.server.Start(); err != nil {
			return err
		}
	}
	n.bus, err = natsbus.Open(context.Background(), config)
	return err
}

// prepareMove has other nodes lead before this one moves to another process. It does nothing for a
// server on its own.
func (n *clusterNode) prepareMove(ctx context.Context) error {
	if n == nil {
		return nil
	}
	err := n.bus.PrepareMove(ctx)
	if err != nil {
		n.bus.CancelMove()
	}
	return err
}

// cancelMove undoes prepareMove when the node has not moved.
func (n *clusterNode) cancelMove() {
	if n != nil {
		n.bus.CancelMove()
	}
}

// maxSpread is the longest time over which clients of a node that stops are sent to other nodes.
const maxSpread = 5 * time.Second

// retentions returns those of the namespaces, each once.
func retentions(list []push.Namespace) (all []bus.Retention) {
	for _, ns := range list {
		keep := ns.Retention()
		if keep.Size > 0 && !slices.Contains(all, keep) {
			all = append(all, keep)
		}
	}
	return all
}

// stepDown lets other nodes lead before this one stops.
func (n *clusterNode) stepDown(ctx context.Context) {
	if n != nil && n.server != nil {
		n.bus.StepDown(ctx)
	}
}

// stop closes the bus and then the NATS server, if this process has one. It does nothing for a
// server on its own.
func (n *clusterNode) stop() (err error) {
	if n == nil {
		return nil
	}
	if n.bus != nil {
		err = n.bus.Close()
	}
	if n.server != nil {
		n.server.Shutdown()
	}
	return err
}

// warning says what an operator may not expect of the cluster, or "".
func (c *clusterSettings) warning() string {
	if c.listen == "" {
		return ""
	}
	known := []string{c.listen}
	for _, address := range c.routes {
		if !slices.Contains(known, address) {
			known = append(known, address)
		}
	}
	if len(known) != 2 {
		return ""
	}
	return "two nodes are not highly available: each history is stored by one of them only, and its channels take " +
		"no publications while that one is down; start a third one"
}
