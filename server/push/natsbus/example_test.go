package natsbus_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/natsbus"
)

func Example() {
	dir, err := os.MkdirTemp("", "myriad")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server, err := natsbus.StartServer(natsbus.ServerConfig{Name: "n1", Dir: dir})
	if err != nil {
		panic(err)
	}
	defer server.Shutdown()
	node, err := natsbus.Open(context.Background(), natsbus.Config{Server: server, Parts: 1, LogBytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	defer node.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	news := bus.Topic{Name: "news", Keep: bus.Retention{Size: 10, Age: time.Hour}}
	if _, err := node.Publish(ctx, news, bus.Publication{Data: []byte(`"hello"`)}); err != nil {
		panic(err)
	}
	history, err := node.History(ctx, news, bus.Query{Limit: -1})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(history.Publications[0].Data))
	// Output: "hello"
}
