// Command cluster is three nodes of a push server, as processes of this machine: package push with
// NATS inside, or Centrifugo with Redis or NATS beside it. It reports the addresses of the first
// two: publications go to the second, and subscribers are at the first.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

// What a channel with a history keeps.
const (
	historySize = 10_000
	historyAge  = 5 * time.Minute
)

var (
	with = flag.String("with", "", "Centrifugo with this broker, instead of package push: redis or nats")
	lazy = flag.Bool("lazy", false, "package push syncs to disk every two minutes, and not for each publication")
)

func main() {
	run := map[string]func([]string) error{"node": runNode, "nats": runNATS}
	if len(os.Args) > 1 && run[os.Args[1]] != nil {
		fmt.Fprintln(os.Stderr, run[os.Args[1]](os.Args[2:]))
		os.Exit(1)
	}
	harness.MainWith(map[string]harness.Start{"cluster": serve(rules{}), "cluster-kept": serve(rules{kept: true})},
		map[string]harness.Work{"cluster-failover": failover})
}

// rules are those of all channels.
type rules struct{ kept, recovers bool }

func serve(r rules) harness.Start {
	return func(string) (net.Addr, error) {
		c, err := startCluster(r)
		if err != nil {
			return nil, err
		}
		return addresses{c.nodes[0].public, c.nodes[1].public}, nil
	}
}

// addresses are those of several nodes.
type addresses []string

func (addresses) Network() string  { return "tcp" }
func (a addresses) String() string { return strings.Join(a, ",") }
