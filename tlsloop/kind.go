package tlsloop

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/pace"
)

// A kind is what the sessions of one Handler, Client or Listener share. One Config serves all of
// them: a copy would cost a session more than its keys.
type kind struct {
	config *tls.Config
	client bool
	slow   bool // something in it may block and cannot be called elsewhere: whole steps are
	o      Options

	notLean error // why LeanTLS, which was asked for, is not in force
	told    sync.Once

	failures pace.Reports
	silent   pace.Reports // of peers that have sent nothing, as balancers do to see whether a server is there
}

func newKind(cfg *tls.Config, client bool, o Options) *kind {
	if cfg == nil {
		cfg = new(tls.Config)
	}
	k := &kind{config: cfg, client: client, o: o, slow: blocks(cfg)}
	if cfg.GetCertificate != nil || cfg.GetConfigForClient != nil || cfg.GetClientCertificate != nil || client &&
		cfg.Renegotiation != tls.RenegotiateNever {
		k.config = cfg.Clone()
		k.config.Renegotiation = tls.RenegotiateNever
		callElsewhere(k.config)
	}
	if !client && o.LeanTLS {
		if k.notLean = ownRecords(cfg); k.notLean == nil {
			k.takeSecrets(cfg)
		}
	}
	return k
}

// tellNotLean logs once that LeanTLS is not in force.
func (k *kind) tellNotLean(c *myriad.Conn) {
	if k.notLean != nil {
		k.told.Do(func() {
			c.Loop().Engine().Logger().Warn("tlsloop: LeanTLS is not in force, crypto/tls keeps the connections",
				"reason", k.notLean)
		})
	}
}

// blocks reports whether cfg has a callback that may block and gets no context. Without one
// callElsewhere cannot find the handshake.
func blocks(cfg *tls.Config) bool {
	return cfg.VerifyPeerCertificate != nil || cfg.VerifyConnection != nil || cfg.WrapSession != nil ||
		cfg.UnwrapSession != nil ||
		cfg.KeyLogWriter != nil || cfg.EncryptedClientHelloRejectionVerify != nil ||
		cfg.GetEncryptedClientHelloKeys != nil ||
		slices.ContainsFunc(cfg.Certificates, func(c tls.Certificate) bool { return remote(c.PrivateKey) })
}

// remote reports whether a key may be outside of this process, so that signing with it may block.
func remote(key crypto.PrivateKey) bool {
	switch key.(type) {
	case nil, *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
		return false
	}
	return true
}

// callElsewhere wraps the callbacks that may block.
func callElsewhere(cfg *tls.Config) {
	if f := cfg.GetCertificate; f != nil {
		cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (cert *tls.Certificate, err error) {
			elsewhere(hello.Context(), func() { cert, err = f(hello) })
			mayBlock(hello.Context(), cert != nil && remote(cert.PrivateKey))
			return cert, err
		}
	}
	if f := cfg.GetClientCertificate; f != nil {
		cfg.GetClientCertificate = func(request *tls.CertificateRequestInfo) (cert *tls.Certificate, err error) {
			elsewhere(request.Context(), func() { cert, err = f(request) })
			mayBlock(request.Context(), cert != nil && remote(cert.PrivateKey))
			return cert, err
		}
	}
	if f := cfg.GetConfigForClient; f != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (other *tls.Config, err error) {
			elsewhere(hello.Context(), func() { other, err = f(hello) })
			mayBlock(hello.Context(), other != nil && (blocks(other) || other.GetCertificate != nil))
			return other, err
		}
	}
}

// mayBlock has the rest of a handshake done where it may block.
func mayBlock(ctx context.Context, slow bool) {
	h, _ := ctx.Value(handshakeKey{}).(*handshake)
	if h == nil || h.slow || !slow {
		return
	}
	h.slow = true
	h.call = func() {}
	h.yield(struct{}{})
}

func (k *kind) timeout() time.Duration {
	switch {
	case k.o.Timeout < 0:
		return 0
	case k.o.Timeout == 0:
		return defaultTimeout
	}
	return k.o.Timeout
}

// answer is for a peer that does not speak TLS.
func (k *kind) answer(err error) []byte {
	var e tls.RecordHeaderError
	if k.o.NotTLS == nil || !errors.As(err, &e) || e.Conn == nil {
		return nil
	}
	return k.o.NotTLS(e.RecordHeader)
}

// reportEnd reports a conn that closed before its handshake has ended. A client's that gave up by
// itself is none. began: the peer has sent something.
func (k *kind) reportEnd(c *myriad.Conn, err error, began bool) {
	if err = reason(err); !k.client || !errors.Is(err, myriad.ErrClosed) {
		k.report(c, err, began)
	}
}

// bury tells the heir, if there is one, of a conn that closed before it was opened.
func (k *kind) bury(c *myriad.Conn, err error, heir myriad.Handler) {
	if heir != nil {
		heir.Opened(c)
		heir.Closed(c, reason(err))
	}
}

// reason is err, or that the conn was closed at this end.
func reason(err error) error {
	if err == nil {
		return myriad.ErrClosed
	}
	return err
}

// report reports a failure, at most once in reportPeriod. Peers that have sent nothing are counted
// apart, or they would hide others. On a loop, or behind its end.
func (k *kind) report(c *myriad.Conn, err error, began bool) {
	reports := &k.failures
	if !began {
		reports = &k.silent
	}
	n, due := reports.Next(c.Loop().Engine().System().Now(), reportPeriod)
	if !due {
		return
	}
	if k.o.Failed != nil {
		k.o.Failed(c, err, n)
		return
	}
	c.Loop().Engine().Logger().Warn("tlsloop: handshakes failed", "times", n, "last", shorten(err.Error()), "remote",
		c.RemoteAddr().String())
}

// shorten bounds what a log is given: some errors quote the peer.
func shorten(text string) string {
	const most = 512
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
