package natsbus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

var news = bus.Topic{Name: "news", Keep: bus.Retention{Size: 10000, Age: time.Hour}}

// hangs is how long a test waits for what comes at once on an idle machine.
const hangs = time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	t.Cleanup(cancel)
	return ctx
}

func publish(t testing.TB, b *Bus, data string) bus.Position {
	t.Helper()
	at, err := b.Publish(within(t), news, bus.Publication{Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func after(t testing.TB, b *Bus, since bus.Position) bus.History {
	t.Helper()
	h, err := b.History(within(t), news, bus.Query{Since: &since, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A collector keeps what it receives.
type collector struct {
	mu   sync.Mutex
	list []bus.Publication
	lost int
}

func (c *collector) Receive(_ string, list []bus.Publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, list...)
}

func (c *collector) Lost(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost++
}

func (c *collector) Notice(string, bus.Notice)                              {}
func (c *collector) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo { return to }

func (c *collector) state() (n, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list), c.lost
}

func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", what)
		}
	}
}

func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := StartServer(ServerConfig{Name: "n1", Dir: dir, SyncInterval: time.Minute, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// A log that is whole after a restart of all nodes keeps its epoch: clients recover.
func TestEpochOutlivesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir)
	c := Config{Server: s, Dir: filepath.Join(dir, "seals"), Prefix: "epoch"}
	b := opened(t, c)
	first := publish(t, b, "1")
	last := publish(t, b, "2")
	b.Close()
	s.Shutdown()
	c.Server = start(t, dir)
	b = opened(t, c)
	if h := after(t, b, first); !h.Complete || len(h.Publications) != 1 {
		t.Errorf("after the restart: %+v", h)
	}
	if at := publish(t, b, "3"); at.Epoch != last.Epoch || at.Offset <= last.Offset {
		t.Errorf("%v is followed by %v", last, at)
	}
}

// A log that has lost its end while no node followed it begins a new epoch: no client is told that
// it has recovered.
func TestEpochAfterCutFiles(t *testing.T) {
	t.Parallel()
	for _, noSeal := range []bool{false, true} {
		t.Run(fmt.Sprintf("without a seal %v", noSeal), func(t *testing.T) {
			dir := t.TempDir()
			s := start(t, dir)
			c := Config{Server: s, Dir: filepath.Join(dir, "seals"), Prefix: "epoch", Synced: !noSeal}
			b := opened(t, c)
			var last bus.Position
			for i := range 500 {
				last = publish(t, b, strconv.Itoa(i))
			}
			b.Close()
			s.Shutdown()
			if cut := cutFiles(t, dir); cut == 0 {
				t.Fatal("no file was cut")
			}
			if noSeal {
				os.RemoveAll(c.Dir)
			}
			c.Server = start(t, dir)
			b = opened(t, c)
			h := after(t, b, last)
			if h.Complete || h.Top.Epoch == last.Epoch {
				t.Errorf("after the loss: %+v, before it the epoch was %s", h, last.Epoch)
			}
			publish(t, b, "new")
		})
	}
}

// cutFiles cuts the second half off each file of messages, and returns how many there were.
func cutFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(name, "index.db") {
			return os.Remove(name) // as after a kill
		}
		if !strings.HasSuffix(name, ".blk") {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		n++
		return os.Truncate(name, info.Size()/2)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A node that lives while the log loses its end notices it, and tells its receivers.
func TestEpochWhileFollowing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, url := external(t, dir)
	b := opened(t, Config{URL: url, Node: "one", Synced: true})
	r := new(collector)
	if err := b.Subscribe(within(t), news, r); err != nil {
		t.Fatal(err)
	}
	var last bus.Position
	for i := range 500 {
		last = publish(t, b, strconv.Itoa(i))
	}
	port := s.Addr().String()
	s.Shutdown()
	s.WaitForShutdown()
	cutFiles(t, dir)
	restartAt(t, dir, port)
	eventually(t, "the receivers are told", func() bool {
		_, lost := r.state()
		return lost > 0
	})
	if h := after(t, b, last); h.Complete || h.Top.Epoch == last.Epoch {
		t.Errorf("after the loss: complete %v up to %v, before it %v", h.Complete, h.Top, last)
	}
	if at := publish(t, b, "new"); at.Epoch == last.Epoch {
		t.Errorf("%v is of the epoch before the loss", at)
	}
}
