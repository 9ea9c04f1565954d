package push_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A desk is a server whose clients are sessions without a network, and whose time is the test's.
type desk struct {
	*push.Server
	seam  *servertest.Seam
	t     *testing.T
	clock *pushtest.Clock
	bus   *deskBus
	log   *bytes.Buffer
}

// deskBus knows which channels have receivers.
type deskBus struct {
	*membus.Bus
	mu        sync.Mutex
	channels  []string
	receivers []bus.Receiver
}

// lose tells the receivers of a channel that they may have missed publications.
func (b *deskBus) lose(channel string) {
	for i, name := range b.channels {
		if name == channel {
			b.receivers[i].Lost(name)
		}
	}
}

func (b *deskBus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	b.mu.Lock()
	b.channels, b.receivers = append(b.channels, t.Name), append(b.receivers, r)
	b.mu.Unlock()
	return b.Bus.Subscribe(ctx, t, r)
}

func (b *deskBus) Unsubscribe(channel string, r bus.Receiver) {
	b.Bus.Unsubscribe(channel, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.channels, channel); i >= 0 {
		b.channels, b.receivers = slices.Delete(b.channels, i, i+1), slices.Delete(b.receivers, i, i+1)
	}
}

func newDesk(t *testing.T, c push.Config) *desk {
	t.Helper()
	d := &desk{t: t, clock: pushtest.NewClock(), log: new(bytes.Buffer)}
	d.bus = &deskBus{Bus: membus.New(membus.Config{Clock: d.clock})}
	if c.Doors == nil {
		c.Doors = []push.Door{lineDoor{}}
	}
	d.seam = new(servertest.Seam)
	c.Doors = append(c.Doors, d.seam)
	c.Clock, c.Bus, c.Logger = d.clock, d.bus, slog.New(slog.NewTextHandler(d.log, nil))
	var err error
	if d.Server, err = push.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if t.Failed() { // it may have left sessions
			cancel()
		}
		if err := errors.Join(d.Shutdown(ctx), d.bus.Close()); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return d
}

// A deskTransport records what its client gets. queued is how many bytes seem to wait for it.
type deskTransport struct {
	sent   []string
	queued int
	closed *push.Disconnect
}

func (c *deskTransport) Send(m *hub.Message) error {
	c.sent = append(c.sent, string(m.Payload))
	return nil
}

func (c *deskTransport) Queued() int { return c.queued }

func (c *deskTransport) Remote() string { return "192.0.2.1:1234" }

func (c *deskTransport) Close(why push.Disconnect) { c.closed = &why }

// start starts a session.
func (d *desk) start() (*hub.Session, *deskTransport) {
	c := new(deskTransport)
	return d.seam.Start(c, lineForm{}, nil), c
}

