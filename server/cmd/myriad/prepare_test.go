//go:build unix

package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/natsbus"
)

// A new process learns why a node of a cluster does not move now.
func TestNodeSaysWhyItDoesNotMove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := natsbus.StartServer(natsbus.ServerConfig{Name: "one", Dir: filepath.Join(dir, "jetstream"),
		SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	n := &clusterNode{server: server}
	t.Cleanup(func() { n.stop() })
	n.bus, err = natsbus.Open(t.Context(), natsbus.Config{Server: server, LogBytes: 16 << 20,
		Retentions: []bus.Retention{{Size: 10, Age: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that the logs are not asked
	old, next := unixPair(t)
	u := newUpgrader(ctx, ctx, &running{clusterNode: n}, nil, nil)
	failed := u.give(old, nil, 0)
	if failed == nil {
		t.Fatal("it has moved")
	}
	a, _, err := readAnswer(next)
	if err != nil || a.Go || !strings.Contains(failed.Error(), a.Refused) || a.Refused == "" {
		t.Errorf("the new process learns %+v, %v; the old one says: %v", a, err, failed)
	}
}

// unixPair returns the two ends of a connection.
func unixPair(t *testing.T) (one, other *net.UnixConn) {
	t.Helper()
	address := &net.UnixAddr{Name: filepath.Join(unixDir(t), "pair"), Net: "unix"}
	ln, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if one, err = net.DialUnix("unix", nil, address); err == nil {
		other, err = ln.AcceptUnix()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		one.Close()
		other.Close()
	})
	return one, other
}
