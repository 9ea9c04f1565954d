package tlsloop_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// patience is how long a test waits for what must happen before it gives up: some take ten seconds
// where others have the processors.
const patience = time.Minute

// patient bounds handshakes likewise, where ten seconds are usual.
var patient = tlsloop.Options{Timeout: patience, LeanTLS: os.Getenv(cryptoTLSEnv) == ""}

// cryptoTLSEnv has all tests run with the records of crypto/tls.
const cryptoTLSEnv = "MYRIAD_CRYPTO_TLS"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// An authority signs the certificates of a test run.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

var trusted = sync.OnceValue(func() *authority {
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = sign(nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	return a
})

func sign(by *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert, key
}

// certificate is one for the names, for servers and clients.
func certificate(names ...string) tls.Certificate {
	cert, key := sign(trusted(), &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

var usual = sync.OnceValue(func() tls.Certificate { return certificate("localhost") })

func serverConfig() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{usual()}} }

func clientConfig() *tls.Config { return &tls.Config{RootCAs: trusted().pool, ServerName: "localhost"} }

// versions runs a test in TLS 1.2 and 1.3.
func versions(t *testing.T, f func(t *testing.T, version uint16)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { f(t, v) })
	}
}

// goroutinePerConn is so with the driver std, whatever is above it.
var goroutinePerConn = os.Getenv("MYRIAD_DRIVER") == "std"

// start runs an engine that must shut down in order when the test ends.
func start(t testing.TB, cfg myriad.Config) *myriad.Engine {
	t.Helper()
	if cfg.Driver == "" {
		cfg.Driver = os.Getenv("MYRIAD_DRIVER")
	}
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	if cfg.LingerTimeout == 0 {
		cfg.LingerTimeout = patience // a peer may be held up
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	e, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return e
}

func listen(t testing.TB, e *myriad.Engine, h myriad.Handler) string {
	t.Helper()
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

func dialTCP(t testing.TB, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { nc.Close() })
	return nc
}

// dial makes a handshake with the standard library's client.
func dial(t testing.TB, addr string, cfg *tls.Config) *tls.Conn {
	t.Helper()
	tc := tls.Client(dialTCP(t, addr), cfg)
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	return tc
}

// always picks h.
func always(h myriad.Handler) func(tls.ConnectionState) myriad.Handler {
	return func(tls.ConnectionState) myriad.Handler { return h }
}

// A probe is a handler made of functions; those that are nil do nothing, except ended, which
// closes.
type probe struct {
	opened   func(c *myriad.Conn)
	received func(c *myriad.Conn, p []byte)
	ended    func(c *myriad.Conn)
	drained  func(c *myriad.Conn)
	opens    chan *myriad.Conn
	closes   chan error
}

func newProbe() *probe {
	return &probe{opens: make(chan *myriad.Conn, 20000), closes: make(chan error, 20000)}
}

func (h *probe) Opened(c *myriad.Conn) {
	if h.opened != nil {
		h.opened(c)
	}
	h.opens <- c
}

func (h *probe) Received(c *myriad.Conn, p []byte) {
	if h.received != nil {
		h.received(c, p)
	}
}

func (h *probe) Ended(c *myriad.Conn) {
	if h.ended != nil {
		h.ended(c)
		return
	}
	c.Close()
}

func (h *probe) Drained(c *myriad.Conn) {
	if h.drained != nil {
		h.drained(c)
	}
}

func (h *probe) Closed(_ *myriad.Conn, err error) { h.closes <- err }

// echo answers with what it gets.
func echo() *probe {
	h := newProbe()
	h.opened = func(c *myriad.Conn) { c.SetWriteLimit(8 << 20) } // a client writes all before it reads
	h.received = func(c *myriad.Conn, p []byte) {
		if _, err := c.Write(p); err != nil {
			c.Abort(err)
		}
	}
	return h
}

func await[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("no %s in %v", what, patience)
	}
	return v
}

// eventually is for what another goroutine brings about at its own pace.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// expect reads exactly want.
func expect(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		if len(want) > 100 {
			t.Fatalf("read %d of %d bytes, equal: %v: %v", n, len(want), string(got) == want, err)
		}
		t.Fatalf("read %q, want %q: %v", got[:n], want, err)
	}
}

func send(t testing.TB, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// pattern is n bytes by which a shift shows.
func pattern(n int) string {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return string(p)
}

// exampleCertificate stands for the files that tls.LoadX509KeyPair would read, and who has signed
// them.
func exampleCertificate() (tls.Certificate, *x509.CertPool) { return usual(), trusted().pool }
