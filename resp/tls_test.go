package resp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/resp/wire"
)

// pair is a self-signed certificate for 127.0.0.1.
var pair = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

// pairFiles writes it as PEM.
func pairFiles(t testing.TB) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: pair().Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// trusting is what clients need to trust it.
func trusting() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(pair().Leaf)
	return &tls.Config{RootCAs: pool}
}

// serveTLS is serve with TLS, whose records are ours behind the handshake.
func serveTLS(t testing.TB, s *Server) string {
	t.Helper()
	s.TLSConfig, s.LeanTLS = &tls.Config{Certificates: []tls.Certificate{pair()}}, true
	serve(t, s)
	ln, err := s.ListenTLS("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

func dialTLS(t testing.TB, addr string) *peer {
	t.Helper()
	p := dial(t, addr)
	cfg := trusting()
	cfg.ServerName = "127.0.0.1"
	p.Conn = tls.Client(p.Conn, cfg)
	p.r.Reset(p.Conn)
	return p
}

// Pipelines, large values, messages and the end of the server are the same through TLS.
func TestServerTLS(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		s := &Server{Dispatch: d}
		addr := serveTLS(t, s)
		p, q := dialTLS(t, addr), dialTLS(t, addr)
		var in, want []byte
		for i := range 2000 {
			in = wire.AppendCommand(in, "ECHO", fmt.Sprint(i))
			want = wire.AppendBulk(want, fmt.Sprint(i))
		}
		go p.send(string(in))
		p.want(string(want))
		text := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		go p.send(string(wire.AppendCommand(nil, "ECHO", text)))
		p.want(string(wire.AppendBulk(nil, text)))
		q.send("SUBSCRIBE a\r\n").want("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
		p.send("PUBLISH a hi\r\n").want(":1\r\n")
		q.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n")
		p.send("*1\r\nx\r\n")
		if got, want := p.rest(), "-ERR Protocol error: expected '$', got 'x'\r\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(ctxOf(t)) }()
		if got := q.rest(); got != "" {
			t.Errorf("at the end: %q", got)
		}
		p.Close()
		q.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A client speaks TLS to redis-server and to ours, in both protocols.
func TestClientTLS(t *testing.T) {
	cert, key := pairFiles(t)
	ctx := ctxOf(t)
	for name, start := range map[string]func(t *testing.T) string{
		"ours": func(t *testing.T) string { return serveTLS(t, &Server{}) },
		"redis-server": func(t *testing.T) string {
			_, port, _ := net.SplitHostPort(freeport.For(t, 1)[0]) // redis-server does not say which one it has bound
			redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no",
				"--bind", "127.0.0.1")
			return "127.0.0.1:" + port
		},
	} {
		for _, proto := range []Protocol{RESP2, RESP3} {
			t.Run(fmt.Sprintf("%s/%d", name, proto), func(t *testing.T) {
				addr := start(t)
				c := clientOf(t, &Client{Addr: addr, Protocol: proto, TLSConfig: trusting(), Conns: 2})
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						text := strings.Repeat(fmt.Sprint(i), 1000)
						if v, err := c.Do(ctx, "ECHO", text); err != nil || v.Text() != text {
							t.Errorf("%.20v, %v", v, err)
						}
					})
				}
				wg.Wait()
				got := make(chan string, 1)
				if _, err := c.Subscribe(ctx, func(_ string, m []byte) { got <- string(m) }, "news"); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Do(ctx, "PUBLISH", "news", "hello"); err != nil {
					t.Error(err)
				}
				if m := <-got; m != "hello" {
					t.Errorf("got %q", m)
				}
				strict := clientOf(t, &Client{Addr: addr, TLSConfig: &tls.Config{}, Conns: 1})
				if _, err := strict.Do(ctx, "PING"); !strings.Contains(fmt.Sprint(err), "certificate") {
					t.Errorf("with no trust in the certificate: %v", err)
				}
			})
		}
	}
}

func TestRedisCLIWithTLS(t *testing.T) {
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		if os.Getenv("MYRIAD_REQUIRE_CLIENTS") != "" {
			t.Fatal(err)
		}
		t.Skip("redis-cli is not installed")
	}
	cert, _ := pairFiles(t)
	_, port, _ := net.SplitHostPort(serveTLS(t, &Server{}))
	for _, args := range [][]string{{"echo", "hello"}, {"-3", "echo", "hello"}} {
		args = append([]string{"-p", port, "--tls", "--cacert", cert}, args...)
		if out, err := exec.Command(path, args...).CombinedOutput(); err != nil || string(out) != "hello\n" {
			t.Errorf("redis-cli %q: %q, %v", args, out, err)
		}
	}
}
