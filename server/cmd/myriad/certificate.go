package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// lookPeriod is how often the files of the certificate are looked at.
const lookPeriod = 2 * time.Second

// A keeper has the certificate that is served. It reads the files again on SIGHUP and when they
// have changed; what cannot be used changes nothing, so that a renewal that is only half written
// does no harm.
type keeper struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	seen              [2]stamp // of the files as they were read last; the watching goroutine's
}

// A stamp tells one state of a file from another.
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

// read takes the files as they are.
func (k *keeper) read() error {
	cert, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert %s with --tls-key %s: %w", k.certFile, k.keyFile, err)
	}
	k.current.Store(&cert)
	return nil
}

// config serves TLS 1.2 and up with the certificate of the moment.
func (k *keeper) config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
		error) {
		return k.current.Load(), nil
	}}
}

// watch reads the files again until ctx ends.
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

// hearHangups is for SIGHUP, which asks a daemon to read its files again. Nobody who sends it wants
// the server to end.
func hearHangups() (hangups chan os.Signal, stop func()) {
	hangups = make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups, func() { signal.Stop(hangups) }
}

// explainHangups goes on without a certificate, until ctx ends.
func explainHangups(ctx context.Context, hangups <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			log.Info("myriad: SIGHUP changes nothing: only the certificate of --tls-cert is read again while the " +
				"server runs; restart it to change options")
		}
	}
}

func (k *keeper) renew(now [2]stamp) {
	k.seen = now
	if err := k.read(); err != nil {
		k.log.Error("myriad: the certificate is not replaced", "err", err)
		return
	}
	expires := slog.Attr{}
	if leaf := k.current.Load().Leaf; leaf != nil {
		expires = slog.Time("expires", leaf.NotAfter)
	}
	k.log.Info("myriad: the certificate is replaced", "file", k.certFile, expires)
}

// look is what the files look like; one that is not there has no stamp.
func (k *keeper) look() (now [2]stamp) {
	for i, name := range []string{k.certFile, k.keyFile} {
		if info, err := os.Stat(name); err == nil {
			now[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return now
}

// certificates reads the certificate that the flags name; it is nil without.
func (s settings) certificates() (*keeper, error) {
	if s.tlsCert == "" && s.tlsKey == "" {
		return nil, nil
	}
	if s.tlsCert == "" || s.tlsKey == "" {
		return nil, errors.New("--tls-cert and --tls-key belong together: give both, or neither")
	}
	return newKeeper(s.tlsCert, s.tlsKey, s.log)
}
