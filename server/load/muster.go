package load

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The fleet's host listens, and its workers on other hosts join. Both prove that they have the same
// secret before anything else is said: each by an HMAC of the other's random bytes. What follows is
// neither encrypted nor signed, so the network must be one's own.

const (
	nonceSize     = 32
	handshakeTime = 10 * time.Second
	leastSecret   = 16 // bytes
)

var (
	errSecret = errors.New("the other side does not have the same secret")
	// The labels keep one side's proof from being sent back as the other's.
	hostLabel, workerLabel = []byte("myriad load host"), []byte("myriad load worker")
)

// Muster waits at a listener until n workers of other hosts have joined, for Options.Hosts. Those
// without the secret are refused.
func Muster(ctx context.Context, ln net.Listener, secret string, n int) ([]io.ReadWriteCloser, error) {
	if err := checkSecret(secret); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var hosts []io.ReadWriteCloser
	for len(hosts) < n {
		c, err := ln.Accept()
		if err != nil {
			closeAll(hosts)
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("%d of %d workers have joined: %w", len(hosts), n, err)
		}
		if err := prove(c, secret, hostLabel, workerLabel); err != nil {
			_ = c.Close()
			continue
		}
		hosts = append(hosts, c)
	}
	return hosts, nil
}

// Join makes this process a worker of a fleet on another host, until its run ends.
func Join(ctx context.Context, addr, secret string) error {
	if err := checkSecret(secret); err != nil {
		return err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := prove(c, secret, workerLabel, hostLabel); err != nil {
		return fmt.Errorf("joining %s: %w", addr, err)
	}
	return Work(c, c)
}

func checkSecret(secret string) error {
	if len(secret) < leastSecret {
		return fmt.Errorf("the secret has %d bytes: give %d at least", len(secret), leastSecret)
	}
	return nil
}

// prove exchanges proofs. Each side sends its nonce, then its proof for the other's nonce.
func prove(c net.Conn, secret string, own, other []byte) error {
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	mine, theirs := make([]byte, nonceSize), make([]byte, nonceSize)
	rand.Read(mine) //nolint:errcheck // it never fails
	if _, err := c.Write(mine); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, theirs); err != nil {
		return err
	}
	if _, err := c.Write(proof(secret, own, theirs)); err != nil {
		return err
	}
	answer := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return errSecret
	}
	if !hmac.Equal(answer, proof(secret, other, mine)) {
		return errSecret
	}
	return c.SetDeadline(time.Time{})
}

func proof(secret string, label, nonce []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(label)
	h.Write(nonce)
	return h.Sum(nil)
}
