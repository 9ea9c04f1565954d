package hub

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"

	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// sinkTransport accepts and discards every message.
type sinkTransport struct{ fakeTransport }

func (f *sinkTransport) Send(*Message) error { return nil }
func (f *sinkTransport) Queued() int         { return 0 }

const connectAndSubscribe = "{\"id\":1,\"connect\":{\"name\":\"js\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"

func benchNode(b *testing.B) *Hub {
	clock := pushtest.NewClock()
	none, err := policy.NewNamespaces(nil, false)
	if err != nil {
		b.Fatal(err)
	}
	rules := &policy.Table{LongestName: 255}
	rules.Set(none)
	n, err := New(Config{Clock: clock, Random: rand.Reader, Bus: membus.New(membus.Config{Clock: clock}),
		Rules: rules, Forms: FormsOf(testDoors()), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	n.StartClock(nil)
	b.Cleanup(func() { n.close() })
	return n
}

func connectSink(h *Hub) *sinkTransport {
	f := new(sinkTransport)
	f.s = h.Start(f, jsonForm, nil)
	f.frame([]byte(connectAndSubscribe))
	return f
}

func BenchmarkBroadcast(b *testing.B) {
	n := benchNode(b)
	const subscribers = 15000
	for range subscribers {
		connectSink(n)
	}
	p := bus.Publication{Data: []byte(`"` + strings.Repeat("x", 126) + `"`)}
	b.ReportAllocs()
	for b.Loop() {
		n.Publish(context.Background(), "news", p, false, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/subscribers, "ns/delivery")
}

// BenchmarkDeltas publishes a document of 2 KiB of which one number changes, to subscribers that
// get deltas and to others. It reports the bytes and the time of a delivery.
func BenchmarkDeltas(b *testing.B) {
	const subscribers = 1000
	document := strings.Repeat(`"price of something": 17.50, `, 70)
	for _, asked := range []string{"", "fossil"} {
		b.Run("delta="+asked, func(b *testing.B) {
			n := benchNode(b)
			var one *countingTransport
			for range subscribers {
				one = new(countingTransport)
				one.s = n.Start(one, jsonForm, nil)
				one.frame([]byte(`{"id":1,"connect":{}}`))
				one.frame([]byte(`{"id":2,"subscribe":{"channel":"news","delta":"` + asked + `"}}`))
			}
			one.sum = 0
			i := 0
			for b.Loop() {
				i++
				data := fmt.Appendf(nil, `{%s"sequence": %d}`, document, i)
				if _, err := n.Publish(b.Context(), "news", bus.Publication{Data: data}, false, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i)/subscribers, "ns/delivery")
			b.ReportMetric(float64(one.sum)/float64(i), "bytes/delivery")
		})
	}
}

// countingTransport adds the bytes of messages up.
type countingTransport struct {
	fakeTransport
	sum int
}

func (f *countingTransport) Send(m *Message) error {
	f.sum += len(m.Payload)
	return nil
}

func BenchmarkConnectAndSubscribe(b *testing.B) {
	n := benchNode(b)
	b.ReportAllocs()
	for b.Loop() {
		f := connectSink(n)
		f.s.Ended()
	}
}

// BenchmarkSubscriberMemory reports the heap of one subscriber of one channel, without its
// transport.
func BenchmarkSubscriberMemory(b *testing.B) {
	n := benchNode(b)
	const subscribers = 20000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	sink := new(sinkTransport) // one for all
	for b.Loop() {
		before := heap()
		for range subscribers {
			s := n.Start(sink, jsonForm, nil)
			runMessage(s, []byte(connectAndSubscribe))
		}
		b.ReportMetric(float64(heap()-before)/subscribers, "B/subscriber")
		for _, s := range n.wheel.all() {
			s.Ended()
		}
	}
}
