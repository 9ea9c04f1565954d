// Package recordtest has a client of TLS 1.3 for tests, which chooses its cipher suite and seals
// any record that it likes. It shares no code with package record.
package recordtest

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	_ "crypto/sha256" // the hashes of the suites
	_ "crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// A KeyLog is the Config.KeyLogWriter of a server, from which the client has its secrets.
type KeyLog struct {
	mu      sync.Mutex
	secrets map[string][]byte
}

// Write implements io.Writer.
func (l *KeyLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.secrets == nil {
		l.secrets = map[string][]byte{}
	}
	f := strings.Fields(string(line))
	secret, err := hex.DecodeString(f[2])
	l.secrets[f[0]+" "+f[1]] = secret
	return len(line), err
}

// Secret is the one with a label and a client's random bytes.
func (l *KeyLog) Secret(label string, random []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.secrets[fmt.Sprintf("%s %x", label, random)]
	if s == nil {
		return nil, fmt.Errorf("recordtest: the server has not logged %s", label)
	}
	return s, nil
}

// A Direction is one way's keys.
type Direction struct {
	Hash   crypto.Hash
	keyLen int
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// New is a direction that begins with secret.
func New(suite uint16, secret []byte) *Direction {
	d := &Direction{Hash: crypto.SHA256, keyLen: 16}
	if suite == tls.TLS_AES_256_GCM_SHA384 {
		d.Hash, d.keyLen = crypto.SHA384, 32
	}
	d.use(secret)
	return d
}

func (d *Direction) expand(label string, n int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(len(label)))
	out, err := hkdf.Expand(d.Hash.New, d.secret, string(append(append(info, label...), 0)), n)
	if err != nil {
		panic(err)
	}
	return out
}

func (d *Direction) use(secret []byte) {
	d.secret, d.seq = secret, 0
	block, err := aes.NewCipher(d.expand("key", d.keyLen))
	if err != nil {
		panic(err)
	}
	d.iv = d.expand("iv", 12)
	if d.aead, err = cipher.NewGCM(block); err != nil {
		panic(err)
	}
}

// Update goes on to the next keys.
func (d *Direction) Update() { d.use(d.expand("traffic upd", d.Hash.Size())) }

func (d *Direction) nonce() []byte {
	n := bytes.Clone(d.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, d.seq) {
		n[4+i] ^= b
	}
	d.seq++
	return n
}

// Seal is a record with text of a kind and zeros behind it.
func (d *Direction) Seal(kind byte, text string, padding int) []byte {
	return d.SealInner(append(append([]byte(text), kind), make([]byte, padding)...))
}

// SealInner is a record with an inner plaintext, which need not have a type.
func (d *Direction) SealInner(inner []byte) []byte {
	n := len(inner) + d.aead.Overhead()
	header := []byte{23, 3, 3, byte(n >> 8), byte(n)}
	return append(header, d.aead.Seal(nil, d.nonce(), inner, header)...)
}

// KeyUpdate is the message in a record. What is sealed later has the new keys.
func (d *Direction) KeyUpdate(request byte) []byte {
	r := d.Seal(22, string([]byte{24, 0, 0, 1, request}), 0)
	d.Update()
	return r
}

// ErrSealed is Open's error.
var ErrSealed = errors.New("recordtest: a record that is not in order, or not sealed with the key that is due")

// Open is the content of a record. It follows a KeyUpdate.
func (d *Direction) Open(record []byte) (kind byte, text []byte, err error) {
	inner, err := d.aead.Open(nil, d.nonce(), record[5:], record[:5])
	if err != nil {
		return 0, nil, ErrSealed
	}
	if inner = bytes.TrimRight(inner, "\x00"); len(inner) == 0 {
		return 0, nil, errors.New("recordtest: a record of zeros")
	}
	kind, text = inner[len(inner)-1], inner[:len(inner)-1]
	if kind == 22 && text[0] == 24 {
		d.Update()
	}
	return kind, text, nil
}

// ReadRecord reads one record with its header.
func ReadRecord(r io.Reader) ([]byte, error) {
	record := make([]byte, 5)
	if _, err := io.ReadFull(r, record); err != nil {
		return nil, err
	}
	record = append(record, make([]byte, binary.BigEndian.Uint16(record[3:]))...)
	_, err := io.ReadFull(r, record[5:])
	return record, err
}

