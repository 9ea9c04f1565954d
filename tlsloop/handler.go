package tlsloop

import (
	"crypto/tls"
	"time"

	"github.com/myriad-go/myriad"
)

const (
	// defaultTimeout is Options.Timeout for 0.
	defaultTimeout = 10 * time.Second
	// reportPeriod is the time between two reports of failures.
	reportPeriod = 10 * time.Second
)

// Options are the settings of a Handler, a Client or a Dial besides its tls.Config. The zero value
// works.
type Options struct {
	// Timeout bounds the handshake, from the moment the connection is there. 0: 10 s; negative: no
	// bound.
	Timeout time.Duration
	// Failed is called with a failed handshake and the number of failures since its last call: at
	// once, then once in 10 s at most. Peers that have sent no byte count apart, so that the probes
	// of a load balancer hide no other failure. A connection closed at this end counts as failed
	// for a server, not for a client. Failed runs on the loop, before Closed, and must not block.
	// Nil: the engine's Logger reports failures, except those of Dial, which returns them.
	Failed func(c *myriad.Conn, err error, times uint64)
	// Closed is called for every connection that ends before its handshake has succeeded, with the
	// reason; nil if it was closed at this end. For a client it is called as soon as the handshake
	// has failed: the connection may still send an alert, and then ends by itself. It runs on the
	// loop and must not block.
	Closed func(c *myriad.Conn, err error)
	// NotTLS returns an unencrypted answer to a peer whose first five bytes are no TLS record, in
	// the protocol that the peer seems to speak. If it is nil or returns nothing, the connection is
	// closed without an answer.
	NotTLS func(header [5]byte) []byte
	// LeanTLS has a server's connections of TLS 1.3 with AES-GCM leave crypto/tls behind their
	// handshake: records of ours then take a quarter of the memory of an idle tls.Conn
	// (docs/adr/0040). What such a connection is outside of the engine is no *tls.Conn, but has the
	// methods of one that a caller of Hijack looks for. Its Read returns io.EOF behind the peer's
	// close_notify alone, where a tls.Conn also does so for a FIN between two records: then it is
	// io.ErrUnexpectedEOF.
	//
	// TLS 1.2, other suites, FIPS mode, a Config with GetConfigForClient or keys for encrypted
	// hellos, and clients stay with crypto/tls. If none of a Handler's connections can leave it,
	// for example on a processor without AES instructions, the engine's Logger says so once.
	//
	// Secrets come from Config.KeyLogWriter, which crypto/tls calls under one mutex for the whole
	// process. So a KeyLogWriter that blocks, of any other Config of the process, stops the
	// handshakes of an engine with LeanTLS until it returns.
	LeanTLS bool
}

// Handler serves TLS. After the server's side of a handshake it opens the handler that pick returns
// for the connection's state (ALPN, SNI, certificates). If pick returns nil, the connection is
// closed. pick runs on the loop and must not block. Failed handshakes are logged, once in 10 s.
//
// cfg may be shared and must not be changed any more. SetSessionTicketKeys may be called on it,
// unless it has callbacks that choose a certificate or a Config: then a copy is used. With LeanTLS
// in force (see Options), a callback that chooses a certificate does not matter: the tickets have
// the keys of cfg.
func Handler(cfg *tls.Config, pick func(tls.ConnectionState) myriad.Handler) myriad.Handler {
	return Options{}.Handler(cfg, pick)
}

// Handler is the function Handler with these options.
func (o Options) Handler(cfg *tls.Config, pick func(tls.ConnectionState) myriad.Handler) myriad.Handler {
	return &opener{kind: newKind(cfg, false, o), pick: pick}
}

// Client is for Engine.Dial: the client's side of a handshake, after which h is opened.
// cfg.ServerName must be set, or InsecureSkipVerify. Dial returns when the connection stands,
// before the handshake; what is written until then is sent after it. If the handshake fails, h is
// opened only to be closed with the reason. See Dial for one that waits.
//
// cfg.Renegotiation is taken to be RenegotiateNever: a handshake has no place on a loop.
// cfg.ClientSessionCache is called on the loop and must not block.
func Client(cfg *tls.Config, h myriad.Handler) myriad.Handler { return Options{}.Client(cfg, h) }

// Client is the function Client with these options.
func (o Options) Client(cfg *tls.Config, h myriad.Handler) myriad.Handler {
	return &opener{kind: newKind(cfg, true, o), pick: func(tls.ConnectionState) myriad.Handler { return h }, heir: h}
}

// An opener is the first handler of a conn. It is replaced by a handshake at once.
type opener struct {
	kind    *kind
	pick    func(tls.ConnectionState) myriad.Handler
	heir    myriad.Handler
	quiet   bool     // the heir is not called with a failure: Dial returns it
	session *session // of an adopted conn, which has its tls.Conn; else one is made
}

// Opened puts the layer below.
func (o *opener) Opened(c *myriad.Conn) {
	s := o.session
	if s == nil {
		s = newSession(o.kind)
	}
	o.kind.tellNotLean(c)
	s.conn = c
	s.hs = newHandshake(s, o)
	c.SetLayer(s)
	c.SetHandler(s.hs, nil)
}

// Heir is the handler that a client's conn will have, which the engine has to know from the
// beginning if it is a Stream's.
func (o *opener) Heir() myriad.Handler { return o.heir }

// Received is never called.
func (*opener) Received(*myriad.Conn, []byte) {}

// Closed is called if the conn ends before the handshake can be its handler.
func (o *opener) Closed(c *myriad.Conn, err error) {
	o.kind.reportEnd(c, err, false)
	if f := o.kind.o.Closed; f != nil {
		f(c, err)
	}
	if !o.quiet {
		o.kind.bury(c, err, o.heir)
	}
}

func newSession(k *kind) *session {
	s := &session{kind: k}
	if k.client {
		s.tls = tls.Client((*pipe)(s), k.config)
	} else {
		s.tls = tls.Server((*pipe)(s), k.config)
	}
	return s
}
