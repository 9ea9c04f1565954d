package natsbus

import (
	"errors"
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
	if at, err := b.publisher.publishKept(within(t), news, token, &p, data); !errors.Is(err, bus.ErrOutdated) || at != first {
		t.Errorf("another one with that version: %v, %v", at, err)
	}
}
