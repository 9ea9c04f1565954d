package tlsloop_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"

	"github.com/myriad-go/myriad"
)

func errorsAs[T error](err error, target *T) bool { return errors.As(err, target) }

// negotiate makes one handshake and says what pick was given, and what the client got.
func negotiate(t *testing.T, server, client *tls.Config) (seen, got tls.ConnectionState) {
	t.Helper()
	states := make(chan tls.ConnectionState, 1)
	h := echo()
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(server, func(s tls.ConnectionState) myriad.Handler {
		states <- s
		return h
	}))
	tc := dial(t, addr, client)
	send(t, tc, "hello")
	expect(t, tc, "hello")
	return await(t, "state", states), tc.ConnectionState()
}

// Names choose certificates, by the Config's own rules and by callbacks.
func TestCertificatesByName(t *testing.T) {
	one, two := certificate("one.example"), certificate("two.example")
	static := &tls.Config{Certificates: []tls.Certificate{one, two}}
	called := &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.Conn == nil || hello.Conn.RemoteAddr() == nil {
			t.Error("the callback cannot see who calls")
		}
		if hello.ServerName == "two.example" {
			return &two, nil
		}
		return &one, nil
	}}
	replaced := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return static, nil }}
	for i, server := range []*tls.Config{static, called, replaced} {
		for _, name := range []string{"one.example", "two.example"} {
			t.Run(fmt.Sprint(i, " ", name), func(t *testing.T) {
				client := clientConfig()
				client.ServerName = name
				seen, got := negotiate(t, server, client)
				if seen.ServerName != name || got.PeerCertificates[0].DNSNames[0] != name {
					t.Errorf("asked for %s, got %v", seen.ServerName, got.PeerCertificates[0].DNSNames)
				}
			})
		}
	}
}

func TestClientCertificates(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server := serverConfig()
		server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, trusted().pool
		verified := 0
		server.VerifyConnection = func(tls.ConnectionState) error { verified++; return nil }
		client := clientConfig()
		client.MaxVersion, client.Certificates = version, []tls.Certificate{certificate("me")}
		seen, _ := negotiate(t, server, client)
		if len(seen.VerifiedChains) == 0 || seen.PeerCertificates[0].Subject.CommonName != "me" || verified != 1 {
			t.Errorf("%d chains, verified %d times", len(seen.VerifiedChains), verified)
		}
	})
}

func TestProtocols(t *testing.T) {
	server, client := serverConfig(), clientConfig()
	server.NextProtos, client.NextProtos = []string{"a", "b"}, []string{"x", "b"}
	if seen, got := negotiate(t, server, client); seen.NegotiatedProtocol != "b" || got.NegotiatedProtocol != "b" {
		t.Errorf("%q, %q", seen.NegotiatedProtocol, got.NegotiatedProtocol)
	}
}

// Tickets resume sessions, in both versions.
func TestResumption(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(echo())))
		client := clientConfig()
		client.MaxVersion, client.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
		for i := range 3 {
			tc := dial(t, addr, client)
			send(t, tc, "hello")
			expect(t, tc, "hello")
			if got := tc.ConnectionState().DidResume; got != (i > 0) {
				t.Errorf("connection %d: resumed %v", i, got)
			}
			tc.Close()
		}
	})
}

// A hello may be as large as a message can be, which is more than may wait for a handshake at once.
func TestLargeHello(t *testing.T) {
	cfg := serverConfig()
	cfg.NextProtos = []string{"last"}
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, always(echo())))
	for _, n := range []int{1, 60, 100, 150, 200, 250} {
		cc := clientConfig()
		for i := range n {
			cc.NextProtos = append(cc.NextProtos, fmt.Sprintf("%0250d", i))
		}
		cc.NextProtos = append(cc.NextProtos, "last")
		tc := dial(t, addr, cc)
		send(t, tc, "hello")
		expect(t, tc, "hello")
		if got := tc.ConnectionState().NegotiatedProtocol; got != "last" {
			t.Errorf("%d protocols offered, %q negotiated", n, got)
		}
	}
}
