package natsbus

import (
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/bustest"
	"github.com/nats-io/nats-server/v2/server"
)

// external starts a NATS that knows nothing of Myriad, and returns its URL.
func external(t *testing.T, dir string) (*server.Server, string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir,
		NoSigs: true, NoLog: true, Username: "a", Password: "b"})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(hangs) {
		t.Fatal("NATS is not ready")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s, "nats://a:b@" + s.Addr().String()
}

// Two nodes use an external NATS.
func TestBusOverExternal(t *testing.T) {
	t.Parallel()
	_, url := external(t, t.TempDir())
	bustest.RunNodes(t, func(t *testing.T) (list []bus.Bus) {
		one := opened(t, Config{URL: url, Node: "one", Synced: true})
		return append(list, one, opened(t, Config{URL: url, Node: "two", Prefix: one.prefix, Synced: true}))
	})
}

// restartAt starts another server at that address with the same folder.
func restartAt(t *testing.T, dir, address string) {
	t.Helper()
	host, port, err := splitAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: port, JetStream: true, StoreDir: dir,
		NoSigs: true, NoLog: true, Username: "a", Password: "b"})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
}