// A Client is one behind its handshake. What the server seals comes from In, and what it opens goes
// to Out.
type Client struct {
	In, Out                    *Direction
	ClientSecret, ServerSecret []byte
}

// Handshake makes the client's side of a handshake with suite on nc. log is the KeyLogWriter of the
// server, which need not show a certificate that anybody trusts.
func Handshake(nc net.Conn, suite uint16, log *KeyLog) (*Client, error) {
	return HandshakeWith(nc, suite, log, "")
}

// HandshakeWith is Handshake with more in the record that has Finished, behind it.
func HandshakeWith(nc net.Conn, suite uint16, log *KeyLog, behind string) (*Client, error) {
	random := make([]byte, 32)
	rand.Read(random)
	share, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	hello := clientHello(random, suite, share.PublicKey().Bytes())
	if _, err := nc.Write(append([]byte{22, 3, 1, byte(len(hello) >> 8), byte(len(hello))}, hello...)); err != nil {
		return nil, err
	}
	record, err := ReadRecord(nc)
	if err != nil {
		return nil, err
	}
	if record[0] != 22 || record[5] != 2 {
		return nil, fmt.Errorf("recordtest: %x in place of a ServerHello", record)
	}
	transcript := append(hello, record[5:]...)
	in, err := direction(suite, log, "SERVER_HANDSHAKE_TRAFFIC_SECRET", random)
	if err != nil {
		return nil, err
	}
	const finished = 20
	for {
		if record, err = ReadRecord(nc); err != nil {
			return nil, err
		}
		if record[0] == 20 {
			continue
		}
		kind, text, err := in.Open(record)
		if err != nil || kind != 22 {
			return nil, fmt.Errorf("recordtest: a record of type %d in the server's flight: %w", kind, err)
		}
		transcript = append(transcript, text...)
		if text[0] == finished {
			break
		}
	}
	out, err := direction(suite, log, "CLIENT_HANDSHAKE_TRAFFIC_SECRET", random)
	if err != nil {
		return nil, err
	}
	h := out.Hash.New()
	h.Write(transcript)
	mac := hmac.New(out.Hash.New, out.expand("finished", out.Hash.Size()))
	mac.Write(h.Sum(nil))
	verify := mac.Sum(nil)
	message := append([]byte{finished, 0, 0, byte(len(verify))}, verify...)
	if _, err := nc.Write(out.Seal(22, string(message)+behind, 0)); err != nil {
		return nil, err
	}
	c := &Client{}
	if c.In, err = direction(suite, log, "SERVER_TRAFFIC_SECRET_0", random); err != nil {
		return nil, err
	}
	if c.Out, err = direction(suite, log, "CLIENT_TRAFFIC_SECRET_0", random); err != nil {
		return nil, err
	}
	c.ServerSecret, c.ClientSecret = c.In.secret, c.Out.secret
	return c, nil
}

func direction(suite uint16, log *KeyLog, label string, random []byte) (*Direction, error) {
	secret, err := log.Secret(label, random)
	if err != nil {
		return nil, err
	}
	return New(suite, secret), nil
}

// clientHello is the message (RFC 8446, section 4.1.2), which asks for tickets.
func clientHello(random []byte, suite uint16, share []byte) []byte {
	extension := func(id uint16, body ...byte) []byte {
		p := binary.BigEndian.AppendUint16(nil, id)
		return append(binary.BigEndian.AppendUint16(p, uint16(len(body))), body...)
	}
	extensions := bytes.Join([][]byte{
		extension(43, 2, 3, 4),          // supported_versions: TLS 1.3
		extension(10, 0, 2, 0, 29),      // supported_groups: X25519
		extension(13, 0, 4, 4, 3, 8, 4), // signature_algorithms: ECDSA on P-256, RSA-PSS
		extension(45, 1, 1),             // psk_key_exchange_modes: with (EC)DHE
		extension(0, append([]byte{0, 12, 0, 0, 9}, "localhost"...)...),
		extension(51, append([]byte{0, 36, 0, 29, 0, 32}, share...)...), // key_share
	}, nil)
	body := append([]byte{3, 3}, random...)
	body = append(body, 0) // no session
	body = append(body, 0, 2, byte(suite>>8), byte(suite), 1, 0)
	body = binary.BigEndian.AppendUint16(body, uint16(len(extensions)))
	body = append(body, extensions...)
	return append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}
