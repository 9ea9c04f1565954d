package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/server/push/internal/fossil"
)

// A decoder does what a client does that gets deltas in JSON.
type decoder struct {
	last   []byte
	deltas int
}

// take returns the data of a publication.
func (d *decoder) take(t *testing.T, message string) string {
	t.Helper()
	for line := range strings.Lines(message) {
		var m struct {
			Push struct {
				Pub struct {
					Data  string
					Delta bool
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		pub := m.Push.Pub
		if !pub.Delta {
			d.last = []byte(pub.Data)
			continue
		}
		d.deltas++
		var err error
		if d.last, err = fossil.Apply(d.last, []byte(pub.Data), 1<<20); err != nil {
			t.Fatalf("%q: %v", pub.Data, err)
		}
	}
	return string(d.last)
}

// Members that ask for deltas get them from their second publication on, each to the one before.
// Others get the data.
func TestDeltas(t *testing.T) {
	n := newTestNode(t)
	plain := n.connected("news")
	var clients []*fakeTransport
	var decoders []*decoder
	join := func() {
		c := n.connected()
		c.asks(t, "asks for deltas", `{"id":2,"subscribe":{"channel":"news","delta":"fossil"}}`,
			`{"id":2,"subscribe":{"delta":true}}`)
		clients, decoders = append(clients, c), append(decoders, new(decoder))
	}
	const rounds = 6
	for i := range rounds {
		join()
		data := fmt.Sprintf(`{"n":%d,"text":"%sé"}`, i, strings.Repeat("a long text ", 20))
		n.publish(context.Background(), "news", bus.Publication{Data: []byte(data)})
		plain.Want(t, "data", `{"push":{"channel":"news","pub":{"data":`+data+`}}}`)
		for j, c := range clients {
			got := c.Take()
			if len(got) != 1 || decoders[j].take(t, got[0]) != data {
				t.Fatalf("client %d, publication %d: received %q", j, i, got)
			}
		}
	}
	for j, d := range decoders {
		if d.deltas != rounds-1-j {
			t.Errorf("client %d received %d deltas", j, d.deltas)
		}
	}
	for _, c := range clients {
		c.s.Unsubscribe("news")
	}
	ch := plain.s.member("news").ch
	if ch.specials.deltas != 0 || ch.specials.base != nil || len(ch.specials.list) != 0 {
		t.Errorf("after the last one left: %d, %v, %v", ch.specials.deltas, ch.specials.base,
			ch.specials.list)
	}
}

// Several publications in one message are deltas to each other.
func TestDeltasOfOneDelivery(t *testing.T) {
	n := newTestNode(t)
	c := n.connected()
	c.frame([]byte(`{"id":2,"subscribe":{"channel":"news","delta":"fossil"}}`))
	c.Take()
	text := strings.Repeat("the same ", 30)
	list := []bus.Publication{{Data: []byte(`"` + text + `1"`)}, {Data: []byte(`"` + text + `2"`)}, {Data: []byte(`3`)}}
	c.s.member("news").ch.Receive("news", list)
	var d decoder
	got := c.Take()
	if len(got) != 1 || d.take(t, got[0]) != "3" || d.deltas != 1 {
		t.Errorf("received %q", got)
	}
}

// What a recovering client gets in the reply is whole, but in the form of those that get deltas. In
// Protobuf data are bytes in any case.
func TestRecoveryWithDeltas(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{HistorySize: 10, Recovery: true}))
	at, _ := n.publish(context.Background(), "news", bus.Publication{Data: []byte(`{"a":1}`)})
	c := n.connected()
	c.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"news","delta":"fossil","recover":true,"epoch":%q}}`,
		at.Epoch))
	if got := c.Take(); len(got) != 1 ||
		!strings.Contains(got[0], `"publications":[{"data":"{\"a\":1}","offset":1}]`) ||
		!strings.Contains(got[0], `"delta":true`) {
		t.Errorf("received %q", got)
	}
	f := protobufForm.(DeltaForm)
	base := bus.Publication{Data: []byte(strings.Repeat("\xff\x00 base ", 20)), Kind: bus.Binary}
	next := bus.Publication{Data: append([]byte("\xfe"), base.Data...), Kind: bus.Binary}
	payload := f.Deltas("news", []bus.Publication{next}, &base)
	delta := fossil.Append(nil, base.Data, next.Data)
	want := centrifuge.Protobuf.AppendReply(nil, &centrifuge.Reply{Push: &centrifuge.Push{Channel: "news",
		Publication: &centrifuge.Publication{Data: delta, Delta: true}}})
	if string(payload) != string(want) {
		t.Errorf("got %q, want %q", payload, want)
	}
}

// Deltas are not granted where publications may be left out.
func TestNoDeltas(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{Slow: policy.SlowLatestOnly}))
	c := n.connected()
	c.asks(t, "latest-only", `{"id":2,"subscribe":{"channel":"news","delta":"fossil"}}`, `{"id":2,"subscribe":{}}`)
	c.asks(t, "an unknown delta", `{"id":3,"subscribe":{"channel":"a","delta":"xdelta"}}`,
		`{"id":3,"error":{"code":107,"message":"bad request: the delta \"xdelta\" is not served"}}`)
	c.asks(t, "a flag of tomorrow", `{"id":3,"subscribe":{"channel":"a","flag":7}}`,
		`{"id":3,"error":{"code":107,"message":"bad request: the flag 4 is not served"}}`)
	c.asks(t, "flags of today", `{"id":3,"subscribe":{"channel":"a","flag":3}}`, `{"id":3,"subscribe":{}}`)
	d := n.dial()
	d.frame([]byte(`{"id":1,"connect":{"subs":{"a":{"delta":"xdelta"}}}}`)) // in case the server subscribes it
	if got := d.Take(); len(got) != 1 || !strings.Contains(got[0], `"client"`) {
		t.Errorf("connecting: %q", got)
	}
}

// A filter selects publications by their tags, also those of a recovery.
func TestFilter(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{HistorySize: 10, Recovery: true}))
	publish := func(data, team string) bus.Position {
		at, err := n.publish(context.Background(), "news", bus.Publication{Data: []byte(data),
			Tags: map[string]string{"team": team}})
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	at := publish("1", "a")
	publish("2", "b")
	c := n.connected()
	c.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"news","recover":true,"epoch":%q,"tf":{"key":"team",`+
		`"cmp":"eq","val":"b"}}}`, at.Epoch))
	if got := c.Take(); len(got) != 1 || !strings.Contains(got[0],
		`"publications":[{"data":2,"offset":2,"tags":{"team":"b"}}],"recovered":true,"offset":2`) {
		t.Errorf("received %q", got)
	}
	publish("3", "a")
	publish("4", "b")
	c.Want(t, "filtered", `{"push":{"channel":"news","pub":{"data":4,"offset":4,"tags":{"team":"b"}}}}`)
	b := bus.Publication{Data: []byte("5"), Tags: map[string]string{"team": "b"}}
	c.s.member("news").ch.Receive("news", []bus.Publication{{Data: []byte("6")}, b})
	c.Want(t, "one of two", `{"push":{"channel":"news","pub":{"data":5,"tags":{"team":"b"}}}}`)
}

// A client that asks for everything that it has missed, or for nothing, gets error 112.
func TestRejectUnrecovered(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{HistorySize: 1, Recovery: true}))
	at, _ := n.publish(context.Background(), "news", bus.Publication{Data: []byte("1")})
	n.publish(context.Background(), "news", bus.Publication{Data: []byte("2")})
	n.publish(context.Background(), "news", bus.Publication{Data: []byte("3")})
	ask := fmt.Sprintf(`{"id":2,"subscribe":{"channel":"news","recover":true,"offset":1,"epoch":%q,"flag":`, at.Epoch)
	c := n.connected()
	c.asks(t, "with the flag", ask+`2}}`, `{"id":2,"error":{"code":112,"message":"unrecoverable position"}}`)
	c.frame([]byte(ask + `1}}`))
	if got := c.Take(); len(got) != 1 || !strings.Contains(got[0], `"was_recovering":true`) {
		t.Errorf("without the flag: %q", got)
	}
}
