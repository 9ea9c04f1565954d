package tlsloop

import (
	"bytes"
	"crypto/fips140"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"github.com/myriad-go/myriad/tlsloop/internal/record"
)

// secrets are what a server's handshake leaves to records that are to go on behind it. They are
// owned by the goroutine that steps it, and then by the loop. Nil is that of a handshake whose
// secrets are not taken.
//
// The Config of a connection that stays with its tls.Conn refers to them for the connection's life.
// So they lie apart from the handshake, and are empty then.
type secrets struct {
	client, server []byte
	flight         []byte // what the tls.Conn has written since it had the server's
	strange        bool   // a line of the key log is not understood
}

// A keyLog is the KeyLogWriter of one connection. crypto/tls calls it before it writes the first
// record with the server's secret, and before Handshake returns.
type keyLog struct {
	secrets *secrets
	users   io.Writer // of the caller's Config, or nil
}

// Write takes one line: a label, the client's random bytes and a secret. If no user gets it, Write
// overwrites it, because crypto/tls has made it for this call.
func (l keyLog) Write(line []byte) (int, error) {
	l.secrets.note(line)
	if l.users != nil {
		return l.users.Write(line)
	}
	clear(line)
	return len(line), nil
}

func (s *secrets) note(line []byte) {
	label, rest, _ := bytes.Cut(line, []byte(" "))
	var to *[]byte
	switch string(label) {
	case "CLIENT_TRAFFIC_SECRET_0":
		to = &s.client
	case "SERVER_TRAFFIC_SECRET_0":
		to = &s.server
	default:
		return
	}
	_, text, _ := bytes.Cut(bytes.TrimSuffix(rest, []byte("\n")), []byte(" "))
	secret := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(secret, text); err != nil || *to != nil {
		s.strange = true
	}
	clear(*to)
	*to = secret
}

// sent takes note of what the tls.Conn writes during the handshake.
func (s *secrets) sent(p []byte) {
	if s != nil && s.server != nil {
		s.flight = append(s.flight, p...)
	}
}

// complete reports whether records have what they need, if they know the suite.
func (s *secrets) complete() bool {
	return s != nil && s.client != nil && s.server != nil && !s.strange
}

// records are what goes on behind the handshake, or nil if crypto/tls must. The tls.Conn has read
// nothing behind Finished.
func (s *secrets) records(state *tls.ConnectionState, fullRecords bool) *records {
	suite, known := record.SuiteOf(state.CipherSuite)
	if !s.complete() || !known || state.Version != tls.VersionTLS13 || !state.HandshakeComplete {
		return nil
	}
	r := new(records)
	if !r.reader.Set(suite, s.client) || !r.writer.Set(suite, s.server) || !r.writer.Follow(s.flight) {
		r.reader.Erase()
		r.writer.Erase()
		return nil
	}
	if fullRecords {
		r.writer.AlwaysFull()
	}
	return r
}

// erase overwrites the secrets.
func (s *secrets) erase() {
	if s == nil {
		return
	}
	clear(s.client)
	clear(s.server)
	*s = secrets{}
}

// ownRecords returns why no records may go on behind handshakes with cfg, or nil if they may. A
// Config that chooses another by itself, or that hides the ClientHello, stays with crypto/tls.
func ownRecords(cfg *tls.Config) error {
	switch {
	case cryptoTLSOnly:
		return errors.New("tlsloop: boringcrypto keeps all TLS")
	case fips140.Enabled():
		return errors.New("tlsloop: in FIPS mode crypto/tls keeps all connections")
	case cfg.GetConfigForClient != nil:
		return errors.New("tlsloop: the Config has GetConfigForClient")
	case cfg.GetEncryptedClientHelloKeys != nil || len(cfg.EncryptedClientHelloKeys) > 0:
		return errors.New("tlsloop: the Config has keys for encrypted hellos")
	case cfg.MaxVersion != 0 && cfg.MaxVersion < tls.VersionTLS13:
		return errors.New("tlsloop: the Config's MaxVersion excludes TLS 1.3")
	}
	return recordsWork()
}

// takeSecrets has handshakes of k give away their secrets. Each has a Config of its own, which only
// its KeyLogWriter distinguishes. users is the caller's Config, whose ticket keys all of them use.
func (k *kind) takeSecrets(users *tls.Config) {
	shared := k.config.Clone()
	if shared.WrapSession == nil {
		shared.WrapSession = users.EncryptTicket
	}
	if shared.UnwrapSession == nil {
		shared.UnwrapSession = users.DecryptTicket
	}
	shared.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		h, _ := hello.Context().Value(handshakeKey{}).(*handshake)
		if h == nil || !mayKnow(hello) {
			return nil, nil // it goes on with shared
		}
		own := shared.Clone()
		own.GetConfigForClient = nil
		h.secrets = new(secrets)
		own.KeyLogWriter = keyLog{h.secrets, shared.KeyLogWriter}
		return own, nil
	}
	k.config = shared
}

// mayKnow reports whether a handshake with hello may lead to a version and suite that package
// record knows. It saves a Config where crypto/tls will choose others.
func mayKnow(hello *tls.ClientHelloInfo) bool {
	if !slices.Contains(hello.SupportedVersions, tls.VersionTLS13) {
		return false
	}
	for _, id := range hello.CipherSuites { // crypto/tls follows a client that puts ChaCha20 first
		if _, ok := record.SuiteOf(id); ok || id == tls.TLS_CHACHA20_POLY1305_SHA256 {
			return ok
		}
	}
	return false
}
