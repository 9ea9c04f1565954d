// Command push is package push, put together as "myriad serve" puts it together.
package main

import (
	"log/slog"
	"net"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/web"
)

func main() {
	harness.Main(map[string]harness.Start{"push-ws": serve, "push-sse": serve, "push-tokens": serveTokens,
		"push-redis": serveRedis, "push-pinging": servePinging, "push-recovery": serveUpgrades})
}

func serve(addr string) (net.Addr, error) { return serveWith(addr, push.Config{}) }

// servePinging pings each second, and wants the answer within half of one.
func servePinging(addr string) (net.Addr, error) {
	return serveWith(addr, push.Config{Timing: push.Timing{Ping: check.PingEvery, Pong: check.PongWithin}})
}

// serveTokens wants a token for each connection and for each subscription.
func serveTokens(addr string) (net.Addr, error) {
	return serveWith(addr, push.Config{TokenSecret: check.TokenSecret,
		Namespaces: []push.Namespace{{SubscribeToken: true}}})
}

// serveRedis serves the Redis protocol alone.
func serveRedis(addr string) (net.Addr, error) {
	pusher, engine, err := newPusher(push.Config{})
	if err != nil {
		return nil, err
	}
	ln, err := redis.Listener(pusher, engine).Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}

func serveWith(addr string, c push.Config) (net.Addr, error) {
	pusher, engine, err := newPusher(c)
	if err != nil {
		return nil, err
	}
	ln, err := (&web.Server{Handler: pusher, Engine: engine, Dispatch: web.DispatchAuto}).Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}

func newPusher(c push.Config) (*push.Server, *myriad.Engine, error) {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		return nil, nil, err
	}
	// The load driver does not answer pings, and none would come in most scenarios.
	c.Logger = slog.Default()
	if c.Timing.Ping == 0 {
		c.Timing.Ping = time.Hour
	}
	c.Doors = doors.All(doors.Config{})
	pusher, err := push.New(c)
	return pusher, engine, err
}
