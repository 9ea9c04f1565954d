package main

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
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
