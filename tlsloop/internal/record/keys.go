// Package record is the record layer of TLS 1.3 behind a finished handshake (RFC 8446, sections 5
// and 4.6.3), for the server's side, as pure functions on bytes. It knows no connection, no clock
// and no randomness.
//
//	n, failure := record.Size(stream)                   // how long the first record is
//	event, text, failure := reader.Open(cipher, stream[:n]) // in place
//	out = writer.Seal(cipher, out, record.ApplicationData, text)
//
// What an idle connection must keep is a [Reader] and a [Writer]: secrets, keys and numbers, less
// than 256 bytes. A [Cipher] has what the AEAD needs besides, more than a kilobyte for both
// directions. It is made from the keys when records pass, and can be dropped at any time.
//
// AES-GCM is that of the standard library. ChaCha20-Poly1305 has no public implementation there, so
// its suite is not known here.
package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"hash"
	"math"
)

const (
	// HeaderLen is the length of a record's header.
	HeaderLen = 5
	// MaxPlaintext is the largest content of a record (RFC 8446, section 5.1).
	MaxPlaintext = 1 << 14
	// Overhead is what a record without padding has besides its content.
	Overhead = HeaderLen + 1 + tagLen

	// MaxSealed is how many records one key seals: then Writer.SealUpdate is due. RFC 8446, section
	// 5.5 permits 2^24.5 of full size for AES-GCM.
	MaxSealed = 1 << 24

	maxBody = MaxPlaintext + 256 // RFC 8446, section 5.2
	tagLen  = 16
	ivLen   = 12
)

// A Suite is a cipher suite of TLS 1.3. The zero value is none: Keys that have it open and seal
// nothing.
type Suite uint8

const (
	none Suite = iota
	aes128
	aes256
)

// SuiteOf returns the suite with a number of IANA's, and false if the package does not know it.
func SuiteOf(id uint16) (Suite, bool) {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return aes128, true
	case tls.TLS_AES_256_GCM_SHA384:
		return aes256, true
	}
	return 0, false
}

// lengths are those of a traffic secret and of a key.
func (s Suite) lengths() (secret, key int) {
	switch s {
	case aes128:
		return sha256.Size, 16
	case aes256:
		return sha512.Size384, 32
	}
	return 0, 0
}

// expand is HKDF-Expand-Label without a context (RFC 8446, section 7.1).
func (s Suite) expand(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(make([]byte, 0, 32), uint16(n)), byte(len(label)))
	info = append(append(info, label...), 0)
	h := sha256.New
	if s == aes256 {
		h = func() hash.Hash { return sha512.New384() }
	}
	out, err := hkdf.Expand(h, secret, string(info), n)
	if err != nil {
		panic(err) // of lengths that are constants
	}
	return out
}

// Keys are what protects one direction: a traffic secret, what follows from it (RFC 8446, section
// 7.3), and the number of the next record.
type Keys struct {
	number uint64
	suite  Suite
	secret [sha512.Size384]byte
	key    [32]byte
	iv     [ivLen]byte
}

// Set begins with a traffic secret and record 0. It returns false for the zero Suite, and if the
// secret has not the length that the suite's has.
func (k *Keys) Set(s Suite, secret []byte) bool {
	n, keyLen := s.lengths()
	if s == none || len(secret) != n {
		return false
	}
	k.Erase()
	k.suite = s
	copy(k.secret[:], secret)
	key, iv := s.expand(secret, "key", keyLen), s.expand(secret, "iv", ivLen)
	copy(k.key[:], key)
	copy(k.iv[:], iv)
	clear(key)
	return true
}

// update goes on to the next generation (RFC 8446, section 7.2). Ciphers made before are void.
func (k *Keys) update() {
	n, _ := k.suite.lengths()
	next := k.suite.expand(k.secret[:n], "traffic upd", n)
	k.Set(k.suite, next)
	clear(next)
}

// Erase overwrites everything with zeros. Nothing can be opened or sealed any more: Open fails, and
// Seal panics, also with a Cipher from before.
func (k *Keys) Erase() { *k = Keys{} }

// Erased reports whether k is as Erase leaves it, or was never set.
func (k *Keys) Erased() bool { return k.suite == none }

// Number is the number of the next record under the current key.
func (k *Keys) Number() uint64 { return k.number }

// A Cipher is an AEAD with one direction's key. It must not be used after the direction's next
// update, nor by two goroutines at once.
type Cipher struct {
	aead  cipher.AEAD
	nonce [ivLen]byte
}

// Cipher makes one for the current key. It allocates about 0.7 kB. Keys that are erased have one
// with which Open fails.
func (k *Keys) Cipher() *Cipher {
	if k.Erased() {
		return new(Cipher)
	}
	_, n := k.suite.lengths()
	block, err := aes.NewCipher(k.key[:n])
	if err != nil {
		panic(err) // of a length that is a constant
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // likewise
	}
	return &Cipher{aead: aead}
}

// nonceOf is the nonce of the next record (RFC 8446, section 5.3).
func (c *Cipher) nonceOf(k *Keys) []byte {
	c.nonce = k.iv
	low := c.nonce[ivLen-8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)^k.number)
	return c.nonce[:]
}

// used reports whether nothing can be opened or sealed: there is no key, or all its numbers have
// been used. The next number would be the first again.
func (k *Keys) used() bool { return k.Erased() || k.number == math.MaxUint64 }
