package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// A client sends a request and waits for the answer, as over any net.Conn.
type client struct {
	conn net.Conn
	in   *bufio.Reader
}

// dial connects, over TLS if config is not nil.
func dial(ctx context.Context, e *myriad.Engine, addr string, config *tls.Config) (*client, error) {
	h, conn := myriad.Stream(0)
	var err error
	if config != nil {
		_, err = tlsloop.Dial(ctx, e, "tcp", addr, config, h)
	} else {
		_, err = e.Dial(ctx, "tcp", addr, h)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &client{conn, bufio.NewReader(conn)}, nil
}

func (c *client) send(payload string) error {
	frame := newFrame(payload)
	defer frame.Release()
	_, err := c.conn.Write(frame.Bytes())
	return err
}

func (c *client) receive() (string, error) {
	var head [headLen]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return "", err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxPayload {
		return "", fmt.Errorf("frames: a frame of %d bytes; the limit is %d", length, maxPayload)
	}
	payload := make([]byte, length)
	_, err := io.ReadFull(c.in, payload)
	return string(payload), err
}
