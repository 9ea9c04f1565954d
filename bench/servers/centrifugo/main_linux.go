// Command centrifugo becomes one node of Centrifugo, with its engine in memory.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	path, err := harness.FindCentrifugo()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	harness.Become(path, arguments)
}

// arguments writes the configuration beside the program, where the next run overwrites it.
func arguments(app, host string, port int) ([]string, error) {
	client := map[string]any{"insecure": true, "allowed_origins": []string{"*"}}
	rules := map[string]any{"allow_subscribe_for_client": true}
	switch app {
	case "push-ws":
		client["ping_interval"] = time.Hour.String() // the load driver does not answer
	case "push-pinging":
		client["ping_interval"], client["pong_timeout"] = check.PingEvery.String(), check.PongWithin.String()
	case "push-recovery":
		rules["history_size"], rules["history_ttl"] = check.HistorySize, check.HistoryAge.String()
		rules["force_recovery"] = true
	default:
		return nil, fmt.Errorf("there is no app %q in this server: it has push-pinging, push-recovery, push-ws", app)
	}
	text, err := json.Marshal(map[string]any{
		"log":         map[string]any{"level": "error"},
		"http_api":    map[string]any{"insecure": true},
		"http_server": map[string]any{"address": host, "port": port},
		"client":      client,
		"channel":     map[string]any{"without_namespace": rules},
	})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := self + ".json"
	return []string{"--config", file}, os.WriteFile(file, text, 0o600)
}
