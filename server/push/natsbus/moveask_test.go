package natsbus

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// pair opens two nodes that use an external NATS, and know each other.
func pair(t *testing.T) (one, two *Bus) {
	t.Helper()
	_, url := external(t, t.TempDir())
	one = opened(t, Config{URL: url, Node: "one", Parts: 1, Synced: true, Retentions: []bus.Retention{news.Keep}})
	two = opened(t, Config{URL: url, Node: "two", Parts: 1, Synced: true, Prefix: one.prefix,
		Retentions: []bus.Retention{news.Keep}})
	for _, b := range []*Bus{one, two} {
		eventually(t, "it knows the other one, and follows the log", func() bool {
			_, err := b.logs.places()
			return err == nil && len(b.nodes.alive()) == 1
		})
	}
	return one, two
}

// A question is answered by the only other node, too, which is silent when it is asked: NATS says
// that no node listens.
func TestQuestionWhileTheOnlyOtherNodeMoves(t *testing.T) {
	t.Parallel()
	asking, moves := pair(t)
	if err := moves.Subscribe(within(t), news, newWitness()); err != nil {
		t.Fatal(err)
	}
	if err := moves.Freeze(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "NATS knows that it listens no more", func() bool {
		_, err := asking.nc.Request(asking.prefix+".q.any", nil, time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	type answer struct {
		bus.Presence
		err error
	}
	answers := make(chan answer)
	go func() {
		p, err := asking.Present(within(t), news.Name, 10)
		answers <- answer{p, err}
	}()
	eventually(t, "NATS says that no node listens", func() bool {
		asking.inbox.mu.Lock()
		defer asking.inbox.mu.Unlock()
		for _, g := range asking.inbox.waiting {
			for _, m := range g.msgs {
				if m.Header.Get("Status") == "503" {
					return true
				}
			}
		}
		return false
	})
	moves.Thaw()
	if a := <-answers; a.err != nil || a.Count != 1 || len(a.Missing) > 0 {
		t.Errorf("%+v, %v", a.Presence, a.err)
	}
}

// A publication with a version that is sent again, because the log's answer is late, is not
// outdated by itself.
func TestVersionThatIsSentAgain(t *testing.T) {
	t.Parallel()
	b, _ := pair(t)
	p := bus.Publication{ID: "id", Data: []byte(`1`), Version: &bus.Version{Number: 1}}
	token, err := tokenOf(news.Name)
	if err != nil {
		t.Fatal(err)
	}
	data := appendPublication(nil, &p)
	first, err := b.publisher.publishKept(within(t), news, token, &p, data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.publisher.publishKept(within(t), news, token, &p, data)
	if err != nil || again != first {
		t.Errorf("sent again: %v, %v; at first %v", again, err, first)
	}
	p.ID = "other"
	at, err := b.publisher.publishKept(within(t), news, token, &p, data)
	if !errors.Is(err, bus.ErrOutdated) || at != first {
		t.Errorf("another one with that version: %v, %v", at, err)
	}
}

// Thaw may be called twice: the session begins once, and nothing comes twice.
func TestThawTwice(t *testing.T) {
	t.Parallel()
	one, two := pair(t)
	passing := bus.Topic{Name: "passing"}
	w := newWitness()
	if err := one.Subscribe(within(t), passing, w); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := one.Freeze(within(t)); err != nil {
			t.Fatal(err)
		}
		one.Thaw()
		one.Thaw()
		if err := one.gate.enter(within(t)); err != nil {
			t.Fatal(err)
		}
		one.gate.leave()
		one.reopening.Wait()
		for _, f := range one.logs.all() {
			if err := f.progress.waitFor(within(t), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := one.nc.NumSubscriptions(); n != two.nc.NumSubscriptions() {
		t.Errorf("%d subscriptions; the other node has %d", n, two.nc.NumSubscriptions())
	}
}

// remade replaces the log of brief by another one with so many publications; 0: by none.
func remade(t *testing.T, frozen *Bus, publications int) {
	t.Helper()
	nc, err := nats.Connect(frozen.config.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	name := idOf(brief, 1).stream(frozen.config.Prefix)
	m, err := nc.Request("$JS.API.STREAM.DELETE."+name, nil, time.Minute)
	if err != nil || !bytes.Contains(m.Data, []byte(`"success":true`)) {
		t.Fatalf("%v, %v", m, err)
	}
	if publications == 0 {
		return
	}
	other := opened(t, Config{URL: frozen.config.URL, Node: "other", Prefix: frozen.config.Prefix, Synced: true,
		Retentions: []bus.Retention{brief.Keep}})
	for i := range publications {
		if _, err := other.Publish(within(t), brief, bus.Publication{Data: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// brief has a history of one publication.
var brief = bus.Topic{Name: "brief", Keep: bus.Retention{Size: 1, Age: time.Hour}}

// A log begins a new epoch for its receivers if it is gone when a node is back. So does another log
// in its place, which has dropped the message that the node has had last.
func TestLogIsReplacedWhileNodeMoves(t *testing.T) {
	t.Parallel()
	for name, publications := range map[string]int{"gone": 0, "another one": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := external(t, t.TempDir())
			b := opened(t, Config{URL: url, Node: "one", Synced: true, Retentions: []bus.Retention{brief.Keep}})
			r := new(collector)
			if err := b.Subscribe(within(t), brief, r); err != nil {
				t.Fatal(err)
			}
			first, err := b.Publish(within(t), brief, bus.Publication{Data: []byte(`1`)})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Freeze(within(t)); err != nil {
				t.Fatal(err)
			}
			remade(t, b, publications)
			b.Thaw()
			eventually(t, "the receivers are told", func() bool {
				_, lost := r.state()
				return lost > 0
			})
			at, err := b.Publish(within(t), brief, bus.Publication{Data: []byte(`2`)})
			if err != nil || at.Epoch == first.Epoch {
				t.Errorf("before %v, now %v, %v", first, at, err)
			}
		})
	}
}
