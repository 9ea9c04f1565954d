package tlsloop_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/tlsloop/internal/record/recordtest"
)

// owns asks a conn's loop whether the conn has left its tls.Conn.
func owns(t *testing.T, c *myriad.Conn) bool {
	t.Helper()
	done := make(chan bool, 1)
	if err := c.Loop().Do(func() { done <- tlsloop.OwnRecords(c) }); err != nil {
		t.Fatal(err)
	}
	return await(t, "answer of the loop", done)
}

// All tests of the package pass with the records of crypto/tls, too.
func TestWithCryptoTLS(t *testing.T) {
	if !patient.LeanTLS {
		t.Skip("this is the child process")
	}
	if testing.Short() {
		t.Skip("runs the tests of the package once more")
	}
	cmd := exec.Command(os.Args[0], "-test.short", "-test.timeout=8m")
	cmd.Env = append(os.Environ(), cryptoTLSEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Which connections leave their tls.Conn: those of TLS 1.3 whose suite is known and whose Config
// hides nothing.
func TestWhoLeaves(t *testing.T) {
	if !patient.LeanTLS {
		t.Skip("none of them does")
	}
	for name, tt := range map[string]struct {
		server  func(*tls.Config)
		version uint16
		off     bool
		leaves  bool
	}{
		"TLS 1.3":              {version: tls.VersionTLS13, leaves: true},
		"TLS 1.2":              {version: tls.VersionTLS12},
		"without LeanTLS":      {version: tls.VersionTLS13, off: true},
		"without tickets":      {server: noTickets, version: tls.VersionTLS13, leaves: true},
		"GetCertificate":       {server: getCertificate, version: tls.VersionTLS13, leaves: true},
		"GetConfigForClient":   {server: getConfig, version: tls.VersionTLS13},
		"client certificates":  {server: wantCertificate, version: tls.VersionTLS13, leaves: true},
		"a key log":            {server: logKeys, version: tls.VersionTLS13, leaves: true},
		"a group to be agreed": {server: anotherGroup, version: tls.VersionTLS13, leaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, cfg := echo(), serverConfig()
			if tt.server != nil {
				tt.server(cfg)
			}
			o := patient
			o.LeanTLS = !tt.off
			addr := listen(t, start(t, myriad.Config{}), o.Handler(cfg, always(h)))
			cc := clientConfig()
			cc.MaxVersion, cc.Certificates = tt.version, []tls.Certificate{usual()}
			tc := dial(t, addr, cc)
			send(t, tc, "hello")
			expect(t, tc, "hello")
			if got := owns(t, await(t, "Opened", h.opens)); got != tt.leaves {
				t.Errorf("it has left its tls.Conn: %v, want %v", got, tt.leaves)
			}
			if err := tc.CloseWrite(); err != nil {
				t.Error(err)
			}
			if rest, err := io.ReadAll(tc); len(rest) > 0 || err != nil {
				t.Errorf("at the end: %q, %v", rest, err)
			}
		})
	}
}

func noTickets(c *tls.Config)    { c.SessionTicketsDisabled = true }
func logKeys(c *tls.Config)      { c.KeyLogWriter = io.Discard }
func anotherGroup(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} }

func getCertificate(c *tls.Config) {
	pair := c.Certificates[0]
	c.Certificates = nil
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
}

func getConfig(c *tls.Config) {
	other := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return other, nil }
}

func wantCertificate(c *tls.Config) {
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, trusted().pool
}

// AES-256-GCM, which crypto/tls does not choose by itself.
func TestAES256(t *testing.T) {
	log, h := new(recordtest.KeyLog), echo()
	cfg := serverConfig()
	cfg.KeyLogWriter = log
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, always(h)))
	nc := dialTCP(t, addr)
	peer, err := recordtest.Handshake(nc, tls.TLS_AES_256_GCM_SHA384, log)
	if err != nil {
		t.Fatal(err)
	}
	if got := owns(t, await(t, "Opened", h.opens)); got != patient.LeanTLS {
		t.Errorf("it has left its tls.Conn: %v", got)
	}
	for _, text := range []string{"one", pattern(5000), "three"} {
		stream := append(peer.Out.KeyUpdate(1), peer.Out.Seal(recordApplication, text, 0)...)
		if _, err := nc.Write(stream); err != nil {
			t.Fatal(err)
		}
		got := ""
		for len(got) < len(text) {
			record, err := recordtest.ReadRecord(nc)
			if err != nil {
				t.Fatal(err)
			}
			kind, data, err := peer.In.Open(record)
			if err != nil {
				t.Fatal(err)
			}
			if kind == recordApplication {
				got += string(data)
			}
		}
		if got != text {
			t.Errorf("echo of %d bytes: %d", len(text), len(got))
		}
	}
}

