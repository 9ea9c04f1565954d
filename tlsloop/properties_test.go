package tlsloop_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// These are the properties of crypto/tls that the package stands on (doc.go). They use nothing of
// the package: one that fails after an update of the toolchain says that the package must be
// changed before it is built with it.

// scripted is a net.Conn whose Read does what the test says.
type scripted struct {
	net.Conn
	in        []byte
	asked     []int
	empty     error // for Read without bytes
	out       bytes.Buffer
	fail      error // for Write
	deadlines int
}

func (s *scripted) Read(p []byte) (int, error) {
	s.asked = append(s.asked, len(p))
	if len(s.in) == 0 {
		return 0, s.empty
	}
	n := copy(p, s.in)
	s.in = s.in[n:]
	return n, nil
}

func (s *scripted) Write(p []byte) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	return s.out.Write(p)
}

func (s *scripted) SetWriteDeadline(time.Time) error { s.deadlines++; return nil }
func (s *scripted) Close() error                     { return nil }

// temporary is what our inner conn answers without bytes.
type temporary struct{}

func (temporary) Error() string   { return "nothing yet" }
func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }

var errTemporary error = temporary{}

// switching is a net.Conn that blocks during the handshake and is scripted afterwards.
type switching struct {
	net.Conn
	now net.Conn
}

func (s *switching) Read(p []byte) (int, error)         { return s.now.Read(p) }
func (s *switching) Write(p []byte) (int, error)        { return s.now.Write(p) }
func (s *switching) SetWriteDeadline(t time.Time) error { return s.now.SetWriteDeadline(t) }

// established is a server's tls.Conn after its handshake, over a script, and what seals for it.
func establishedPair(t *testing.T, version uint16) (server *tls.Conn, script *scripted, seal func(text string) []byte,
	client *tls.Conn) {
	t.Helper()
	a, b := net.Pipe()
	cfg := clientConfig()
	cfg.MaxVersion = version
	wire := &scripted{}
	clientEnd := &switching{now: a}
	client = tls.Client(clientEnd, cfg)
	serverEnd := &switching{now: b}
	server = tls.Server(serverEnd, ticketless())
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	if err := errors.Join(server.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	a.Close()
	b.Close()
	script = &scripted{empty: errTemporary}
	clientEnd.now, serverEnd.now = wire, script
	return server, script, func(text string) []byte {
		wire.out.Reset()
		if _, err := client.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(wire.out.Bytes())
	}, client
}

// A temporary error is returned as it is, is not remembered, and loses nothing of a record,
// wherever it comes.
func TestPropertyTemporaryErrors(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server, script, seal, _ := establishedPair(t, version)
		p := make([]byte, 100)
		record := seal("hello")
		for i := range record {
			script.in = record[i : i+1]
			n, err := server.Read(p)
			switch last := i == len(record)-1; {
			case !last && (n != 0 || err != errTemporary):
				t.Fatalf("byte %d: Read gives %d, %v; want the very error", i, n, err)
			case last && (string(p[:n]) != "hello" || err != nil):
				t.Fatalf("the last byte: %q, %v", p[:n], err)
			}
		}
		for range 3 {
			if n, err := server.Read(p); n != 0 || err != errTemporary {
				t.Fatalf("Read without bytes: %d, %v", n, err)
			}
		}
	})
}

// During the handshake the same error is final.
func TestPropertyHandshakeMustBlock(t *testing.T) {
	script := &scripted{empty: errTemporary}
	server := tls.Server(script, serverConfig())
	if err := server.Handshake(); !errors.Is(err, errTemporary) {
		t.Fatalf("Handshake: %v", err)
	}
	script.empty = io.EOF
	if err := server.Handshake(); !errors.Is(err, errTemporary) {
		t.Errorf("a second Handshake: %v: it goes on after a temporary error, and the coroutine could be dropped", err)
	}
}

