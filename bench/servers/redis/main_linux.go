// Command redis becomes redis-server, with the way to start and to end of a server under test.
package main

import (
	"strconv"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Become("redis-server", func(_, host string, port int) ([]string, error) {
		return []string{"--bind", host, "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--loglevel",
			"warning", "--maxclients", "20000", "--protected-mode", "no"}, nil
	})
}