// What a connection's state says, the exporter included, is what its client's says.
func TestStateBehindTheSwitch(t *testing.T) {
	h, cfg := echo(), serverConfig()
	wantCertificate(cfg)
	cfg.NextProtos = []string{"one", "two"}
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, always(h)))
	cc := clientConfig()
	cc.Certificates, cc.NextProtos = []tls.Certificate{certificate("client")}, []string{"two"}
	tc := dial(t, addr, cc)
	c := await(t, "Opened", h.opens)
	state, ok := tlsloop.State(c)
	theirs := tc.ConnectionState()
	if !ok || !state.HandshakeComplete || state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "two" ||
		state.ServerName != "localhost" || state.CipherSuite != theirs.CipherSuite {
		t.Errorf("State: %+v, %v", state, ok)
	}
	if len(state.PeerCertificates) != 1 || len(state.VerifiedChains) != 1 ||
		!bytes.Equal(state.PeerCertificates[0].Raw, cc.Certificates[0].Certificate[0]) {
		t.Errorf("%d certificates, %d chains", len(state.PeerCertificates), len(state.VerifiedChains))
	}
	ours, err := state.ExportKeyingMaterial("EXPORTER-test", []byte("context"), 40)
	want, err2 := theirs.ExportKeyingMaterial("EXPORTER-test", []byte("context"), 40)
	if err = errors.Join(err, err2); err != nil || !bytes.Equal(ours, want) {
		t.Errorf("exporter: %x and %x, %v", ours, want, err)
	}
	shared := make(chan *tls.ConnectionState, 2)
	for range 2 {
		if err := c.Loop().Do(func() { shared <- tlsloop.SharedState(c) }); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := await(t, "state", shared), await(t, "state", shared); a == nil || a != b || a.ServerName != "localhost" {
		t.Errorf("SharedState: %p, %p", a, b)
	}
}

// The caller's Config stays what it is: its tickets are taken up with the keys that it has now, its
// key log is written, and nothing in it has changed.
func TestConfigStays(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	cfg := serverConfig()
	cfg.KeyLogWriter = writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	})
	e := start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(cfg, always(echo())))
	another := listen(t, e, patient.Handler(cfg, always(echo())))
	cache := tls.NewLRUClientSessionCache(10)
	connect := func(addr string, version uint16) bool {
		cc := clientConfig()
		cc.ClientSessionCache, cc.MaxVersion = cache, version
		tc := dial(t, addr, cc)
		send(t, tc, "hello")
		expect(t, tc, "hello") // and the ticket
		return tc.ConnectionState().DidResume
	}
	versions(t, func(t *testing.T, version uint16) {
		testRotation(t, cfg, func(t *testing.T) bool { return connect(addr, version) },
			func(t *testing.T) bool { return connect(another, version) })
	})
	if cfg.GetConfigForClient != nil || cfg.WrapSession != nil || cfg.UnwrapSession != nil {
		t.Error("the Config has been changed")
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "SERVER_TRAFFIC_SECRET_0 ") || !strings.Contains(log.String(),
		"CLIENT_RANDOM ") {
		t.Errorf("the key log has %d bytes", log.Len())
	}
}

// testRotation sets ticket keys of cfg. Both connect to a server with it, and report whether they
// have resumed a session.
func testRotation(t *testing.T, cfg *tls.Config, connect, another func(t *testing.T) bool) {
	t.Helper()
	if connect(t) {
		t.Error("the first connection has resumed a session")
	}
	if !connect(t) || !another(t) {
		t.Error("a session is not resumed, here or by another handler of the Config")
	}
	for key := range byte(2) {
		cfg.SetSessionTicketKeys([][32]byte{{key + 1}})
		if connect(t) {
			t.Error("a session is resumed whose key has gone")
		}
		if !connect(t) || !another(t) {
			t.Error("a session is not resumed with the new key")
		}
	}
}