// It can do with a header and then exactly the rest of the record, and has nothing left when the
// record's bytes have been read.
func TestPropertyOneRecordAtATime(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server, script, seal, _ := establishedPair(t, version)
		p := make([]byte, 16<<10)
		for _, text := range []string{"a", pattern(1000), pattern(16 << 10)} {
			client := seal(text)
			for len(client) > 0 {
				n := 5 + int(client[3])<<8 + int(client[4])
				script.asked = nil
				script.in = client[:5]
				if _, err := server.Read(p); err != errTemporary {
					t.Fatalf("after a header: %v", err)
				}
				script.in = client[5:n]
				if _, err := server.Read(p); err != nil {
					t.Fatalf("after a body: %v", err)
				}
				for _, room := range script.asked {
					if room < 5 {
						t.Errorf("Read with room for %d bytes", room)
					}
				}
				client = client[n:]
				if m, err := server.Read(p); m != 0 || err != errTemporary {
					t.Fatalf("after a record: %d bytes, %v", m, err)
				}
			}
		}
	})
}

// An error of the inner conn's Write is final, even a temporary one.
func TestPropertyWriteErrorsAreFinal(t *testing.T) {
	server, script, _, _ := establishedPair(t, tls.VersionTLS13)
	script.fail = errTemporary
	if _, err := server.Write([]byte("x")); err == nil {
		t.Fatal("Write has swallowed the error")
	}
	script.fail = nil
	if _, err := server.Write([]byte("x")); err == nil {
		t.Error("Write goes on after an error: it could be given one when the queue is full")
	}
}

// Write hands over whole records, in order, and keeps nothing.
func TestPropertyWriteKeepsNothing(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server, script, _, _ := establishedPair(t, version)
		for range 100 {
			if n, err := server.Write([]byte(pattern(5000))); n != 5000 || err != nil {
				t.Fatal(n, err)
			}
			out := script.out.Bytes()
			for len(out) > 0 {
				if len(out) < 5 || len(out) < 5+int(out[3])<<8+int(out[4]) {
					t.Fatal("a part of a record was written")
				}
				out = out[5+int(out[3])<<8+int(out[4]):]
			}
			script.out.Reset()
		}
	})
}

// CloseWrite writes its alert before it sets deadlines, does not close, and Read goes on.
func TestPropertyCloseWrite(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server, script, seal, _ := establishedPair(t, version)
		if err := server.CloseWrite(); err != nil || script.out.Len() == 0 {
			t.Fatalf("CloseWrite: %v, %d bytes", err, script.out.Len())
		}
		if _, err := server.Write([]byte("x")); err == nil {
			t.Error("Write after CloseWrite")
		}
		script.in = seal("more")
		p := make([]byte, 10)
		if n, err := server.Read(p); string(p[:n]) != "more" || err != nil {
			t.Errorf("Read after CloseWrite: %q, %v", p[:n], err)
		}
	})
}

// The peer's close_notify is io.EOF itself, and no other error is.
func TestPropertyCloseNotify(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		server, script, _, client := establishedPair(t, version)
		out := &scripted{}
		client.NetConn().(*switching).now = out
		if err := client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		script.in = out.out.Bytes()
		p := make([]byte, 10)
		if n, err := server.Read(p); n != 0 || err != io.EOF {
			t.Errorf("Read: %d, %v", n, err)
		}
		script.empty = io.EOF
		server, script, _, _ = establishedPair(t, version)
		script.empty, script.in = io.EOF, []byte{23, 3}
		if _, err := server.Read(p); err != io.ErrUnexpectedEOF {
			t.Errorf("an end in a header: %v", err)
		}
	})
}

// A fatal error is told once, and Read may then say something else: its driver must stop at the
// first one.
func TestPropertyFirstErrorCounts(t *testing.T) {
	server, script, seal, _ := establishedPair(t, tls.VersionTLS13)
	record := seal("hello")
	record[len(record)-1] ^= 1
	script.in = record
	p := make([]byte, 10)
	_, err := server.Read(p)
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "local error" {
		t.Errorf("Read: %v", err)
	}
	if script.out.Len() == 0 {
		t.Error("no alert was written from within Read")
	}
}
