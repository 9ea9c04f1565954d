package record_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/tlsloop/internal/record"
	"github.com/myriad-go/myriad/tlsloop/internal/record/recordtest"
)

const (
	unexpectedMessage tls.AlertError = 10
	badRecordMAC      tls.AlertError = 20
	recordOverflow    tls.AlertError = 22
	illegalParameter  tls.AlertError = 47
	decodeError       tls.AlertError = 50
	protocolVersion   tls.AlertError = 70
	internalError     tls.AlertError = 80

	none tls.AlertError = 255 // the connection goes on, or the peer has ended it

)

// A wrongCase is a stream of records that a peer may send.
type wrongCase struct {
	name   string
	stream func(d *recordtest.Direction) []byte
	data   string
	alert  tls.AlertError // as RFC 8446 has it
	theirs tls.AlertError // of crypto/tls, if it is another
	err    string         // what our error, and theirs if the alert is the same, must contain
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func repeated(n int, f func() []byte) (all []byte) {
	for range n {
		all = append(all, f()...)
	}
	return all
}

// header changes the header of a record before it is sealed with it.
func header(kind byte, version uint16, n int) []byte {
	h := binary.BigEndian.AppendUint16([]byte{kind}, version)
	return append(binary.BigEndian.AppendUint16(h, uint16(n)), make([]byte, n)...)
}

var wrong = []wrongCase{
	{name: "one record", stream: func(d *recordtest.Direction) []byte { return d.Seal(application, "text", 0) },
		data: "text", alert: none},
	{name: "padding", stream: func(d *recordtest.Direction) []byte { return d.Seal(application, "text", 300) },
		data: "text", alert: none},
	{name: "the largest record", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(application, strings.Repeat("x", 1<<14), 0)
	}, data: strings.Repeat("x", 1<<14), alert: none},
	{name: "the largest padding", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(application, "text", 1<<14-4)
	}, data: "text", alert: none},
	{name: "empty records", stream: func(d *recordtest.Direction) []byte {
		return join(repeated(16, func() []byte { return d.Seal(application, "", 0) }), d.Seal(application, "text", 0),
			repeated(16, func() []byte { return d.Seal(application, "", 3) }))
	}, data: "text", alert: none},
	{name: "too many empty records", stream: func(d *recordtest.Direction) []byte {
		return repeated(17, func() []byte { return d.Seal(application, "", 0) })
	}, alert: unexpectedMessage, err: "too many ignored records"},
	{name: "key update", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(application, "a", 0), d.KeyUpdate(0), d.Seal(application, "b", 0), d.KeyUpdate(1),
			d.KeyUpdate(1), d.Seal(application, "c", 0))
	}, data: "abc", alert: none},
	{name: "key update in parts", stream: func(d *recordtest.Direction) []byte {
		parts := join(d.Seal(handshake, "\x18", 0), d.Seal(handshake, "\x00\x00", 5), d.Seal(handshake, "\x01\x01", 0))
		d.Update()
		return join(parts, d.Seal(application, "text", 0))
	}, data: "text", alert: none},
	{name: "too many key updates", stream: func(d *recordtest.Direction) []byte {
		return repeated(17, func() []byte { return d.KeyUpdate(0) })
	}, alert: unexpectedMessage},
	{name: "key update with the old key", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(handshake, "\x18\x00\x00\x01\x00", 0), d.Seal(application, "text", 0))
	}, alert: badRecordMAC},
	{name: "key update and more in its record", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x18\x00\x00\x01\x00\x18", 0)
	}, alert: unexpectedMessage},
	{name: "two key updates in a record", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x18\x00\x00\x01\x00\x18\x00\x00\x01\x00", 0)
	}, alert: unexpectedMessage},
	// RFC 8446, section 4.6.3 names the alert.
	{name: "key update of an unknown kind", stream: func(d *recordtest.Direction) []byte { return d.KeyUpdate(2) },
		alert: illegalParameter, theirs: decodeError},
	{name: "key update without its byte", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x18\x00\x00\x00", 0)
	}, alert: decodeError},
	{name: "key update of two bytes", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x18\x00\x00\x02\x00\x00", 0)
	}, alert: decodeError},
	// crypto/tls waits for all of a message before it looks at its type.
	{name: "key update of 16 MB", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x18\xff\xff\xff\x00", 0)
	}, alert: decodeError, theirs: internalError},
	{name: "the beginning of a ClientHello", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x01\x00\x10", 0)
	}, alert: unexpectedMessage, theirs: none},
	{name: "a ClientHello that is none", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x01\x00\x00\x00", 0)
	}, alert: unexpectedMessage, theirs: decodeError},
	{name: "a session ticket", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake,
			"\x04\x00\x00\x0f"+"\x00\x00\x00\x01"+"\x00\x00\x00\x00"+"\x01\x00"+"\x00\x01\x00"+"\x00\x00", 0)
	}, alert: unexpectedMessage},
	{name: "an unknown message", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(handshake, "\x63\x00\x00\x00", 0)
	}, alert: unexpectedMessage},
	{name: "data inside of a message", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(handshake, "\x18\x00", 0), d.Seal(application, "text", 0))
	}, alert: unexpectedMessage},
	{name: "an alert inside of a message", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(handshake, "\x18\x00", 0), d.Seal(alert, "\x01\x00", 0))
	}, alert: unexpectedMessage},
	{name: "empty handshake record", stream: func(d *recordtest.Direction) []byte { return d.Seal(handshake, "", 0) },
		alert: unexpectedMessage},
	{name: "empty alert record", stream: func(d *recordtest.Direction) []byte { return d.Seal(alert, "", 0) },
		alert: unexpectedMessage},
	{name: "half an alert", stream: func(d *recordtest.Direction) []byte { return d.Seal(alert, "\x02", 0) },
		alert: unexpectedMessage},
	{name: "two alerts in a record", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(alert, "\x01\x00\x01\x00", 0)
	}, alert: unexpectedMessage},
	{name: "close_notify", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(application, "text", 0), d.Seal(alert, "\x01\x00", 0), d.Seal(application, "late", 0))
	}, data: "text", alert: none, err: io.EOF.Error()},
	{name: "close_notify of level fatal", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(alert, "\x02\x00", 0)
	}, alert: none, err: io.EOF.Error()},
	{name: "user_canceled", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(alert, "\x01\x5a", 0), d.Seal(application, "text", 0), d.Seal(alert, "\x01\x00", 0))
	}, data: "text", alert: none, err: io.EOF.Error()},
	{name: "user_canceled again and again", stream: func(d *recordtest.Direction) []byte {
		return repeated(17, func() []byte { return d.Seal(alert, "\x01\x5a", 0) })
	}, alert: unexpectedMessage, err: "too many ignored records"},
	{name: "a fatal alert", stream: func(d *recordtest.Direction) []byte {
		return join(d.Seal(application, "text", 0), d.Seal(alert, "\x02\x14", 0))
	}, data: "text", alert: none, err: "remote error: tls: bad record MAC"},
	{name: "a fatal alert of level warning", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(alert, "\x01\x14", 0)
	}, alert: none, err: "remote error: tls: bad record MAC"},
	{name: "an unknown alert of an unknown level", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(alert, "\x63\x63", 0)
	}, alert: none, err: "remote error: tls: alert(99)"},
	{name: "an unknown type inside", stream: func(d *recordtest.Direction) []byte { return d.Seal(99, "text", 0) },
		alert: unexpectedMessage, err: "local error: tls: unexpected message"},
	// RFC 8446, section 5: a protected change_cipher_spec must end the connection.
	{name: "a change_cipher_spec inside", stream: func(d *recordtest.Direction) []byte { return d.Seal(20, "\x01", 0) },
		alert: unexpectedMessage, theirs: none},
	{name: "only zeros inside", stream: func(d *recordtest.Direction) []byte { return d.SealInner(make([]byte, 40)) },
		alert: unexpectedMessage},
	// RFC 8446, section 5.4; crypto/tls takes it for an empty record.
	{name: "nothing inside", stream: func(d *recordtest.Direction) []byte { return d.SealInner(nil) },
		alert: unexpectedMessage, theirs: none},
	{name: "a content of 16,385 bytes", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(application, strings.Repeat("x", 1<<14+1), 0)
	}, alert: recordOverflow, err: "local error: tls: record overflow"},
	{name: "a padding past 16,385 bytes", stream: func(d *recordtest.Direction) []byte {
		return d.Seal(application, "text", 1<<14)
	}, alert: recordOverflow},
	{name: "a header of 16,641 bytes", stream: func(*recordtest.Direction) []byte {
		return header(application, 0x0303, 1<<14+257)[:5]
	}, alert: recordOverflow, err: "oversized record received with length 16641"},
	{name: "a body of 16,640 bytes", stream: func(*recordtest.Direction) []byte {
		return header(application, 0x0303, 1<<14+256)
	}, alert: badRecordMAC},
	{name: "another version", stream: func(*recordtest.Direction) []byte { return header(application, 0x0301, 20)[:5] },
		alert: protocolVersion, err: "received record with version 301 when expecting version 303"},
	{name: "too short for a tag", stream: func(*recordtest.Direction) []byte { return header(application, 0x0303, 15) },
		alert: badRecordMAC},
	{name: "an empty body", stream: func(*recordtest.Direction) []byte { return header(application, 0x0303, 0) },
		alert: badRecordMAC},
	{name: "a changed tag", stream: func(d *recordtest.Direction) []byte {
		r := d.Seal(application, "text", 0)
		r[len(r)-1] ^= 1
		return r
	}, alert: badRecordMAC, err: "local error: tls: bad record MAC"},
	{name: "a changed body", stream: func(d *recordtest.Direction) []byte {
		r := d.Seal(application, "text", 0)
		r[6] ^= 0x80
		return r
	}, alert: badRecordMAC},
	{name: "a record lost", stream: func(d *recordtest.Direction) []byte {
		first := d.Seal(application, "one", 0)
		d.Seal(application, "two", 0)
		return join(first, d.Seal(application, "three", 0))
	}, data: "one", alert: badRecordMAC},
	{name: "a record twice", stream: func(d *recordtest.Direction) []byte {
		r := d.Seal(application, "one", 0)
		return join(r, r)
	}, data: "one", alert: badRecordMAC},
	{name: "records in another order", stream: func(d *recordtest.Direction) []byte {
		r := d.Seal(application, "one", 0)
		return join(d.Seal(application, "two", 0), r)
	}, alert: badRecordMAC},
	// RFC 8446, section 5: an unexpected record type. crypto/tls finds a wrong tag first, and
	// ignores change_cipher_spec for ever.
	{name: "an alert that is not protected", stream: func(*recordtest.Direction) []byte {
		return []byte{alert, 3, 3, 0, 2, 1, 0}
	}, alert: unexpectedMessage, theirs: badRecordMAC},
	{name: "a message that is not protected", stream: func(*recordtest.Direction) []byte {
		return []byte{handshake, 3, 3, 0, 5, 24, 0, 0, 1, 0}
	}, alert: unexpectedMessage, theirs: badRecordMAC},
	{name: "an unknown type outside", stream: func(*recordtest.Direction) []byte { return header(99, 0x0303, 20) },
		alert: unexpectedMessage, theirs: badRecordMAC},
	{name: "a change_cipher_spec behind Finished", stream: func(*recordtest.Direction) []byte {
		return []byte{20, 3, 3, 0, 1, 1}
	}, alert: unexpectedMessage, theirs: none},
	{name: "HTTP without TLS", stream: func(*recordtest.Direction) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") },
		alert: protocolVersion},
}

