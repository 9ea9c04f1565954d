package record_test

import (
	"bytes"
	"crypto/tls"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/tlsloop/internal/record/recordtest"
)

// FuzzStream has arbitrary bytes as a stream. Nothing of it is ever data, and the outcome does not
// depend on where it is cut.
func FuzzStream(f *testing.F) {
	f.Add([]byte{23, 3, 3, 0, 17, 1, 2, 3}, uint(3))
	f.Add(header(application, 0x0303, 40), uint(5))
	f.Add(header(20, 0x0303, 1), uint(5))
	f.Add([]byte("GET / HTTP/1.1"), uint(1))
	secret := make([]byte, 32)
	f.Fuzz(func(t *testing.T, stream []byte, cut uint) {
		whole, parts := newSide(t, tls.TLS_AES_128_GCM_SHA256, secret, secret),
			newSide(t, tls.TLS_AES_128_GCM_SHA256, secret, secret)
		whole.take(bytes.Clone(stream))
		at := int(cut % uint(len(stream)+1))
		parts.take(bytes.Clone(stream[:at]))
		parts.take(bytes.Clone(stream[at:]))
		same(t, whole.outcome, parts.outcome)
		if whole.outcome.data != "" {
			t.Errorf("%q was made of nothing", whole.outcome.data)
		}
	})
}

func same(t *testing.T, a, b outcome) {
	t.Helper()
	if a.data != b.data || a.alert != b.alert || (a.err == nil) != (b.err == nil) || !bytes.Equal(a.sent, b.sent) ||
		a.err != nil && a.err.Error() != b.err.Error() {
		t.Errorf("%+v and %+v", a, b)
	}
}

// FuzzRecords has a client seal records of arbitrary types and contents. Each three bytes of script
// are a record's type, the length of its content, and what it consists of. crypto/tls gets the same
// stream: its data must be ours, and what it refuses we refuse.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{23, 10, 0, 22, 5, 24, 23, 10, 0}, uint(30))
	f.Add([]byte{22, 5, 25, 23, 9, 1, 21, 2, 0}, uint(7))
	f.Add([]byte{23, 0, 200, 23, 255, 9, 22, 2, 24, 22, 3, 24}, uint(99))
	f.Add([]byte{21, 2, 90, 23, 1, 1, 21, 2, 40}, uint(3))
	f.Add([]byte(strings.Repeat("\x17\x00\x00", 20)), uint(3))
	f.Fuzz(func(t *testing.T, script []byte, cut uint) {
		tc, end, peer := pair(t, tls.TLS_AES_128_GCM_SHA256)
		stream := sealed(peer.Out, script)
		whole, parts := newSide(t, tls.TLS_AES_128_GCM_SHA256, peer.ClientSecret, peer.ServerSecret),
			newSide(t, tls.TLS_AES_128_GCM_SHA256, peer.ClientSecret, peer.ServerSecret)
		whole.take(bytes.Clone(stream))
		at := int(cut % uint(len(stream)+1))
		parts.take(bytes.Clone(stream[:at]))
		parts.take(bytes.Clone(stream[at:]))
		same(t, whole.outcome, parts.outcome)
		theirs := ofCryptoTLS(tc, end, peer, stream)
		if whole.outcome.data != theirs.data {
			t.Errorf("ours %q, crypto/tls %q", whole.outcome.data, theirs.data)
		}
		if theirs.alert != 0 && whole.outcome.alert == 0 {
			t.Errorf("crypto/tls refuses with %v: %v; ours: %v", theirs.alert, theirs.err, whole.outcome.err)
		}
	})
}

// sealed makes records of a script.
func sealed(d *recordtest.Direction, script []byte) (stream []byte) {
	var message []byte // of the handshake, as far as it was sent
	for len(script) >= 3 && len(stream) < 100_000 {
		kind, n, of := script[0], int(script[1]), script[2]
		script = script[3:]
		text := bytes.Repeat([]byte{of}, n)
		switch kind {
		case 20:
			continue // crypto/tls ignores it for ever
		case alert:
			text = []byte{1, of}
		case handshake: // the beginning of a KeyUpdate, mostly
			update := []byte{24, 0, 0, 1, of & 1}
			text = update[min(len(message), 5):][:min(n%6, 5-len(message))]
			if of > 250 {
				text = append(text, of)
			}
			message = append(message, text...)
		}
		stream = append(stream, d.Seal(kind, string(text), int(of)%5)...)
		if len(message) >= 5 {
			message = nil
			d.Update()
		}
	}
	return stream
}

// FuzzSeal seals a text on either side, and opens it on the other.
func FuzzSeal(f *testing.F) {
	f.Add([]byte("text"), uint16(0), true)
	f.Add([]byte{}, uint16(300), false)
	f.Fuzz(func(t *testing.T, text []byte, padding uint16, large bool) {
		suite, secret := tls.TLS_AES_128_GCM_SHA256, bytes.Repeat([]byte{5}, 32)
		if large {
			suite, secret = tls.TLS_AES_256_GCM_SHA384, bytes.Repeat([]byte{5}, 48)
		}
		text = text[:min(len(text), 16000)]
		s := newSide(t, suite, secret, secret)
		theirs := recordtest.New(suite, secret)
		r := s.writer.Seal(s.seals, nil, application, text)
		if _, got, err := theirs.Open(r); !bytes.Equal(got, text) || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		theirs = recordtest.New(suite, secret)
		s.take(theirs.Seal(application, string(text), int(padding%300)))
		if s.outcome.data != string(text) || s.outcome.err != nil {
			t.Errorf("%q, %v", s.outcome.data, s.outcome.err)
		}
	})
}
