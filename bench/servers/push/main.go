// Command push is package push, put together as "myriad serve" puts it together.
package main

import (
	"log/slog"
	"net"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/web"
)

func main() {
	harness.Main(map[string]harness.Start{"push-ws": serve, "push-sse": serve})
}

func serve(addr string) (net.Addr, error) {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		return nil, err
	}
	// The load driver does not answer pings, and none would come in most scenarios.
	pusher, err := push.New(push.Config{Logger: slog.Default(), Timing: push.Timing{Ping: time.Hour}})
	if err != nil {
		return nil, err
	}
	ln, err := (&web.Server{Handler: pusher, Engine: engine, Dispatch: web.DispatchAuto}).Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}
