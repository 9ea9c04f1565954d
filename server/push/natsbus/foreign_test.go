package natsbus

import (
	"errors"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// What JetStream, or another node, leaves out is never taken for a yes.
func TestAnswersThatSayNothing(t *testing.T) {
	for _, text := range []string{`{}`, `null`, `{"type":""}`, `{"config":{"num_replicas":3}}`, `[]`, ``} {
		if err := decode(&nats.Msg{Data: []byte(text)}, new(streamInfo)); err == nil {
			t.Errorf("the API has answered %q, which is an answer", text)
		}
	}
	for _, text := range []string{`{}`, `null`, `{"stream":"a"}`, `{"seq":5}`, `{"stream":"a","seq":0}`,
		`{"duplicate":true}`} {
		if _, _, err := acknowledged(&nats.Msg{Data: []byte(text)}); !errors.Is(err, errNotUnderstood) {
			t.Errorf("a message was acknowledged by %q: %v", text, err)
		}
	}
	seq, again, err := acknowledged(&nats.Msg{Data: []byte(`{"stream":"a","seq":5,"duplicate":true,"domain":"x"}`)})
	if err != nil || seq != 5 || !again {
		t.Errorf("an acknowledgement: %d %v %v", seq, again, err)
	}
	for name, p := range map[string][]byte{"an unknown kind": {3, 0, 0, 0}, "no data and no tags": {0, 0, 0}} {
		r := reader{rest: p}
		if r.publication(); !r.wrong {
			t.Errorf("a publication with %s was accepted", name)
		}
	}
	for _, p := range [][]byte{{2, 0, 0, 0, 0}, {}, {1}} {
		r := reader{rest: p}
		if r.notice(); !r.wrong {
			t.Errorf("the notice % x was accepted", p)
		}
	}
	n := newNodes(nil)
	n.seen = nil // a node without a name would be written there
	n.receive(&nats.Msg{Data: []byte{byte(formBeat), 0, 0}})
}

// A message in a log that this node does not understand, as one of a later version, makes
// subscribers recover, and the history says that something is missing.
func TestMessagesOfALaterVersion(t *testing.T) {
	t.Parallel()
	b := opened(t, Config{Server: alone(t)})
	c := new(collector)
	if err := b.Subscribe(within(t), news, c); err != nil {
		t.Fatal(err)
	}
	first := publish(t, b, "1")
	f, err := b.logs.live(within(t), news)
	if err != nil {
		t.Fatal(err)
	}
	token, _ := tokenOf(news.Name)
	lost := 0
	for _, data := range [][]byte{{'z', 1, 2}, {byte(formPublication), 9, 0, 0, 0, '1'}, {}} {
		if err := b.kept.Publish(f.stored+token, data); err != nil {
			t.Fatal(err)
		}
		lost++
	}
	last := publish(t, b, "2")
	c.mu.Lock()
	list, told := len(c.list), c.lost
	c.mu.Unlock()
	if list != 2 || told != lost {
		t.Errorf("%d publications and %d losses, want 2 and %d", list, told, lost)
	}
	if h := after(t, b, first); h.Complete || len(h.Publications) != 1 || string(h.Publications[0].Data) != "2" {
		t.Errorf("the history after the first: %+v", h)
	}
	publish(t, b, "3")
	if h := after(t, b, last); !h.Complete || len(h.Publications) != 1 {
		t.Errorf("the history behind what was not understood: %+v", h)
	}
	if err := b.Forget(within(t), news); err != nil {
		t.Fatal(err)
	}
	if h, err := b.History(within(t), news, bus.Query{Limit: -1}); err != nil || len(h.Publications) > 0 {
		t.Errorf("after Forget: %+v, %v", h, err)
	}
}