// With LeanTLS the ticket keys of the caller's Config also hold where a callback chooses the
// certificate. They do so for connections that stay with crypto/tls, too.
func TestRotationWithGetCertificate(t *testing.T) {
	leanOnly(t)
	cfg := serverConfig()
	getCertificate(cfg)
	e := start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(cfg, always(echo())))
	another := listen(t, e, patient.Handler(cfg, always(echo())))
	versions(t, func(t *testing.T, version uint16) {
		cc := clientConfig()
		cc.ClientSessionCache, cc.MaxVersion = tls.NewLRUClientSessionCache(10), version
		connect := func(addr string) func(t *testing.T) bool {
			return func(t *testing.T) bool {
				tc := dial(t, addr, cc)
				send(t, tc, "hello")
				expect(t, tc, "hello") // and the ticket
				return tc.ConnectionState().DidResume
			}
		}
		testRotation(t, cfg, connect(addr), connect(another))
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// leaveTo gives the net.Conn of a connection that has left the engine after the first bytes.
func leaveTo(conns chan net.Conn) *probe {
	h := newProbe()
	h.received = func(c *myriad.Conn, p []byte) {
		c.Detach(func(nc net.Conn, unread []byte, err error) {
			if err == nil {
				conns <- nc
			}
		})
	}
	return h
}

// A connection that has left the engine reads, writes, waits for a deadline and ends as a tls.Conn
// does, and can be adopted again.
func TestDetached(t *testing.T) {
	conns, e := make(chan net.Conn, 1), start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(ticketless(), always(leaveTo(conns))))
	leave := func(t *testing.T) (*recordPeer, net.Conn) {
		t.Helper()
		p := newRecordPeer(t, addr)
		p.write(p.seal(recordApplication, "leave", 0))
		nc := await(t, "net.Conn", conns)
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
		return p, nc
	}
	t.Run("both ways", func(t *testing.T) {
		p, nc := leave(t)
		p.write(p.seal(recordApplication, "one ", 0), p.seal(recordApplication, "", 9), p.keyUpdate(1),
			p.seal(recordApplication, pattern(9000), 0))
		expect(t, nc, "one "+pattern(9000))
		send(t, nc, pattern(40_000))
		p.expect(pattern(40_000))
		state := nc.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
		if !state.HandshakeComplete || state.ServerName != "localhost" {
			t.Errorf("ConnectionState: %+v", state)
		}
		if err := nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
		if _, err := nc.Write([]byte("x")); err == nil {
			t.Error("Write after CloseWrite")
		}
		p.write(p.seal(recordApplication, "late", 0), p.seal(recordAlert, "\x01\x00", 0))
		if got, err := io.ReadAll(nc); string(got) != "late" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		nc.Close()
		p.expectAlert(0)
	})
	t.Run("parts and deadlines", func(t *testing.T) {
		p, nc := leave(t)
		r := p.seal(recordApplication, "text", 0)
		for i := range r[:len(r)-1] {
			p.write(r[i : i+1])
			_ = nc.SetReadDeadline(time.Now().Add(-time.Second))
			if n, err := nc.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("at byte %d: %d, %v", i, n, err)
			}
			if i%7 != 0 {
				continue
			}
			_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, _ = nc.Read(make([]byte, 10))
		}
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		p.write(r[len(r)-1:])
		expect(t, nc, "text")
	})
	t.Run("a wrong record", func(t *testing.T) {
		p, nc := leave(t)
		p.write(p.seal(99, "text", 0))
		for range 2 {
			if _, err := nc.Read(make([]byte, 10)); err == nil ||
				err.Error() != "local error: tls: unexpected message" {
				t.Errorf("Read: %v", err)
			}
		}
		if _, err := nc.Write([]byte("x")); err == nil {
			t.Error("Write after an alert")
		}
		if kind, text, err := p.next(); kind != recordAlert || text != "\x02\x0a" || err != nil {
			t.Errorf("record %d %x, %v", kind, text, err)
		}
	})
	t.Run("the end of the stream", func(t *testing.T) {
		p, nc := leave(t)
		p.write(p.seal(recordApplication, "text", 0)[:7])
		_ = p.Conn.(*net.TCPConn).CloseWrite()
		if _, err := nc.Read(make([]byte, 10)); err != io.ErrUnexpectedEOF {
			t.Errorf("Read: %v", err)
		}
	})
	t.Run("Close while Read waits", func(t *testing.T) {
		p, nc := leave(t)
		done := make(chan error, 1)
		go func() { _, err := nc.Read(make([]byte, 10)); done <- err }()
		nc.Close()
		if err := await(t, "end of Read", done); err == nil {
			t.Error("Read has no error")
		}
		p.expectAlert(0)
		if err := nc.Close(); err == nil {
			t.Error("a second Close")
		}
	})
	t.Run("back into an engine", func(t *testing.T) {
		p, nc := leave(t)
		p.write(p.seal(recordApplication, "first and more", 0))
		expect(t, nc, "first")
		h := echo()
		c, err := e.Adopt(nc, nil, h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		got := ""
		for len(got) < len("hello and more") {
			_, text, err := p.next()
			if err != nil {
				t.Fatal(err)
			}
			got += text
		}
		if strings.Replace(got, "hello", "", 1) != " and more" {
			t.Errorf("%q", got)
		}
		if !patient.LeanTLS {
			return // a tls.Conn may not be used any more
		}
		if _, err := nc.Read(make([]byte, 1)); err == nil {
			t.Error("Read of a conn that was given away")
		}
		nc.Close() // this does nothing any more
		p.write(p.seal(recordApplication, "part", 0))
		p.expect("part")
		if _, ok := tlsloop.State(c); !ok {
			t.Error("it has no state")
		}
	})
}

// Leave gives the *tls.Conn, and nothing has been read of it.
func TestLeaveHasTheConn(t *testing.T) {
	conns := make(chan *tls.Conn, 1)
	h := tlsloop.Leave(func(tc *tls.Conn, err error) {
		if err != nil {
			t.Error(err)
		}
		conns <- tc
	})
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h)))
	client := dial(t, addr, clientConfig())
	send(t, client, "hello")
	tc := await(t, "tls.Conn", conns)
	if tc == nil {
		t.Fatal("no conn")
	}
	defer tc.Close()
	expect(t, tc, "hello")
	send(t, tc, "there")
	expect(t, client, "there")
}

