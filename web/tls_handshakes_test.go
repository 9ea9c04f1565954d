package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// issued is a certificate that pair's key has signed for a client, valid from now until end, beside
// so many others in its chain.
func issued(t *testing.T, name string, end time.Duration, others int) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(end),
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, pair().Leaf, &key.PublicKey, pair().PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	chain := [][]byte{der}
	for range others {
		chain = append(chain, pair().Certificate[0])
	}
	return tls.Certificate{Certificate: chain, PrivateKey: key}
}

// reportTLS answers with what a handler can know of its connection.
var reportTLS = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	s := r.TLS
	key, err := s.ExportKeyingMaterial("EXPORTER-test", nil, 8)
	var names []string
	for _, c := range s.PeerCertificates {
		names = append(names, c.Subject.CommonName)
	}
	fmt.Fprintf(w, "%s %s %v complete %t resumed %t protocol %q name %q certificates %v chains %d retry %t key %x %v",
		tls.VersionName(s.Version), tls.CipherSuiteName(s.CipherSuite), s.CurveID, s.HandshakeComplete, s.DidResume,
		s.NegotiatedProtocol, s.ServerName, names, len(s.VerifiedChains), s.HelloRetryRequest, key, err)
})

// What a client and a handler get of a handshake, and what the log says, is the same as with
// net/http.
func TestHandshakesLikeNetHTTP(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{SerialNumber: big.NewInt(3), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &rsaKey.PublicKey, rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: rsaKey}
	failing := errors.New("no certificate\r\nof that name")
	type config = func(*tls.Config)
	mutual := func(auth tls.ClientAuthType) config {
		return func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs = auth, x509.NewCertPool()
			c.ClientCAs.AddCert(pair().Leaf)
		}
	}
	with := func(cert tls.Certificate) config {
		return func(c *tls.Config) { c.Certificates = []tls.Certificate{cert} }
	}
	protos := func(names ...string) config { return func(c *tls.Config) { c.NextProtos = names } }
	for name, tt := range map[string]struct{ server, client config }{
		"plainly":                     {},
		"no name":                     {nil, func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = "", true }},
		"an unknown name":             {nil, func(c *tls.Config) { c.ServerName = "other" }},
		"a client certificate":        {mutual(tls.RequireAndVerifyClientCert), with(issued(t, "me", time.Hour, 0))},
		"a long chain":                {mutual(tls.RequireAndVerifyClientCert), with(issued(t, "me", time.Hour, 80))},
		"too long a chain":            {mutual(tls.RequireAndVerifyClientCert), with(issued(t, "me", time.Hour, 900))},
		"an expired one":              {mutual(tls.RequireAndVerifyClientCert), with(issued(t, "me", -time.Minute, 0))},
		"one of another authority":    {mutual(tls.VerifyClientCertIfGiven), with(ofRSA)},
		"one of another, not checked": {mutual(tls.RequireAnyClientCert), with(ofRSA)},
		"none":                        {mutual(tls.RequireAndVerifyClientCert), nil},
		"none, which may be":          {mutual(tls.VerifyClientCertIfGiven), nil},
		"another group is asked for": {func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} },
			func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP521} }},
		"no common group": {func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} },
			func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }},
		"no common version": {func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
			func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }},
		"an old version": {func(c *tls.Config) { c.MinVersion = tls.VersionTLS10 },
			func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }},
		"no common suite": {func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
		}, func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
		}},
		"no protocol":              {nil, protos()},
		"another protocol":         {protos("http/1.1"), protos("other")},
		"a protocol with line end": {protos("http/1.1"), protos("a\r\nhttp: TLS handshake error from nowhere")},
		"many protocols":           {protos("http/1.1"), protos(slices.Repeat([]string{"other"}, 900)...)},
		"no certificate": {func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, failing }
		}, nil},
		"no certificate and no error": {func(c *tls.Config) {
			c.Certificates = nil
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
		}, nil},
		"no configuration": {func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, failing }
		}, nil},
		"another configuration": {func(c *tls.Config) {
			other := &tls.Config{Certificates: []tls.Certificate{pair()}, SessionTicketsDisabled: true,
				NextProtos: []string{"http/1.1"}}
			mutual(tls.RequireAndVerifyClientCert)(other)
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return other, nil }
		}, with(issued(t, "me", time.Hour, 0))},
		"the connection is refused": {func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return failing }
		}, nil},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(name+", "+tls.VersionName(version), func(t *testing.T) {
				t.Parallel()
				made := func() *tls.Config {
					c := &tls.Config{Certificates: []tls.Certificate{pair()}, NextProtos: []string{"http/1.1"}}
					if tt.server != nil {
						tt.server(c)
					}
					return c
				}
				var closed chan struct{}
				sameBetween(t, func(t testing.TB, s *Server) *fixture {
					return serveStandardOn(t, s,
						func(l net.Listener) net.Listener { return tls.NewListener(l, made()) })
				}, func(t testing.TB, s *Server) *fixture {
					s.TLSConfig = made()
					s.Protocols = new(http.Protocols)
					s.Protocols.SetHTTP1(true)
					return serveTLSAs(t, s)
				}, func(s *Server) {
					ends := make(chan struct{}, 10)
					closed = ends
					s.Handler = reportTLS
					s.ConnState = func(_ net.Conn, state http.ConnState) {
						if state == http.StateClosed {
							ends <- struct{}{}
						}
					}
				}, func(t *testing.T, f *fixture, r *record) {
					cc := trusting()
					cc.MaxVersion, cc.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
					if tt.client != nil {
						tt.client(cc)
					}
					for range 3 {
						tc := tls.Client(dial(t, f), cc)
						_, _ = io.WriteString(tc, last)
						got, err := io.ReadAll(tc)
						_, body, _ := strings.Cut(string(got), "\r\n\r\n")
						if before, key, found := strings.Cut(body, " key "); found {
							state := tc.ConnectionState()
							want, err := state.ExportKeyingMaterial("EXPORTER-test", nil, 8)
							body = fmt.Sprint(before, " same key ", key == fmt.Sprintf("%x %v", want, err))
						}
						r.add("%s; %v", body, err)
						tc.Close()
						receive(t, closed)
					}
					text := f.log.String()
					if first, _, found := strings.Cut(text, "\n"); found { // the others are counted
						first, _, _ = strings.Cut(first, ": current time ")
						r.add("logged %.300s", plain(first))
					}
				})
			})
		}
	}
}
