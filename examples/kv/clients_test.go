package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/myriad-go/myriad/resp"
)

// A client library that others have written speaks to the store, in both protocols.
func TestGoRedis(t *testing.T) {
	addr, _ := start(t, config{})
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, ClientName: "test"})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Set(ctx, "k", "v", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(ctx, "k").Result()
		if err != nil || got != "v" {
			t.Errorf("RESP%d: %q, %v", protocol, got, err)
		}
		if _, err := c.Get(ctx, "none").Result(); err != redis.Nil {
			t.Errorf("RESP%d: a missing key: %v", protocol, err)
		}
		c.HSet(ctx, "h", "a", "1", "b", "2")
		if all, err := c.HGetAll(ctx, "h").Result(); err != nil || len(all) != 2 || all["b"] != "2" {
			t.Errorf("RESP%d: %v, %v", protocol, all, err)
		}
		replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 100 {
				p.Incr(ctx, "n")
			}
			return nil
		})
		if err != nil || len(replies) != 100 {
			t.Errorf("RESP%d: %d replies, %v", protocol, len(replies), err)
		}
		sub := c.Subscribe(ctx, "news")
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		c.Publish(ctx, "news", "hello")
		if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
			t.Errorf("RESP%d: %v, %v", protocol, m, err)
		}
		sub.Close()
		c.Close()
	}
}

func TestRueidis(t *testing.T) {
	addr, _ := start(t, config{})
	for _, resp2 := range []bool{false, true} {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true,
			AlwaysRESP2:       resp2,
			ForceSingleClient: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Do(ctx, c.B().Set().Key("k").Value("v").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Do(ctx, c.B().Get().Key("k").Build()).ToString(); err != nil || got != "v" {
			t.Errorf("%q, %v", got, err)
		}
		c.Do(ctx, c.B().Hset().Key("h").FieldValue().FieldValue("a", "1").Build())
		if all, err := c.Do(ctx, c.B().Hgetall().Key("h").Build()).AsStrMap(); err != nil || all["a"] != "1" {
			t.Errorf("%v, %v", all, err)
		}
		c.Close()
	}
}

// Client libraries send a command once more after some errors. The push server's door uses LOADING.
// rueidis repeats only commands that read.
func TestErrorsThatLibrariesRepeat(t *testing.T) {
	var word atomic.Pointer[string]
	var left, asked atomic.Int32
	mux := resp.NewMux()
	mux.Handle("PUBLISH", 3, func(w *resp.Reply, _ *resp.Command) {
		asked.Add(1)
		if left.Add(-1) >= 0 {
			w.Error(*word.Load() + " try again, in 1 s")
			return
		}
		w.Int(1)
	}, "")
	s := &resp.Server{Handler: mux}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	addr := ln.Addr().String()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	gor := redis.NewClient(&redis.Options{Addr: addr})
	defer gor.Close()
	rue, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true,
		ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rue.Close()
	libraries := map[string]func() error{
		"go-redis": func() error { return gor.Publish(ctx, "news", "1").Err() },
		"rueidis":  func() error { return rue.Do(ctx, rue.B().Publish().Channel("news").Message("1").Build()).Error() },
	}
	for _, tt := range []struct {
		library, word string
		repeats       bool
	}{
		{"go-redis", "LOADING", true}, {"go-redis", "TRYAGAIN", true},
		{"go-redis", "BUSY", false}, {"go-redis", "ERR", false},
		{"rueidis", "LOADING", false}, {"rueidis", "TRYAGAIN", false},
		{"rueidis", "BUSY", false}, {"rueidis", "ERR", false},
	} {
		word.Store(&tt.word)
		left.Store(2)
		asked.Store(0)
		err := libraries[tt.library]()
		if repeated := err == nil && asked.Load() == 3; repeated != tt.repeats {
			t.Errorf("%s after %s: %v, asked %d times", tt.library, tt.word, err, asked.Load())
		}
	}
}