// Every case leads to the data, the alert and the error that the table has, wherever the stream is
// cut in two, and byte by byte. crypto/tls has the same data, and the same alert unless the table
// has another.
func TestStreams(t *testing.T) {
	suites(t, func(t *testing.T, suite uint16) {
		for _, c := range wrong {
			t.Run(c.name, func(t *testing.T) {
				tc, script, peer := pair(t, suite)
				stream := c.stream(peer.Out)
				want := func(o outcome, alert tls.AlertError, who string) {
					t.Helper()
					if alert == none {
						alert = 0
					}
					if o.data != c.data || o.alert != alert {
						t.Errorf("%s: %d bytes of data, alert %v, %v; want %d, %v", who, len(o.data), o.alert, o.err,
							len(c.data), alert)
					}
				}
				run := func(cut int, pieces ...[]byte) outcome {
					s := newSide(t, suite, peer.ClientSecret, peer.ServerSecret)
					for _, p := range pieces {
						s.take(p)
					}
					if want(s.outcome, c.alert, "ours"); t.Failed() {
						t.Fatalf("cut at %d of %d", cut, len(stream))
					}
					return s.outcome
				}
				ours := run(0, bytes.Clone(stream))
				for cut := 1; cut < len(stream); cut += max(1, len(stream)/500) {
					run(cut, bytes.Clone(stream[:cut]), bytes.Clone(stream[cut:]))
				}
				if len(stream) < 2000 {
					var bytewise [][]byte
					for i := range stream {
						bytewise = append(bytewise, bytes.Clone(stream[i:i+1]))
					}
					run(-1, bytewise...)
				}
				if (c.alert != none || c.err != "") != (ours.err != nil) {
					t.Errorf("ours: %v", ours.err)
				}
				if ours.err != nil && !strings.Contains(ours.err.Error(), c.err) {
					t.Errorf("ours: %v; want %q", ours.err, c.err)
				}
				theirs := ofCryptoTLS(tc, script, peer, stream)
				if c.theirs != 0 {
					want(theirs, c.theirs, "crypto/tls, which differs")
					return
				}
				if want(theirs, c.alert, "crypto/tls"); !strings.Contains(theirs.err.Error(), c.err) {
					t.Errorf("crypto/tls: %v; want %q", theirs.err, c.err)
				}
				if !bytes.Equal(ours.sent, theirs.sent) { // the answers to key updates, and the alert
					t.Errorf("ours has sent %x, crypto/tls %x", ours.sent, theirs.sent)
				}
				var a, b tls.RecordHeaderError
				if errors.As(ours.err, &a) != errors.As(theirs.err, &b) || a != b {
					t.Errorf("ours: %#v, crypto/tls: %#v", ours.err, theirs.err)
				}
			})
		}
	})
}

