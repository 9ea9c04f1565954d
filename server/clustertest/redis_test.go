package clustertest

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
)

var redisAddress = regexp.MustCompile(`redis=(\S+)`)

// redis is a client of the node's door for Redis.
func (n *node) redis() *resp.Client {
	n.t.Helper()
	found := redisAddress.FindStringSubmatch(n.tail())
	if found == nil {
		n.t.Fatalf("%s has no door for Redis", n.name)
	}
	engine, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		n.t.Fatal(err)
	}
	c := &resp.Client{Addr: found[1], Engine: engine}
	n.t.Cleanup(func() {
		c.Close()
		if err := engine.Shutdown(context.Background()); err != nil {
			n.t.Error(err)
		}
	})
	return c
}

// What is published at one node's door for Redis reaches those that have subscribed at another's.
// Patterns are refused, in words that say what to do.
func TestRedisDoors(t *testing.T) {
	nodes := cluster(t, history, "--redis-listen", "127.0.0.1:0")
	first, second := nodes[0].redis(), nodes[1].redis()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan string, 1000)
	take := func(channel string, message []byte) { got <- channel + " " + string(message) }
	if _, err := first.Subscribe(ctx, take, "news"); err != nil {
		t.Fatal(err)
	}
	var message string
	for message == "" { // until the second node knows of the subscription
		if _, err := second.Do(ctx, "PUBLISH", "news", "hello"); err != nil {
			t.Fatal(err)
		}
		select {
		case message = <-got:
		case <-time.After(50 * time.Millisecond):
		}
	}
	if message != "news hello" {
		t.Errorf("got %q", message)
	}
	const refusal = "PSUBSCRIBE is not available on a cluster: subscribe to channels by name"
	if _, err := second.PSubscribe(ctx, take, "n*"); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("PSUBSCRIBE: %v", err)
	}
}
