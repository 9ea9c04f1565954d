package record_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/tlsloop/internal/record"
	"github.com/myriad-go/myriad/tlsloop/internal/record/recordtest"
)

const (
	alert       = 21
	handshake   = 22
	application = 23
)

// suites runs a test with each suite that the package knows.
func suites(t *testing.T, f func(t *testing.T, suite uint16)) {
	for _, id := range []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384} {
		t.Run(tls.CipherSuiteName(id), func(t *testing.T) { f(t, id) })
	}
}

var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// An end is a net.Conn that a test can exchange for a script behind the handshake.
type end struct {
	net.Conn
	scripted bool
	in       []byte
	out      bytes.Buffer
}

func (e *end) Read(p []byte) (int, error) {
	switch {
	case !e.scripted:
		return e.Conn.Read(p)
	case len(e.in) == 0:
		return 0, io.EOF
	}
	n := copy(p, e.in)
	e.in = e.in[n:]
	return n, nil
}

func (e *end) Write(p []byte) (int, error) {
	if !e.scripted {
		return e.Conn.Write(p)
	}
	return e.out.Write(p)
}

func (*end) SetWriteDeadline(time.Time) error { return nil }

// pair is a server of crypto/tls behind its handshake, on a script, and its client.
func pair(t testing.TB, suite uint16) (*tls.Conn, *end, *recordtest.Client) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	log := new(recordtest.KeyLog)
	server := &end{Conn: b}
	tc := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate()}, KeyLogWriter: log,
		SessionTicketsDisabled: true})
	done := make(chan error, 1)
	go func() {
		err := tc.Handshake()
		if err != nil {
			b.Close()
		}
		done <- err
	}()
	c, err := recordtest.Handshake(a, suite, log)
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	server.scripted = true
	return tc, server, c
}

// A side is a Reader and a Writer as a connection uses them: it answers and buffers.
type side struct {
	reader  record.Reader
	writer  record.Writer
	opens   *record.Cipher
	seals   *record.Cipher
	held    []byte
	outcome outcome
}

// An outcome is what a stream of records has led to.
type outcome struct {
	data  string
	sent  []byte // as records
	err   error  // nil: it goes on; io.EOF: a close_notify
	alert tls.AlertError
}

func newSide(t testing.TB, suite uint16, in, out []byte) *side {
	t.Helper()
	id, ok := record.SuiteOf(suite)
	s := new(side)
	if !ok || !s.reader.Set(id, in) || !s.writer.Set(id, out) {
		t.Fatal("the suite or its secrets are not accepted")
	}
	s.opens, s.seals = s.reader.Cipher(), s.writer.Cipher()
	return s
}

// take is given the next bytes of the stream, in any number.
func (s *side) take(p []byte) {
	s.held = append(s.held, p...)
	for s.outcome.err == nil {
		n, f := record.Size(s.held)
		if f == nil && len(s.held) < n || f == nil && n == record.HeaderLen && len(s.held) < record.HeaderLen {
			return
		}
		var data []byte
		var e record.Event
		if f == nil {
			e, data, f = s.reader.Open(s.opens, s.held[:n])
		}
		if f != nil {
			s.fail(f)
			return
		}
		switch e {
		case record.Data:
			s.outcome.data += string(data)
		case record.Requested:
			s.outcome.sent = s.writer.SealUpdate(s.seals, s.outcome.sent)
			s.seals = s.writer.Cipher()
			fallthrough
		case record.Updated:
			s.opens = s.reader.Cipher()
		case record.Closed:
			s.outcome.err = io.EOF
		}
		s.held = s.held[n:]
	}
}

func (s *side) fail(f *record.Failure) {
	s.outcome.err = errOf(f)
	if content := f.AppendAlert(nil); len(content) > 0 {
		s.outcome.alert = tls.AlertError(content[1])
		s.outcome.sent = s.writer.Seal(s.seals, s.outcome.sent, record.Alert, content)
	}
}

// errOf is the error that a connection ends with.
func errOf(f *record.Failure) error {
	switch {
	case f.Err != nil:
		return f.Err
	case f.Remote:
		return &net.OpError{Op: "remote error", Err: f.Alert}
	}
	return &net.OpError{Op: "local error", Err: f.Alert}
}

// ofCryptoTLS is what a tls.Conn makes of the same stream. peer follows what it sends.
func ofCryptoTLS(tc *tls.Conn, script *end, peer *recordtest.Client, stream []byte) (o outcome) {
	script.in = stream
	p := make([]byte, record.MaxPlaintext)
	for {
		n, err := tc.Read(p)
		o.data += string(p[:n])
		if err != nil {
			o.err = err
			break
		}
	}
	o.sent = bytes.Clone(script.out.Bytes())
	for sent := bytes.NewReader(o.sent); sent.Len() > 0; {
		r, err := recordtest.ReadRecord(sent)
		if err != nil {
			o.err = err
			return o
		}
		kind, text, err := peer.In.Open(r)
		if err != nil {
			o.err = err
			return o
		}
		if kind == alert {
			o.alert = tls.AlertError(text[1])
		}
	}
	return o
}