// A key that has numbered all records opens and seals no more (RFC 8446, section 5.3).
func TestNumbersEnd(t *testing.T) {
	suites(t, func(t *testing.T, suite uint16) {
		secret := make([]byte, 32)
		if suite == tls.TLS_AES_256_GCM_SHA384 {
			secret = make([]byte, 48)
		}
		s, d := newSide(t, suite, secret, secret), newSide(t, suite, secret, secret)
		s.reader.Skip(math.MaxUint64 - 1)
		d.writer.Skip(math.MaxUint64 - 1)
		s.take(d.writer.Seal(d.seals, nil, record.ApplicationData, []byte("last")))
		if s.outcome.data != "last" || s.outcome.err != nil {
			t.Fatalf("%q, %v", s.outcome.data, s.outcome.err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a number was used twice")
				}
			}()
			d.writer.Seal(d.seals, nil, record.ApplicationData, []byte("x"))
		}()
		s.take(header(application, 0x0303, 30))
		if s.outcome.alert != internalError {
			t.Errorf("alert %v, %v", s.outcome.alert, s.outcome.err)
		}
	})
}

// Keys that are erased open and seal nothing, neither with Ciphers from before nor with their own.
func TestErasedKeysAreNone(t *testing.T) {
	zero, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(zero)
	if err != nil {
		t.Fatal(err)
	}
	header := []byte{application, 3, 3, 0, 1 + 1 + 16}
	forged := append(header, aead.Seal(nil, make([]byte, 12), []byte{'x', application}, header)...)
	suites(t, func(t *testing.T, suite uint16) {
		_, _, peer := pair(t, suite)
		s := newSide(t, suite, peer.ClientSecret, peer.ServerSecret)
		s.reader.Erase()
		s.writer.Erase()
		good := peer.Out.Seal(application, "x", 0)
		for name, tt := range map[string]struct {
			opens, seals *record.Cipher
		}{
			"from before": {s.opens, s.seals},
			"of zeros":    {s.reader.Cipher(), s.writer.Cipher()},
		} {
			for _, r := range [][]byte{forged, good} {
				if _, data, f := s.reader.Open(tt.opens, bytes.Clone(r)); f == nil {
					t.Errorf("ciphers %s: erased keys open %q", name, data)
				}
			}
			if out := sealOrPanic(&s.writer, tt.seals); out != nil {
				t.Errorf("ciphers %s: erased keys seal %x", name, out)
			}
		}
		if s.writer.Follow(forged) || s.writer.Follow(nil) {
			t.Error("erased keys follow a flight")
		}
	})
}

