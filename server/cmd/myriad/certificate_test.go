//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writePair writes a certificate for localhost with that serial number.
func writePair(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func pairNames(t *testing.T) (certFile, keyFile string) {
	dir := t.TempDir()
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// serial returns the serial number of the certificate in use.
func serial(t *testing.T, addr string) int64 {
	t.Helper()
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	return nc.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestServeTLS(t *testing.T) {
	cert, key := pairNames(t)
	writePair(t, cert, key, 1)
	ctx, cancel := context.WithCancel(t.Context())
	log, done := new(syncBuffer), make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"myriad", "serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key},
			log, log)
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	await := func(what string) string {
		for range 3000 {
			if found := regexp.MustCompile(what).FindStringSubmatch(log.String()); found != nil {
				return found[1]
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the log does not have %s:\n%s", what, log)
		return ""
	}
	addr := await(`url=https://([0-9.:]+)`)
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	io.WriteString(nc, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(nc); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 OK")) {
		t.Errorf("health: %s, %v", answer, err)
	}
	if n := serial(t, addr); n != 1 {
		t.Errorf("certificate %d", n)
	}
	writePair(t, cert, key, 2)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(`(SIGHUP: read the configuration again)`)
	await(`(the certificate was replaced)`)
	for range 1000 { // the server may have read half-written files first
		if serial(t, addr) == 2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the server still uses the old certificate")
}

// The server reads the files again when they change. An invalid file replaces nothing.
func TestKeeperWatches(t *testing.T) {
	cert, key := pairNames(t)
	writePair(t, cert, key, 1)
	log := new(syncBuffer)
	k, err := newKeeper(cert, key, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.watch(ctx, time.Millisecond, nil); close(done) }()
	until := func(what string, ok func() bool) {
		for range 3000 {
			if ok() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("not %s; log:\n%s", what, log)
	}
	number := func() int64 { return k.current.Load().Leaf.SerialNumber.Int64() }
	if err := os.WriteFile(cert, []byte("half a cert"), 0o600); err != nil {
		t.Fatal(err)
	}
	until("refused", func() bool { return strings.Contains(log.String(), "was not replaced") })
	if number() != 1 {
		t.Error("a broken file has replaced the certificate")
	}
	writePair(t, cert, key, 2)
	until("replaced", func() bool { return number() == 2 })
	cancel()
	<-done
}

func TestTLSFlagsBelongTogether(t *testing.T) {
	cert, key := pairNames(t)
	for _, s := range []settings{{tlsCert: cert}, {tlsKey: key}, {tlsCert: cert, tlsKey: key}} {
		if k, err := s.certificates(); err == nil || k != nil || !strings.Contains(err.Error(), "--tls-") {
			t.Errorf("%q %q: %v", s.tlsCert, s.tlsKey, err)
		}
	}
	if k, err := (settings{}).certificates(); k != nil || err != nil {
		t.Errorf("without: %v, %v", k, err)
	}
}
