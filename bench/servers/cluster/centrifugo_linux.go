package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

// planCentrifugo makes the nodes of a cluster of Centrifugo, and starts its broker.
func (c *cluster) planCentrifugo(public []string, broker, dir string, r rules) error {
	path, err := harness.FindCentrifugo()
	if err != nil {
		return err
	}
	config := map[string]any{
		"log":      map[string]any{"level": "error"},
		"http_api": map[string]any{"insecure": true},
		"health":   map[string]any{"enabled": true},
		"client": map[string]any{"insecure": true, "allowed_origins": []string{"*"},
			"ping_interval": idlePing.String()},
	}
	channels := map[string]any{"allow_subscribe_for_client": true}
	if r.kept {
		channels["history_size"], channels["history_ttl"] = historySize, historyAge.String()
		channels["force_recovery"] = r.recovers
	}
	config["channel"] = map[string]any{"without_namespace": channels}
	switch *with {
	case "redis":
		config["engine"] = map[string]any{"type": "redis", "redis": map[string]any{"address": "redis://" + broker}}
		err = startRedis(broker)
	case "nats":
		config["broker"] = map[string]any{"enabled": true, "type": "nats",
			"nats": map[string]any{"url": "nats://" + broker}}
		err = startNATS(broker)
	default:
		err = fmt.Errorf("--with %q: use redis or nats", *with)
	}
	if err != nil {
		return err
	}
	for i, address := range public {
		host, port, err := splitAddress(address)
		if err != nil {
			return err
		}
		config["http_server"] = map[string]any{"address": host, "port": port}
		text, err := json.Marshal(config)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, fmt.Sprintf("n%d.json", i+1))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		c.nodes = append(c.nodes, &node{public: address, path: path, args: []string{"--config", file}})
	}
	return nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port, err
}

// startRedis runs a redis-server that stores nothing on disk.
func startRedis(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	return startBroker(address, "redis-server", "--bind", host, "--port", port, "--save", "", "--appendonly", "no",
		"--loglevel", "warning")
}

// startNATS runs this program as a NATS server.
func startNATS(address string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return startBroker(address, self, "nats", address)
}

// startBroker returns when the broker accepts connections.
func startBroker(address, path string, args ...string) error {
	command := exec.Command(path, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(starting); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("%s does not accept connections", address)
}

// runNATS is a NATS server without JetStream. It does not return.
func runNATS(args []string) error {
	host, port, err := splitAddress(args[0])
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: port})
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("NATS has ended")
}