// sealOrPanic seals a record, and returns nil if Seal panics.
func sealOrPanic(w *record.Writer, c *record.Cipher) (out []byte) {
	defer func() { _ = recover() }()
	return w.Seal(c, nil, record.ApplicationData, []byte("x"))
}

// Erased keys hold nothing, and secrets of a wrong length are refused.
func TestErase(t *testing.T) {
	suites(t, func(t *testing.T, suite uint16) {
		id, _ := record.SuiteOf(suite)
		var k record.Keys
		for _, n := range []int{0, 31, 33, 47, 49, 64} {
			if k.Set(id, make([]byte, n)) {
				t.Errorf("a secret of %d bytes", n)
			}
		}
		n := map[uint16]int{tls.TLS_AES_128_GCM_SHA256: 32, tls.TLS_AES_256_GCM_SHA384: 48}[suite]
		if !k.Set(id, bytes.Repeat([]byte{7}, n)) || k == (record.Keys{}) {
			t.Fatal("Set")
		}
		if k.Erase(); k != (record.Keys{}) {
			t.Error("something is left")
		}
		if k.Set(0, nil) || k.Set(0, make([]byte, 32)) || !k.Erased() {
			t.Error("the zero Suite has keys")
		}
	})
	if _, ok := record.SuiteOf(tls.TLS_CHACHA20_POLY1305_SHA256); ok {
		t.Error("ChaCha20-Poly1305 is known")
	}
}
