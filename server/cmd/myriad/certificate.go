package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// lookPeriod is how often watch checks the certificate's files.
const lookPeriod = 2 * time.Second

// A keeper holds the certificate in use. It reads the files again on SIGHUP and when they have
// changed. If the new files are invalid, it keeps the old certificate, so that a half-written
// renewal does no harm.
type keeper struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	seen              [2]stamp // of the files when they were last read; used by watch only
}

// A stamp identifies a version of a file.
type stamp struct {
	modified time.Time
	size     int64
}

func newKeeper(certFile, keyFile string, log *slog.Logger) (*keeper, error) {
	k := &keeper{certFile: certFile, keyFile: keyFile, log: log}
	k.seen = k.look()
	if err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// read reads the files.
func (k *keeper) read() error {
	cert, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert %s with --tls-key %s: %w", k.certFile, k.keyFile, err)
	}
	k.current.Store(&cert)
	return nil
}

// config returns a configuration for TLS 1.2 and up with the current certificate.
func (k *keeper) config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
		error) {
		return k.current.Load(), nil
	}}
}

// watch reads the files again when necessary, until ctx ends.
func (k *keeper) watch(ctx context.Context, period time.Duration, hangups <-chan os.Signal) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			k.renew(k.look())
		case <-ticker.C:
			if now := k.look(); now != k.seen {
				k.renew(now)
			}
		}
	}
}

func (k *keeper) renew(now [2]stamp) {
	k.seen = now
	if err := k.read(); err != nil {
		k.log.Error("myriad: the certificate was not replaced", "err", err)
		return
	}
	expires := slog.Attr{}
	if leaf := k.current.Load().Leaf; leaf != nil {
		expires = slog.Time("expires", leaf.NotAfter)
	}
	k.log.Info("myriad: the certificate was replaced", "file", k.certFile, expires)
}

// look returns the stamps of the files. A missing file has the zero stamp.
func (k *keeper) look() (now [2]stamp) {
	for i, name := range []string{k.certFile, k.keyFile} {
		if info, err := os.Stat(name); err == nil {
			now[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return now
}

// certificates reads the certificate that the flags name. Without those flags it returns nil.
func (s settings) certificates() (*keeper, error) {
	if s.tlsCert == "" && s.tlsKey == "" {
		return nil, nil
	}
	if s.tlsCert == "" || s.tlsKey == "" {
		return nil, errors.New("--tls-cert and --tls-key belong together: give both, or neither")
	}
	return newKeeper(s.tlsCert, s.tlsKey, s.log)
}
