package main

import (
	"context"
	"crypto/tls"
	"log"
	"os"
	"sync/atomic"
)

// A certificate is what its files had when they were last read. Connections that are open keep the
// one with which they began.
type certificate struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
}

// read replaces the certificate. After an error the old one stays.
func (c *certificate) read() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current.Store(&pair)
	return nil
}

// config is for Server.TLSConfig. ServeTLS and ListenTLS then need no files.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.current.Load(), nil
	}}
}

// follow reads the files again with each signal, until ctx ends. What renews certificates sends
// SIGHUP, as certbot does with --deploy-hook.
func (c *certificate) follow(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			if err := c.read(); err != nil {
				log.Print("the certificate was not replaced: ", err)
			}
		}
	}
}