// A connection that has ended leaves no keys behind, however it has ended.
func TestKeysAreErased(t *testing.T) {
	if !patient.LeanTLS {
		t.Skip("they are those of crypto/tls")
	}
	for name, end := range map[string]func(p *recordPeer, c *myriad.Conn){
		"by a close_notify": func(p *recordPeer, c *myriad.Conn) {
			p.write(p.seal(recordAlert, "\x01\x00", 0))
			p.Conn.Close()
		},
		"by a FIN":          func(p *recordPeer, c *myriad.Conn) { p.Conn.Close() },
		"by Close":          func(p *recordPeer, c *myriad.Conn) { c.Close(); p.Conn.Close() },
		"by Abort":          func(p *recordPeer, c *myriad.Conn) { c.Abort(io.ErrNoProgress) },
		"by a wrong record": func(p *recordPeer, c *myriad.Conn) { p.write(p.seal(99, "", 0)); p.Conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p, h := echoPeer(t)
			c := await(t, "Opened", h.opens)
			p.write(p.seal(recordApplication, "hello", 0))
			p.expect("hello")
			held := make(chan bool, 1)
			if err := c.Loop().Do(func() { held <- tlsloop.HoldsKeys(c) }); err != nil {
				t.Fatal(err)
			}
			if !await(t, "answer of the loop", held) {
				t.Fatal("there are no keys")
			}
			end(p, c)
			await(t, "Closed", h.closes)
			if tlsloop.HoldsKeys(c) {
				t.Error("its keys are left")
			}
		})
	}
}

// leavesLate is a handler that embeds Leave's, and does not say so by LeavesWithTLS.
type leavesLate struct{ h myriad.Handler }

func (l leavesLate) Opened(c *myriad.Conn)             { l.h.Opened(c) }
func (l leavesLate) Received(c *myriad.Conn, p []byte) { l.h.Received(c, p) }
func (l leavesLate) Closed(c *myriad.Conn, err error)  { l.h.Closed(c, err) }

// Leave by a handler that is no Leaver fails. The connection ends as any other, with a
// close_notify, and the loop does not wait for the peer.
func TestLeaveWithoutLeaver(t *testing.T) {
	leanOnly(t)
	errs := make(chan error, 1)
	h := leavesLate{tlsloop.Leave(func(tc *tls.Conn, err error) {
		if tc != nil {
			t.Error("it has a tls.Conn")
		}
		errs <- err
	})}
	p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
	if err := await(t, "done", errs); err == nil || !strings.Contains(err.Error(), "LeavesWithTLS") {
		t.Errorf("done(%v)", err)
	}
	p.expectAlert(0)
}

