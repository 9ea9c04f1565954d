// Command respclient sends commands with package resp.
package main

import (
	"context"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/resp"
)

func main() {
	harness.MainWith(nil, map[string]harness.Work{"commands": harness.Commands(open)})
}

func open(socket string) (func(string) (string, error), error) {
	c := &resp.Client{Network: "unix", Addr: socket}
	ctx := context.Background()
	return func(text string) (string, error) {
		v, err := c.Do(ctx, "ECHO", text)
		return v.Text(), err
	}, nil
}
