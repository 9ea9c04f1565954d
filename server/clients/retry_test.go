package clients

import (
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
)

// An EventSource that comes too often comes back by itself when it was told to, and is served then.
// It would give up after any status but 200.
func TestEventSourceComesBack(t *testing.T) {
	t.Parallel()
	s := serve(t, "--address-connection-rate", "1/4s")
	first := curl(t, "http://"+s.addr+"/events?channel=news")
	first.want(`^retry: `)
	began := time.Now()
	second := node(t, "eventsource", "testdata/events.mjs", "http://"+s.addr+"/events?channel=news")
	for _, line := range []string{"open", "error", "open"} { // with the stream that says when, and then served
		second.want("^" + line)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("the EventSource is back after %v", took)
	}
	s.publish(`1`)
	second.want(`^publication 1$`)
	if n := strings.Count(strings.Join(second.seen, "\n"), "error"); n != 1 {
		t.Errorf("the EventSource was refused %d times: %q", n, second.seen)
	}
}

// A client of gRPC that repeats calls does so when it was told to: once is enough then.
func TestGRPCComesBack(t *testing.T) {
	t.Parallel()
	s := serve(t, "--api-key", "key", "--address-call-rate", "1/3s")
	p := goProgram(t, "grpcgo", s.addr, "key", apiProto(t), "retry")
	p.want(`^Publish: result:{}$`)
	p.want(`^Publish: result:{}$`)
	took, err := strconv.Atoi(p.want(`^took (\d+)$`)[1])
	if err != nil || took < 1000 {
		t.Errorf("the second call took %d ms", took)
	}
}

// Clients of the Centrifuge protocol that come too often are connected a little later.
func TestCentrifugeLibrariesComeBack(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--address-connection-rate", "1/1s")
			curl(t, "http://"+s.addr+"/events?channel=news").want(`^retry: `)
			c := lib.run(t, s.websocket(), "news")
			c.want(`^subscribed`)
			c.never(`^disconnected`)
		})
	}
}

// redisThatRefuses is a server of Redis that answers the first publications with an error, and the
// first connections with another one, as the door of the push server does. It returns its address.
func redisThatRefuses(t *testing.T, publications int32, word string, connections int32) (host, port string) {
	t.Helper()
	mux := resp.NewMux()
	mux.Handle("PUBLISH", 3, func(w *resp.Reply, _ *resp.Command) {
		if atomic.AddInt32(&publications, -1) >= 0 {
			w.Error(word + " more is published than can be delivered: publish again later, in 1 s")
			return
		}
		w.Int(7)
	}, "")
	mux.Handle("INFO", -1, func(w *resp.Reply, _ *resp.Command) { w.Bulk([]byte("loading:0\r\n")) }, "")
	s := &resp.Server{Handler: mux, OnOpen: func(c *resp.Conn) {
		if atomic.AddInt32(&connections, -1) >= 0 {
			_ = c.TryPush(buf.From([]byte("-ERR max number of clients reached\r\n")))
			c.Close()
		}
	}}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	host, port, err = net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// Client libraries of Redis come back to a server that has closed their connection because it had
// no room. After LOADING redis-py publishes once more; ioredis tells its caller, as after any
// error.
func TestRedisLibrariesComeBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		word                      string
		publications, connections int32
		python, node              string
	}{
		"no room":      {"", 0, 2, "published 7", "published 7"},
		"LOADING":      {"LOADING", 2, 0, "published 7", "refused LOADING .*"},
		"BUSY":         {"BUSY", 2, 0, "refused ResponseError", "refused BUSY .*"},
		"TRYAGAIN":     {"TRYAGAIN", 2, 0, "refused TryAgainError", "refused TRYAGAIN .*"},
		"both at once": {"LOADING", 1, 1, "published 7", "refused LOADING .*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, port := redisThatRefuses(t, tt.publications, tt.word, tt.connections)
			python(t, "redis", "testdata/retry.py", host, port).want("^" + tt.python + "$")
			host, port = redisThatRefuses(t, tt.publications, tt.word, tt.connections)
			node(t, "ioredis", "testdata/retry.mjs", host, port).want("^" + tt.node + "$")
		})
	}
}

// refused returns how often clients were refused for a rate.
func (s server) refused() int {
	line := curl(s.t, "http://"+s.addr+"/metrics").want(`^myriad_refusals_total\{reason="rate"\} (\d+)$`)
	n, _ := strconv.Atoi(line[1])
	return n
}

// A client of the Centrifuge protocol that is refused does not come back without a pause, by any
// transport, whether its request is refused or its connect command.
func TestRefusedTransportsPause(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"websocket", "http_stream", "sse"} {
		for _, rate := range []string{"--address-connection-rate", "--user-connection-rate"} {
			t.Run(transport+" "+rate, func(t *testing.T) {
				t.Parallel()
				s := serve(t, "--token-secret", secret, rate, "1/3s")
				ann := token(t, secret, time.Hour)
				first := node(t, "centrifuge", "testdata/transports.mjs", transport, "json", s.addr, "news", ann)
				first.want(`^subscribed$`)
				second := node(t, "centrifuge", "testdata/transports.mjs", transport, "json", s.addr, "news", ann)
				second.want(`^subscribed$`)
				if n := s.refused(); n < 1 || n > 20 {
					t.Errorf("the client was refused %d times", n)
				}
			})
		}
	}
}
