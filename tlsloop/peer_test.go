package tlsloop_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// A recordPeer is a TLS 1.3 client in units of records: crypto/tls has made its handshake, and from
// then on it seals and opens records by itself, with the secrets that crypto/tls tells a key log.
// It can say what a tls.Conn never would.
type recordPeer struct {
	net.Conn
	t       testing.TB
	in, out direction
}

// A direction is one way's key and count.
type direction struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

const (
	recordAlert       = 21
	recordHandshake   = 22
	recordApplication = 23
)

// newRecordPeer handshakes with a server whose session tickets are off, so that nothing has been
// sent in either direction.
func newRecordPeer(t testing.TB, addr string) *recordPeer {
	t.Helper()
	var keys bytes.Buffer
	cfg := clientConfig()
	cfg.KeyLogWriter, cfg.MinVersion = &keys, tls.VersionTLS13
	tc := dial(t, addr, cfg)
	if id := tc.ConnectionState().CipherSuite; id != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("crypto/tls prefers %s on this machine", tls.CipherSuiteName(id))
	}
	p := &recordPeer{Conn: tc.NetConn(), t: t}
	takeSecrets(t, keys.String(), &p.out, &p.in)
	return p
}

// newRecordServer is the other side of that: it makes the server's side of a handshake on nc.
func newRecordServer(t testing.TB, nc net.Conn) *recordPeer {
	t.Helper()
	var keys bytes.Buffer
	cfg := ticketless()
	cfg.KeyLogWriter, cfg.MinVersion = &keys, tls.VersionTLS13
	tc := tls.Server(nc, cfg)
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if id := tc.ConnectionState().CipherSuite; id != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("crypto/tls prefers %s on this machine", tls.CipherSuiteName(id))
	}
	p := &recordPeer{Conn: nc, t: t}
	takeSecrets(t, keys.String(), &p.in, &p.out)
	return p
}

// takeSecrets takes the secrets of both ways out of a key log.
func takeSecrets(t testing.TB, log string, client, server *direction) {
	t.Helper()
	for line := range strings.Lines(log) {
		f := strings.Fields(line)
		secret, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		switch f[0] {
		case "CLIENT_TRAFFIC_SECRET_0":
			client.use(secret)
		case "SERVER_TRAFFIC_SECRET_0":
			server.use(secret)
		}
	}
}

func expandLabel(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(len(label)))
	out, err := hkdf.Expand(sha256.New, secret, string(append(append(info, label...), 0)), n)
	if err != nil {
		panic(err)
	}
	return out
}

func (d *direction) use(secret []byte) {
	block, err := aes.NewCipher(expandLabel(secret, "key", 16))
	if err != nil {
		panic(err)
	}
	d.secret, d.seq, d.iv = secret, 0, expandLabel(secret, "iv", 12)
	if d.aead, err = cipher.NewGCM(block); err != nil {
		panic(err)
	}
}

// update goes on to the next generation of keys (RFC 8446, section 7.2).
func (d *direction) update() { d.use(expandLabel(d.secret, "traffic upd", 32)) }

func (d *direction) nonce() []byte {
	n := bytes.Clone(d.iv)
	seq := binary.BigEndian.AppendUint64(nil, d.seq)
	for i := range seq {
		n[4+i] ^= seq[i]
	}
	d.seq++
	return n
}

// seal is a record with the text and padding zeros.
func (p *recordPeer) seal(kind byte, text string, padding int) []byte {
	inner := append(append([]byte(text), kind), make([]byte, padding)...)
	n := len(inner) + p.out.aead.Overhead()
	header := []byte{recordApplication, 3, 3, byte(n >> 8), byte(n)}
	return append(header, p.out.aead.Seal(nil, p.out.nonce(), inner, header)...)
}

// keyUpdate is the message (RFC 8446, section 4.6.3) in a record; what is sealed later has the new
// keys.
func (p *recordPeer) keyUpdate(request byte) []byte {
	r := p.seal(recordHandshake, string([]byte{24, 0, 0, 1, request}), 0)
	p.out.update()
	return r
}

// next reads a record.
func (p *recordPeer) next() (kind byte, text string, err error) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(p.Conn, header); err != nil {
		return 0, "", err
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(p.Conn, body); err != nil {
		return 0, "", err
	}
	inner, err := p.in.aead.Open(nil, p.in.nonce(), body, header)
	if err != nil {
		return 0, "", errors.New("a record that is not in order, or not sealed with the key that is due")
	}
	inner = bytes.TrimRight(inner, "\x00")
	kind, text = inner[len(inner)-1], string(inner[:len(inner)-1])
	if kind == recordHandshake && text[0] == 24 {
		p.in.update()
	}
	return kind, text, nil
}

// expect reads application data until it has want.
func (p *recordPeer) expect(want string) {
	p.t.Helper()
	got := ""
	for len(got) < len(want) {
		kind, text, err := p.next()
		if err != nil {
			p.t.Fatalf("after %d of %d bytes: %v", len(got), len(want), err)
		}
		if kind == recordApplication {
			got += text
		}
	}
	if got != want {
		p.t.Fatalf("got %.60q, want %.60q", got, want)
	}
}

// expectAlert reads up to an alert, and then the end of the stream: the alert must not be lost to a
// reset.
func (p *recordPeer) expectAlert(want tls.AlertError) {
	p.t.Helper()
	for {
		kind, text, err := p.next()
		if err != nil {
			p.t.Fatalf("no alert: %v", err)
		}
		if kind != recordAlert {
			continue
		}
		if tls.AlertError(text[1]) != want {
			p.t.Fatalf("alert %v, want %v", tls.AlertError(text[1]), want)
		}
		break
	}
	if kind, text, err := p.next(); err != io.EOF {
		p.t.Fatalf("after the alert: record %d %x, %v", kind, text, err)
	}
}

func (p *recordPeer) write(records ...[]byte) {
	p.t.Helper()
	if _, err := p.Conn.Write(bytes.Join(records, nil)); err != nil {
		p.t.Fatal(err)
	}
}

// String keeps the keys out of a failing test's output.
func (p *recordPeer) String() string { return fmt.Sprintf("peer of %v", p.Conn.RemoteAddr()) }

// A chopper writes in pieces, whose lengths it takes in turn.
type chopper struct {
	net.Conn
	sizes []int
	turn  int
}

func (c *chopper) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		size := min(c.sizes[c.turn%len(c.sizes)], len(p)-n)
		c.turn++
		var m int
		m, err = c.Conn.Write(p[n : n+size])
		n += m
	}
	return n, err
}
