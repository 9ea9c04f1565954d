package tlsloop_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// A property of crypto/tls: its buffers have the names and types that are lent and taken back.
// Without them everything works and costs more memory.
func TestPropertyBuffers(t *testing.T) {
	if !tlsloop.BuffersKnown(reflect.TypeFor[tls.Conn]()) {
		t.Error("the buffers of a tls.Conn are not known: idle connections keep theirs")
	}
	for name, other := range map[string]reflect.Type{
		"another type": reflect.TypeFor[struct{ rawInput, hand, input bytes.Buffer }](),
		"another name": reflect.TypeFor[struct {
			rawInput, messages bytes.Buffer
			input              bytes.Reader
		}](),
		"in another":    reflect.TypeFor[struct{ tls.Conn }](),
		"nothing of it": reflect.TypeFor[struct{}](),
	} {
		if tlsloop.BuffersKnown(other) {
			t.Errorf("%s is taken for a tls.Conn", name)
		}
	}
}

// held asks a conn's loop what its buffers have room for, and how much of a record is in them.
func held(t *testing.T, c *myriad.Conn) (room, part int) {
	t.Helper()
	done := make(chan [2]int, 1)
	if err := c.Loop().Do(func() {
		room, part := tlsloop.BuffersHeld(c)
		done <- [2]int{room, part}
	}); err != nil {
		t.Fatal(err)
	}
	got := await(t, "answer of the loop", done)
	return got[0], got[1]
}

// A connection that waits holds no buffer: not the handshake's, not those of the largest records.
func TestIdleHoldsNoBuffers(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		h := echo()
		addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h)))
		cfg := clientConfig()
		cfg.MaxVersion = version
		tc := dial(t, addr, cfg)
		c := await(t, "Opened", h.opens)
		if n, _ := held(t, c); n > 0 {
			t.Errorf("%d bytes after the handshake", n)
		}
		for _, n := range []int{1, 100, 16 << 10, 100_000, 5} {
			send(t, tc, pattern(n))
			expect(t, tc, pattern(n))
			if n, _ := held(t, c); n > 0 {
				t.Errorf("%d bytes after %d", n, n)
			}
		}
	})
}

// The part of a record is held, with room for the rest of it and no more. Two connections whose
// parts take turns share a lent buffer and must not see each other in it.
func TestPartsOfTwo(t *testing.T) {
	h := echo()
	addr := listen(t, start(t, myriad.Config{Loops: 1}), patient.Handler(ticketless(), always(h)))
	var peers [2]*recordPeer
	var conns [2]*myriad.Conn
	for i := range peers { // one behind the other: a handshake may end here later than there
		peers[i], conns[i] = newRecordPeer(t, addr), await(t, "Opened", h.opens)
	}
	texts := []string{pattern(5000), pattern(9001)[1:]}
	var records [2][]byte
	for i, p := range peers {
		records[i] = p.seal(recordApplication, texts[i], 0)
	}
	for _, cuts := range [][2]int{{0, 3}, {3, 5}, {5, 1000}, {1000, 4000}} {
		for i, p := range peers {
			p.write(records[i][cuts[0]:cuts[1]])
			eventually(t, "the part is held", func() bool { _, part := held(t, conns[i]); return part >= cuts[1] })
		}
	}
	for i, c := range conns {
		if n, _ := held(t, c); n < 4000 || n > 3*len(records[i])/2 {
			t.Errorf("%d bytes for a record of %d", n, len(records[i]))
		}
	}
	for i, p := range peers {
		p.write(records[i][4000:])
		p.expect(texts[i])
		if n, _ := held(t, conns[i]); n > 0 {
			t.Errorf("%d bytes after the record", n)
		}
	}
}

// On a toolchain whose tls.Conn is another one, buffers stay with their connections, and nothing
// else differs.
func TestUnknownBuffers(t *testing.T) {
	restore := tlsloop.KeepBuffers()
	t.Cleanup(restore) // behind the engine's shutdown
	h := echo()
	o := patient
	o.LeanTLS = false
	addr := listen(t, start(t, myriad.Config{}), o.Handler(serverConfig(), always(h)))
	tc := dial(t, addr, clientConfig())
	send(t, tc, pattern(100_000))
	expect(t, tc, pattern(100_000))
	if n, _ := held(t, await(t, "Opened", h.opens)); n < 16<<10 {
		t.Errorf("%d bytes held: the buffers are where they were not looked for", n)
	}
	tc.CloseWrite()
	if rest, err := io.ReadAll(tc); len(rest) > 0 || err != nil {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

// A property of crypto/tls: a record that lies in its buffer is decrypted there, and nothing is
// asked of the inner conn.
func TestPropertyGivenRecord(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server, script, seal, _ := establishedPair(t, version)
		script.empty = errTemporary
		_, _ = server.Read(make([]byte, 1)) // what the handshake has left to read
		script.asked = nil
		tlsloop.TakeBack(server)
		for _, want := range []string{"one", pattern(5000)} {
			for record := seal(want); len(record) > 0; {
				n := 5 + int(record[3])<<8 + int(record[4])
				if !tlsloop.Give(server, record[:n:n]) {
					t.Fatal("the record is not taken")
				}
				record = record[n:]
				got := make([]byte, 16<<10)
				n, err := server.Read(got)
				if err != nil || !strings.HasPrefix(want, string(got[:n])) || n == 0 {
					t.Fatalf("read %q, %v", got[:n], err)
				}
				want = want[n:]
			}
			if want != "" || len(script.asked) > 0 {
				t.Errorf("%q is missing; the inner conn was asked for %v", want, script.asked)
			}
		}
	})
}

// A whole record lies where it was received, and only for an empty tls.Conn. What it has left of
// one, because it was no record for it, does not keep the driver's memory.
func TestGivenRecordGoesBack(t *testing.T) {
	tc := tls.Server(nil, serverConfig())
	received := []byte("record and more")
	if !tlsloop.Give(tc, received[:6]) || &tlsloop.Begun(tc)[0] != &received[0] {
		t.Fatal("the record is not where it was received")
	}
	if tlsloop.Give(tc, received[6:]) {
		t.Error("a record was given in place of another")
	}
	tlsloop.TakeBack(tc, make([]byte, 8), received)
	if got := tlsloop.Begun(tc); string(got) != "record" || &got[0] == &received[0] {
		t.Errorf("%q is left, in the driver's memory", got)
	}
	own := &tlsloop.Begun(tc)[0]
	if tlsloop.TakeBack(tc, received); &tlsloop.Begun(tc)[0] != own {
		t.Error("what lies in memory of its own has moved")
	}
}
