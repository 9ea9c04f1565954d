package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
)

// The tests in this file do what an attacker with a connection may try. Each names what bounds it.
// Others are beside what they attack:
//
//   - algorithms, kid and floods of key sets: token/keys_test.go;
//   - pages of other sites and line breaks: attack_pages_test.go; DNS rebinding:
//     cmd/myriad/development_test.go;
//   - selectors that explode: internal/mercure, and TestAttackMercure;
//   - floods of commands: rates_test.go and rates_commands_test.go;
//   - markup in every string that the console shows: clients/console_hostile_test.go.

// heapGrowth returns how many bytes more are in use after f than before it.
func heapGrowth(f func()) int64 {
	measure := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := measure()
	f()
	return measure() - before
}

// Deep JSON ends the connection: encoding/json bounds the depth, Limits.Frame the bytes.
func TestAttackDeepJSON(t *testing.T) {
	n := newTestNode(t)
	for _, command := range []string{
		`{"id":2,"publish":{"channel":"news","data":` + strings.Repeat("[", 30_000),
		`{"id":2,"publish":{"channel":"news","data":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) +
			`}}`,
		`{"id":2,"rpc":{"data":` + strings.Repeat(`{"a":`, 12_000) + `}}`,
		strings.Repeat(`{"id":`, 10_000),
	} {
		c := n.connected()
		c.frame([]byte(command))
		c.WantClosed(t, command[:20], answer.DisconnectBadRequest)
	}
}

// A filter that is deep or wide is refused, in both codecs: maxFilterDepth and its neighbours.
func TestAttackFilters(t *testing.T) {
	leaf := `{"key":"a","cmp":"ex"}`
	deep := strings.Repeat(`{"op":"not","nodes":[`, 3000) + leaf + strings.Repeat(`]}`, 3000)
	wide := `{"op":"and","nodes":[` + leaf + strings.Repeat(","+leaf, 2000) + `]}`
	values := `{"key":"a","cmp":"in","vals":["x"` + strings.Repeat(`,"x"`, 5000) + `]}`
	n := newTestNode(t)
	c := n.connected()
	for _, filter := range []string{deep, wide, values} {
		c.asks(t, filter[:20], `{"id":2,"subscribe":{"channel":"news","tf":`+filter+`}}`,
			`{"id":2,"error":{"code":107,"message":"bad request"}}`)
	}
	var nested []byte
	for range 2_000 {
		nested = append(binary.AppendUvarint([]byte{6<<3 | 2}, uint64(len(nested))), nested...)
	}
	for _, number := range []byte{13<<3 | 2, 5<<3 | 2} { // the filter, and the subscribe request
		nested = append(binary.AppendUvarint([]byte{number}, uint64(len(nested))), nested...)
	}
	p := protobufClient(n)
	p.frame(append(binary.AppendUvarint(nil, uint64(len(nested))), nested...))
	p.WantClosed(t, "a deep filter in Protobuf", answer.DisconnectBadRequest)
}

// protobufClient opens a connection in Protobuf and connects it.
func protobufClient(n *testNode) *fakeTransport {
	f := new(fakeTransport)
	f.s = n.Start(f, protobufForm, nil)
	f.frame([]byte("\x04\x08\x01\x22\x00"))
	f.Take()
	return f
}

// Ten thousand commands in a message end the connection after Limits.Commands, in both codecs.
func TestAttackManyCommands(t *testing.T) {
	n := newTestNode(t)
	c := n.connected()
	c.frame([]byte(strings.Repeat("{\"id\":2,\"ping\":{}}\n", 10_000)))
	c.WantClosed(t, "JSON", answer.DisconnectBadRequest)
	if got := c.Take(); len(got) != 1 || strings.Count(got[0], "\n") >= n.limits.Commands {
		t.Errorf("%d messages", len(got))
	}
	p := protobufClient(n)
	p.frame(bytes.Repeat([]byte("\x04\x08\x02\x5a\x00"), 10_000))
	p.WantClosed(t, "Protobuf", answer.DisconnectBadRequest)
	// pongs, which have no answer, are bounded in the same way: only one is due
	p = protobufClient(n)
	p.frame(make([]byte, 10_000))
	p.WantClosed(t, "pongs", answer.DisconnectBadRequest)
}

// Lengths that lie do not allocate: a Protobuf length is compared with the frame first.
func TestAttackLengths(t *testing.T) {
	n := newTestNode(t)
	grown := heapGrowth(func() {
		for _, frame := range []string{
			"\xff\xff\xff\xff\x7f",
			"\x0a\x22\xff\xff\xff\xff\x7f",
			"\x0c\x22\x0a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		} {
			p := protobufClient(n)
			p.frame([]byte(frame))
			p.WantClosed(t, "a length that lies", answer.DisconnectBadRequest)
			p.hangUp()
		}
	})
	if grown > 1<<20 {
		t.Errorf("%d bytes are still in use", grown)
	}
}

// A flood of subscriptions ends at Limits.Channels; unsubscribing frees all of it.
func TestAttackSubscribeFlood(t *testing.T) {
	n := newTestNode(t)
	c := n.connected()
	refused := 0
	for i := range 2000 {
		c.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"c%d","delta":"fossil","tf":{"key":"a","cmp":"ex"}}}`,
			i))
		if strings.Contains(c.Take()[0], `"code":106`) {
			refused++
		}
	}
	if want := 2000 - n.limits.Channels; refused != want {
		t.Errorf("%d subscriptions were refused, want %d", refused, want)
	}
	for range 3 {
		for i := range n.limits.Channels {
			c.frame(fmt.Appendf(nil, `{"id":3,"unsubscribe":{"channel":"c%d"}}`, i))
			c.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"c%d"}}`, i))
		}
	}
	c.Take()
	if got := int(n.figures.occupied.Load()); got != n.limits.Channels {
		t.Errorf("%d channels, want %d", got, n.limits.Channels)
	}
}

// Presence of more clients than Limits.Present is error 106, also for those that have not
// subscribed.
func TestAttackPresenceFlood(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{Presence: true}), func(c *Config) { c.Limits.Present = 10 })
	for range 11 {
		n.connected("news")
	}
	c := n.connected()
	c.asks(t, "presence", `{"id":2,"presence":{"channel":"news"}}`,
		`{"id":2,"error":{"code":106,"message":"limit exceeded"}}`)
	c.asks(t, "numbers", `{"id":2,"presence_stats":{"channel":"news"}}`,
		`{"id":2,"presence_stats":{"num_clients":11,"num_users":1}}`)
}

// Publications that repeat themselves, or are nothing but changes, do not make deltas long: a delta
// that is longer than the data is not sent.
func TestAttackDeltaBombs(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Limits.Queue = 1 << 30 })
	c := n.connected()
	c.frame([]byte(`{"id":2,"subscribe":{"channel":"news","delta":"fossil"}}`))
	c.Take()
	size := n.limits.Publication - 2
	texts := []string{strings.Repeat("0", size), strings.Repeat("01", size/2),
		strings.Repeat("0123456789abcdef", size/16), strings.Repeat("é", size/2), strings.Repeat("0", size-1) + "1"}
	for i := range 10 {
		data, _ := json.Marshal(texts[i%len(texts)])
		if _, err := n.publish(context.Background(), "news", bus.Publication{Data: data}); err != nil {
			t.Fatal(err)
		}
		if got := c.Take(); len(got) != 1 || len(got[0]) > 2*size {
			t.Errorf("publication %d: %d messages", i, len(got))
		}
	}
}
