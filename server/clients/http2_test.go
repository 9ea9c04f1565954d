package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate writes one for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", secret)
}

// One HTTP/2 connection of httpx has twenty event streams and a hundred publications at a time.
func TestHTTPX(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	s := start(t, nil, binary, "serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	url := s.want(`url=(https://[0-9.:]+)`)[1]
	p := python(t, "httpx h2", "testdata/http2.py", url, cert)
	for _, line := range []string{
		"publish HTTP/2 200 {'result': {}}", "listening HTTP/2", "at once 100", "received 20", "large .*", "head .*",
		"missing 404",
	} {
		p.want("^" + line + "$")
	}
	if err := p.wait(); err != nil {
		t.Error(err)
	}
}

// A gRPC client that is not grpc-go's makes calls of all kinds.
func TestGRPC(t *testing.T) {
	t.Parallel()
	addr := example(t, "grpc").want(`listening on (\S+)`)[1]
	p := python(t, "grpc", "testdata/sums.py", addr)
	for _, line := range []string{
		"Double: 42", "Double of -1: INVALID_ARGUMENT -1 is negative", "Total: 499500", "Count: 199990000",
		"Running: 4950", "at once: 999000", "deadline: DEADLINE_EXCEEDED .*", "cancelled: CANCELLED .*",
		"unknown: UNIMPLEMENTED .*",
	} {
		p.want("^" + line + "$")
	}
	if err := p.wait(); err != nil {
		t.Error(err)
	}
}
