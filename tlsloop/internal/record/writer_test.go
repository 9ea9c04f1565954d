package record_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/myriad-go/myriad/tlsloop/internal/record"
	"github.com/myriad-go/myriad/tlsloop/internal/record/recordtest"
)

// What is sealed opens with the right text, and under the keys that are due.
func TestSeal(t *testing.T) {
	suites(t, func(t *testing.T, suite uint16) {
		_, _, peer := pair(t, suite)
		s := newSide(t, suite, peer.ClientSecret, peer.ServerSecret)
		prefix := []byte("before")
		for i, n := range []int{0, 1, 15, 16, 17, 1000, record.MaxPlaintext, 5} {
			text := bytes.Repeat([]byte{byte(n)}, n)
			out := s.writer.Seal(s.seals, prefix, record.ApplicationData, text)
			if !bytes.HasPrefix(out, prefix) || len(out) != len(prefix)+n+record.Overhead {
				t.Fatalf("%d bytes: a record of %d", n, len(out)-len(prefix))
			}
			if kind, got, err := peer.In.Open(out[len(prefix):]); kind != application || !bytes.Equal(got, text) ||
				err != nil {
				t.Fatalf("%d bytes: %d bytes of type %d, %v", n, len(got), kind, err)
			}
			if i%3 == 2 {
				update := s.writer.SealUpdate(s.seals, nil)
				if kind, got, err := peer.In.Open(update); kind != handshake ||
					string(got) != "\x18\x00\x00\x01\x00" || err != nil {
					t.Fatalf("an update of type %d, %q, %v", kind, got, err)
				}
				s.seals = s.writer.Cipher()
			}
		}
		end := record.CloseNotify()
		if kind, got, err := peer.In.Open(s.writer.Seal(s.seals, nil, record.Alert, end[:])); kind != alert ||
			string(got) != "\x01\x00" || err != nil {
			t.Errorf("the end: type %d, %q, %v", kind, got, err)
		}
	})
}

// The client of crypto/tls reads what is sealed here, and an update, and the end.
func TestSealForCryptoTLS(t *testing.T) {
	a, b := net.Pipe()
	log := new(recordtest.KeyLog)
	client := &end{Conn: a}
	keep := new(bytes.Buffer)
	tc := tls.Client(client, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		KeyLogWriter: io.MultiWriter(log, keep)})
	server := tls.Server(b, &tls.Config{Certificates: []tls.Certificate{certificate()}, SessionTicketsDisabled: true})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	suite := tc.ConnectionState().CipherSuite
	if _, ok := record.SuiteOf(suite); !ok {
		t.Skipf("crypto/tls prefers %s on this machine", tls.CipherSuiteName(suite))
	}
	random := bytes.Fields(keep.Bytes())[1]
	var raw [32]byte
	for i := range raw {
		raw[i] = unhex(random[2*i])<<4 | unhex(random[2*i+1])
	}
	in, err := log.Secret("CLIENT_TRAFFIC_SECRET_0", raw[:])
	if err != nil {
		t.Fatal(err)
	}
	out, err := log.Secret("SERVER_TRAFFIC_SECRET_0", raw[:])
	if err != nil {
		t.Fatal(err)
	}
	s := newSide(t, suite, in, out)
	text := bytes.Repeat([]byte("0123456789abcdef"), 4000)
	var stream []byte
	for rest := text; len(rest) > 0; {
		n := s.writer.Content(len(rest))
		stream = s.writer.Seal(s.seals, stream, record.ApplicationData, rest[:n])
		if rest = rest[n:]; n%3 == 0 {
			stream = s.writer.SealUpdate(s.seals, stream)
			s.seals = s.writer.Cipher()
		}
	}
	notice := record.CloseNotify()
	client.scripted, client.in = true, s.writer.Seal(s.seals, stream, record.Alert, notice[:])
	if got, err := io.ReadAll(tc); !bytes.Equal(got, text) || err != nil {
		t.Errorf("%d of %d bytes, %v", len(got), len(text), err)
	}
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// A Writer goes on behind another record layer, if it can say how many records that has sealed.
func TestFollow(t *testing.T) {
	suites(t, func(t *testing.T, suite uint16) {
		_, _, peer := pair(t, suite)
		other := recordtest.New(suite, bytes.Repeat([]byte{1}, len(peer.ServerSecret)))
		before := join([]byte{20, 3, 3, 0, 1, 1}, other.Seal(handshake, "certificate", 0))
		theirs := recordtest.New(suite, peer.ServerSecret)
		first := theirs.Seal(handshake, "ticket", 0)
		second := theirs.Seal(handshake, "another", 0)
		for _, tt := range []struct {
			name   string
			flight []byte
			ok     bool
			number uint64
		}{
			{"nothing", nil, true, 0},
			{"no ticket", before, true, 0},
			{"a ticket", join(before, first), true, 1},
			{"two", join(before, first, second), true, 2},
			{"the second alone", join(before, second), true, 0},
			{"two in another order", join(before, second, first), true, 1},
			{"a record of the handshake behind", join(first, before), false, 0},
			{"a hole", join(first, other.Seal(handshake, "x", 0), second), false, 0},
			{"a part of a record", join(before, first[:20]), false, 0},
			{"a part of a header", join(before, first[:4]), false, 0},
		} {
			s := newSide(t, suite, peer.ClientSecret, peer.ServerSecret)
			if ok := s.writer.Follow(tt.flight); ok != tt.ok || ok && s.writer.Number() != tt.number {
				t.Errorf("%s: %v, next number %d", tt.name, ok, s.writer.Number())
			}
		}
	})
}

