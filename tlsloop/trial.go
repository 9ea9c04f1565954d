package tlsloop

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/myriad-go/myriad/tlsloop/internal/record"
)

// recordsWork returns nil if records can go on behind handshakes of the crypto/tls that the program
// was built with. If not, crypto/tls keeps all connections.
var recordsWork = sync.OnceValue(tryRecords)

// errUntried is the error of a trial whose handshake has another suite.
var errUntried = errors.New("tlsloop: crypto/tls does not prefer AES-GCM on this processor")

// tryRecords makes a handshake between two tls.Conns in memory, and goes on with records behind the
// server's. The client says whether all is as expected: a ticket, data both ways, key updates of
// the server and the end. It takes about a millisecond.
//
// It tries the suite that crypto/tls chooses by itself, which is AES-128-GCM. A tls.Conn cannot be
// made to choose AES-256-GCM, nor to send a KeyUpdate: tests try both with a client of their own.
func tryRecords() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("tlsloop: panic in the trial: %v", v)
		}
	}()
	toServer, toClient := new(bytes.Buffer), new(bytes.Buffer)
	var s secrets
	serverEnd := &trialEnd{in: toServer, out: toClient, sent: s.sent}
	clientEnd := &trialEnd{in: toClient, out: toServer, sent: func([]byte) {}}
	cert, err := trialCertificate()
	if err != nil {
		return err
	}
	clock := func() time.Time { return trialTime }
	server := tls.Server(serverEnd, &tls.Config{Certificates: []tls.Certificate{cert}, Time: clock,
		KeyLogWriter: keyLog{&s, nil}})
	client := tls.Client(clientEnd, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Time: clock,
		ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(1)})
	if err := shakeHands(server, serverEnd, client, clientEnd); err != nil {
		return err
	}
	state := server.ConnectionState()
	if _, known := record.SuiteOf(state.CipherSuite); !known {
		return errUntried // clients that offer AES-GCM alone would have records without a trial
	}
	r := s.records(&state, false)
	switch {
	case r == nil:
		return errors.New("tlsloop: the trial's secrets or records are not understood")
	case r.writer.Number() != 1:
		return fmt.Errorf("tlsloop: %d records of the trial have a ticket, want 1", r.writer.Number())
	}
	defer r.erase()
	return converse(r, client, toServer, toClient)
}

// converse has client talk with a server that is r.
func converse(r *records, client *tls.Conn, toServer, toClient *bytes.Buffer) error {
	p := make([]byte, 100)
	for _, text := range []string{"one", "two"} {
		toClient.Write(r.append(nil, record.ApplicationData, []byte(text)))
		toClient.Write(r.appendUpdate(nil))
		if n, err := client.Read(p); string(p[:n]) != text || err != nil {
			return fmt.Errorf("tlsloop: the trial's client has read %q, %w", p[:n], err)
		}
		if _, err := client.Write([]byte(text)); err != nil {
			return err
		}
		e, data, f := r.open(toServer.Next(toServer.Len()))
		if e != record.Data || string(data) != text || f != nil {
			return fmt.Errorf("tlsloop: the trial's server has read %q, event %d", data, e)
		}
	}
	if err := client.CloseWrite(); err != nil {
		return err
	}
	if e, _, f := r.open(toServer.Next(toServer.Len())); e != record.Closed || f != nil {
		return fmt.Errorf("tlsloop: the end of the trial is event %d", e)
	}
	notice := record.CloseNotify()
	toClient.Write(r.append(nil, record.Alert, notice[:]))
	if n, err := client.Read(p); n != 0 || err != io.EOF {
		return fmt.Errorf("tlsloop: at the end the trial's client has read %d bytes, %w", n, err)
	}
	return nil
}

// shakeHands runs both sides of a handshake in turn, each until it waits for the other.
func shakeHands(server *tls.Conn, serverEnd *trialEnd, client *tls.Conn, clientEnd *trialEnd) error {
	var errs [2]error
	side := func(i int, tc *tls.Conn, e *trialEnd) iter.Seq[struct{}] {
		return func(yield func(struct{}) bool) {
			e.yield = yield
			errs[i] = tc.Handshake()
			e.yield = nil
		}
	}
	stepClient, stopClient := iter.Pull(side(0, client, clientEnd))
	defer stopClient()
	stepServer, stopServer := iter.Pull(side(1, server, serverEnd))
	defer stopServer()
	for range 20 {
		_, clientGoesOn := stepClient()
		_, serverGoesOn := stepServer()
		if !clientGoesOn && !serverGoesOn {
			return errors.Join(errs[:]...)
		}
	}
	return errors.New("tlsloop: the trial's handshake has no end")
}

// A trialEnd is the net.Conn of one side of a trial. During the handshake its Read yields where it
// would wait.
type trialEnd struct {
	net.Conn
	in, out *bytes.Buffer
	yield   func(struct{}) bool // nil behind the handshake
	sent    func(p []byte)
}

func (e *trialEnd) Read(p []byte) (int, error) {
	for e.in.Len() == 0 {
		switch {
		case e.yield == nil:
			return 0, errWouldBlock
		case !e.yield(struct{}{}):
			return 0, io.ErrUnexpectedEOF
		}
	}
	return e.in.Read(p)
}

func (e *trialEnd) Write(p []byte) (int, error) {
	e.sent(p)
	return e.out.Write(p)
}

func (*trialEnd) SetWriteDeadline(time.Time) error { return nil }

// trialTime is a time at which the trial's certificate is valid.
var trialTime = time.Unix(1_750_000_000, 0)

// trialCertificate is one whose key everybody knows. Only a trial trusts it, which is with itself.
func trialCertificate() (tls.Certificate, error) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: trialTime.Add(-time.Hour), NotAfter: trialTime.Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
