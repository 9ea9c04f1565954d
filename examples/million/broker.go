//go:build linux

package main

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A broker is the NATS server that the servers follow. It runs in this process.
type broker struct {
	server *server.Server
	url    string
}

const brokerPatience = 30 * time.Second

func startBroker(dir string) (*broker, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true,
		StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, err
	}
	b := &broker{server: s}
	s.Start()
	if !s.ReadyForConnections(brokerPatience) {
		b.stop()
		return nil, errors.New("NATS is not ready")
	}
	b.url = "nats://" + s.Addr().String()
	return b, nil
}

func (b *broker) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}