// A hook that panics, or ends its goroutine, is a failure that one client sees. The process goes
// on, also where the server calls the hook on a timer, and nothing of the client is left.
func TestHooksThatPanic(t *testing.T) {
	where := ""
	do := func(hook string) error {
		if where == hook {
			panic("oops")
		}
		return nil
	}
	in := func(c *desk) int64 { return c.clock.Now().Add(10 * time.Second).Unix() }
	var d *desk
	d = newDesk(t, push.Config{
		Namespaces: []push.Namespace{{SubscribeHook: true, PublishHook: true, SubRefreshHook: true}},
		RPC: func(context.Context, push.Caller, string, []byte) ([]byte, error) {
			return nil, do("rpc")
		},
		Message: func(context.Context, push.Caller, []byte) { do("message") },
		Hooks: push.Hooks{
			Connect: func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
				return push.ConnectAnswer{User: "ann", ExpireAt: in(d)}, do("connect")
			},
			Refresh: func(context.Context, push.Caller) (push.RefreshAnswer, error) {
				return push.RefreshAnswer{ExpireAt: in(d)}, do("refresh")
			},
			Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
				return push.SubscribeAnswer{ExpireAt: in(d)}, do("subscribe")
			},
			SubRefresh: func(context.Context, push.Caller, string) (push.SubRefreshAnswer, error) {
				return push.SubRefreshAnswer{ExpireAt: in(d)}, do("sub_refresh")
			},
			Publish: func(context.Context, push.Caller, push.PublishRequest) (push.PublishAnswer, error) {
				return push.PublishAnswer{}, do("publish")
			},
		},
	})
	welcome := func(hub.Welcome) {}
	for hook, run := range map[string]func(s *hub.Session) error{
		"connect": nil,
		"subscribe": func(s *hub.Session) error {
			return s.Subscribe("other", hub.SubscribeCommand{}, welcome)
		},
		"subscribe at once": func(s *hub.Session) error {
			_, err := s.AdmitAll([]string{"other", "another"}, hub.Grant{})
			return err
		},
		"publish": func(s *hub.Session) error {
			return s.Publish("news", push.Publication{Data: []byte("1")}, false)
		},
		"rpc": func(s *hub.Session) error {
			_, err := s.RPC("m", nil)
			return err
		},
		"message": func(s *hub.Session) error { return s.Message([]byte("1")) },
		"refresh": func(s *hub.Session) error {
			d.clock.Advance(15 * time.Second)
			return nil
		},
		"sub_refresh": func(s *hub.Session) error {
			d.clock.Advance(15 * time.Second)
			return nil
		},
	} {
		s, c := d.start()
		if hook == "connect" {
			where = hook
		}
		_, err := s.Connect(push.ConnectRequest{})
		if hook != "connect" {
			if err == nil {
				err = s.Subscribe("news", hub.SubscribeCommand{}, welcome)
			}
			if err != nil {
				t.Fatal(err)
			}
			where, _, _ = strings.Cut(hook, " ")
			d.log.Reset()
			err = run(s)
		}
		switch hook {
		case "refresh", "sub_refresh", "message":
			if err != nil || c.closed != nil {
				t.Errorf("%s: %v, closed with %v", hook, err, c.closed)
			}
		case "rpc":
			if err == nil || errors.As(err, new(push.Error)) || errors.As(err, new(push.Disconnect)) {
				t.Errorf("%s: %v", hook, err)
			}
		default:
			if err != push.ErrInternal {
				t.Errorf("%s: %v", hook, err)
			}
		}
		if hook != "rpc" && (!strings.Contains(d.log.String(), "panic: oops") ||
			!strings.Contains(d.log.String(), "hookguard_test.go")) {
			t.Errorf("%s: the log has %q", hook, d.log)
		}
		where = ""
		s.Ended()
		if len(d.bus.channels) > 0 {
			t.Errorf("%s: the bus has receivers of %q behind the end of the only client", hook, d.bus.channels)
			d.bus.channels, d.bus.receivers = nil, nil
		}
	}
	// nothing is left of the channel either, whose subscription has failed
	s, _ := d.start()
	if _, err := s.Connect(push.ConnectRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other", "another"} {
		if err := s.Subscribe(name, hub.SubscribeCommand{}, welcome); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Ended()
	if len(d.bus.channels) > 0 {
		t.Errorf("the bus still has receivers of %q", d.bus.channels)
	}
}

// A hook that ends its goroutine, as a failing test does, leaves no reservation.
func TestHookEndsItsGoroutine(t *testing.T) {
	exits := true
	d := newDesk(t, push.Config{Namespaces: []push.Namespace{{SubscribeHook: true}}, Hooks: push.Hooks{
		Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
			if exits {
				runtime.Goexit()
			}
			return push.SubscribeAnswer{}, nil
		}}})
	s, _ := d.start()
	if _, err := s.Connect(push.ConnectRequest{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.Subscribe("a", hub.SubscribeCommand{}, func(hub.Welcome) {}) })
	wg.Go(func() { s.AdmitAll([]string{"b", "c"}, hub.Grant{}) })
	wg.Wait()
	exits = false
	for _, name := range []string{"a", "b", "c"} {
		if err := s.Subscribe(name, hub.SubscribeCommand{}, func(hub.Welcome) {}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Ended()
	if len(d.bus.channels) > 0 {
		t.Errorf("behind the end of the only client the bus has receivers of %q", d.bus.channels)
	}
}
