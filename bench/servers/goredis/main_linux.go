// Command goredis sends commands with github.com/redis/go-redis.
package main

import (
	"context"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/redis/go-redis/v9"
)

func main() {
	harness.MainWith(nil, map[string]harness.Work{"commands": harness.Commands(open)})
}

func open(socket string) (func(string) (string, error), error) {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	ctx := context.Background()
	return func(text string) (string, error) { return c.Echo(ctx, text).Result() }, nil
}