// Records grow as those of crypto/tls do.
func TestRecordSizes(t *testing.T) {
	for name, full := range map[string]bool{"growing": false, "always full": true} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			log := new(recordtest.KeyLog)
			server := &end{Conn: b}
			tc := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate()}, KeyLogWriter: log,
				SessionTicketsDisabled: true, DynamicRecordSizingDisabled: full})
			done := make(chan error, 1)
			go func() { done <- tc.Handshake() }()
			peer, err := recordtest.Handshake(a, tls.TLS_AES_128_GCM_SHA256, log)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			server.scripted = true
			s := newSide(t, tls.TLS_AES_128_GCM_SHA256, peer.ClientSecret, peer.ServerSecret)
			if full {
				s.writer.AlwaysFull()
			}
			text := make([]byte, 400_000)
			if _, err := tc.Write(text); err != nil {
				t.Fatal(err)
			}
			for theirs := bytes.NewReader(server.out.Bytes()); len(text) > 0; {
				r, err := recordtest.ReadRecord(theirs)
				if err != nil {
					t.Fatal(err)
				}
				n := s.writer.Content(len(text))
				ours := s.writer.Seal(s.seals, nil, record.ApplicationData, text[:n])
				// The handshake of crypto/tls counts, too: the step to full records may be one
				// earlier.
				if text = text[n:]; len(ours) != len(r) {
					if full || len(r) != record.MaxPlaintext+record.Overhead {
						t.Fatalf("with %d bytes left: a record of %d, crypto/tls has %d", len(text), len(ours), len(r))
					}
					return
				}
			}
		})
	}
}

// The number of records that a key has sealed grows with each, and begins again with the next key.
// MaxSealed is within the limit of RFC 8446, section 5.5.
func TestNumbers(t *testing.T) {
	if record.MaxSealed > 23_726_566 { // 2^24.5
		t.Errorf("a key seals %d records", record.MaxSealed)
	}
	suites(t, func(t *testing.T, suite uint16) {
		_, _, peer := pair(t, suite)
		s := newSide(t, suite, peer.ClientSecret, peer.ServerSecret)
		s.writer.Skip(record.MaxSealed - 1)
		s.writer.Seal(s.seals, nil, record.ApplicationData, nil)
		if n := s.writer.Number(); n != record.MaxSealed {
			t.Fatalf("the next record has number %d", n)
		}
		s.writer.SealUpdate(s.seals, nil)
		if n := s.writer.Number(); n != 0 {
			t.Errorf("the first record of the next key has number %d", n)
		}
	})
}

// Opening and sealing with warm ciphers allocates nothing.
func TestAllocations(t *testing.T) {
	suites(t, func(t *testing.T, suite uint16) {
		_, _, peer := pair(t, suite)
		s, d := newSide(t, suite, peer.ClientSecret, peer.ServerSecret), newSide(t, suite, peer.ClientSecret,
			peer.ClientSecret)
		text, room := make([]byte, 1000), make([]byte, 0, 2000)
		if n := testing.AllocsPerRun(100, func() {
			r := d.writer.Seal(d.seals, room, record.ApplicationData, text)
			n, f := record.Size(r)
			if f != nil || n != len(r) {
				t.Fatal(n, f)
			}
			if e, _, f := s.reader.Open(s.opens, r); e != record.Data || f != nil {
				t.Fatal(e, f)
			}
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func BenchmarkSealOpen(b *testing.B) {
	for _, cold := range []bool{false, true} {
		name := "warm"
		if cold {
			name = "cold"
		}
		b.Run(name, func(b *testing.B) {
			secret := make([]byte, 32)
			s, d := newSide(b, tls.TLS_AES_128_GCM_SHA256, secret, secret), newSide(b, tls.TLS_AES_128_GCM_SHA256,
				secret, secret)
			text, room := make([]byte, 150), make([]byte, 0, 2000)
			b.ReportAllocs()
			for b.Loop() {
				if cold {
					d.seals, s.opens = d.writer.Cipher(), s.reader.Cipher()
				}
				r := d.writer.Seal(d.seals, room, record.ApplicationData, text)
				if _, _, f := s.reader.Open(s.opens, r); f != nil {
					b.Fatal(f.Err)
				}
			}
		})
	}
}