// A connection that stays with crypto/tls keeps neither its handshake nor its secrets in memory.
func TestStayingKeepsNoHandshake(t *testing.T) {
	leanOnly(t)
	type watch struct {
		alive   func() bool
		secrets func() int
	}
	for name, tt := range map[string]struct {
		leaver bool
		lean   bool
	}{"by Leave": {leaver: true}, "with records": {lean: true}} {
		t.Run(name, func(t *testing.T) {
			watches, cfg := make(chan watch, 1), serverConfig()
			pair := cfg.Certificates[0]
			cfg.Certificates = nil
			cfg.VerifyConnection = nil
			var log writerFunc = func(p []byte) (int, error) { return len(p), nil }
			cfg.KeyLogWriter = log
			var hello *tls.ClientHelloInfo
			cfg.GetCertificate = func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
				hello = info
				return &pair, nil
			}
			conns, h := make(chan *tls.Conn, 1), echo()
			front := myriad.Handler(h)
			if tt.leaver {
				front = tlsloop.Leave(func(tc *tls.Conn, err error) {
					if err != nil {
						t.Error(err)
					}
					conns <- tc
				})
			}
			addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, func(tls.ConnectionState) myriad.Handler {
				alive, secrets := tlsloop.WatchHandshake(hello.Context())
				hello = nil
				watches <- watch{alive, secrets}
				return front
			}))
			tc := dial(t, addr, clientConfig())
			w := await(t, "watch", watches)
			if tt.leaver {
				nc := await(t, "tls.Conn", conns)
				defer nc.Close()
				go io.Copy(nc, nc)
			} else if !owns(t, await(t, "Opened", h.opens)) {
				t.Error("it has not left its tls.Conn")
			}
			send(t, tc, "hello")
			expect(t, tc, "hello")
			eventually(t, "the handshake is garbage", func() bool { runtime.GC(); return !w.alive() })
			if n := w.secrets(); n > 0 {
				t.Errorf("%d bytes of secrets are left", n)
			}
		})
	}
}

// A conn that closes while the last step of its handshake runs, or right behind it, leaves no
// secrets.
func TestDyingHandshake(t *testing.T) {
	o, h := patient, echo()
	o.LeanTLS = false
	addr := listen(t, start(t, myriad.Config{}), o.Handler(serverConfig(), always(h)))
	tc := dial(t, addr, clientConfig())
	c := await(t, "Opened", h.opens)
	send(t, tc, "hello")
	expect(t, tc, "hello")
	for _, duringStep := range []bool{true, false} {
		left := make(chan int, 1)
		if err := c.Loop().Do(func() { left <- tlsloop.DyingHandshake(c, duringStep) }); err != nil {
			t.Fatal(err)
		}
		if n := await(t, "answer of the loop", left); n > 0 {
			t.Errorf("during the step %v: %d bytes of secrets are left", duringStep, n)
		}
	}
}

// A secret that the key log names twice is overwritten, and so is a line that no user gets.
func TestKeyLogIsCleared(t *testing.T) {
	secret, line := tlsloop.NoteTwice("CLIENT_TRAFFIC_SECRET_0 00 " + strings.Repeat("ab", 32) + "\n")
	if len(secret) != 32 || !bytes.Equal(secret, make([]byte, 32)) || bytes.ContainsAny(line, "ab") {
		t.Errorf("secret %x, line %q", secret, line)
	}
}

// What comes together with Finished, 30 kB and the part of a record, costs an idle connection that
// part.
func TestPartBehindTheHandshake(t *testing.T) {
	leanOnly(t)
	log, h, cfg := new(recordtest.KeyLog), echo(), ticketless()
	cfg.KeyLogWriter = log
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, always(h)))
	nc := &lastTogether{Conn: dialTCP(t, addr)}
	peer, err := recordtest.Handshake(nc, tls.TLS_AES_128_GCM_SHA256, log)
	if err != nil {
		t.Fatal(err)
	}
	text := pattern(15_000)
	stream := bytes.Join([][]byte{nc.held, peer.Out.Seal(recordApplication, text, 0),
		peer.Out.Seal(recordApplication, text, 0), peer.Out.Seal(recordApplication, "hello", 0)[:7]}, nil)
	if _, err := nc.Conn.Write(stream); err != nil {
		t.Fatal(err)
	}
	got := ""
	for len(got) < 2*len(text) {
		r, err := recordtest.ReadRecord(nc)
		if err != nil {
			t.Fatal(err)
		}
		_, data, err := peer.In.Open(r)
		if err != nil {
			t.Fatal(err)
		}
		got += string(data)
	}
	c := await(t, "Opened", h.opens)
	eventually(t, "the part has come", func() bool {
		var room, part int
		done := make(chan struct{})
		if err := c.Loop().Do(func() { room, part = tlsloop.BuffersHeld(c); close(done) }); err != nil {
			t.Fatal(err)
		}
		await(t, "answer of the loop", done)
		if part == 7 && room > 100 {
			t.Fatalf("%d bytes are held for %d", room, part)
		}
		return part == 7
	})
}

// A lastTogether keeps what is written behind a ClientHello.
type lastTogether struct {
	net.Conn
	writes int
	held   []byte
}

func (l *lastTogether) Write(p []byte) (int, error) {
	if l.writes++; l.writes == 1 {
		return l.Conn.Write(p)
	}
	l.held = append(l.held, p...)
	return len(p), nil
}
