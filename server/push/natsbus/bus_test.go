package natsbus

import (
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/bustest"
)

// quiet drops the log, unless a test is verbose.
func quiet(t testing.TB) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	fmt.Printf("%s", p)
	return len(p), nil
}

// alone starts a server without others.
func alone(t testing.TB) *Server {
	t.Helper()
	s, err := StartServer(ServerConfig{Name: "n1", Dir: t.TempDir(), SyncInterval: time.Minute, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

var prefixes atomic.Int64

// opened opens a bus with a prefix of its own, unless c has one.
func opened(t testing.TB, c Config) *Bus {
	t.Helper()
	if c.Prefix == "" {
		c.Prefix = fmt.Sprintf("t%d", prefixes.Add(1))
	}
	if c.Parts == 0 {
		c.Parts = 1
	}
	if c.LogBytes == 0 {
		c.LogBytes = 16 << 20
	}
	c.Logger = quiet(t)
	b, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestBusAlone(t *testing.T) {
	t.Parallel()
	s := alone(t)
	bustest.Run(t, func() bus.Bus { return opened(t, Config{Server: s}) })
}

// cluster starts n servers that know each other.
func cluster(t testing.TB, n int) (list []*Server) {
	t.Helper()
	addresses := freeport.For(t, n)
	for i, address := range addresses {
		s, err := StartServer(ServerConfig{Name: fmt.Sprintf("n%d", i+1), Dir: t.TempDir(), Listen: address,
			Routes: addresses, Secret: "secret", SyncInterval: time.Minute, Logger: quiet(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
		list = append(list, s)
	}
	return list
}

// A trio is the buses of three nodes, of which a test may use one as if it were alone.
func trio(t testing.TB, servers []*Server) (list []*Bus) {
	t.Helper()
	prefix := fmt.Sprintf("c%d", prefixes.Add(1))
	for _, s := range servers {
		list = append(list, opened(t, Config{Server: s, Prefix: prefix, Synced: true}))
	}
	return list
}

func TestBusOfThreeNodes(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 3)
	bustest.RunNodes(t, func(t *testing.T) (list []bus.Bus) {
		for _, b := range trio(t, servers) {
			list = append(list, b)
		}
		return list
	})
}
