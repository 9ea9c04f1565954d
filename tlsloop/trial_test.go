package tlsloop_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/tlsloop/internal/record/recordtest"
)

// slowAES marks a process that has no AES instructions.
const slowAES = "cpu.aes=off"

// A property of crypto/tls: it tells a key log the secrets of a connection before it writes the
// first record with them, and what it has sealed with them can be counted. Without it crypto/tls
// keeps all connections.
func TestPropertyRecords(t *testing.T) {
	var want error
	if !prefersAES(t) {
		want = tlsloop.ErrUntried
	}
	if err := tlsloop.TryRecords(); err != want {
		t.Errorf("TryRecords: %v, want %v", err, want)
	}
}

// prefersAES reports whether two sides of crypto/tls agree on AES-GCM here.
func prefersAES(t *testing.T) bool {
	t.Helper()
	addr := listen(t, start(t, myriad.Config{}), tlsloop.Handler(serverConfig(), always(echo())))
	return dial(t, addr, clientConfig()).ConnectionState().CipherSuite == tls.TLS_AES_128_GCM_SHA256
}

// What crypto/tls does not prefer has not been tried: there even clients that offer AES-GCM alone
// stay with crypto/tls. Then the engine's log says why LeanTLS is not in force.
func TestWithoutAES(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), slowAES) {
		cmd := exec.Command(os.Args[0], "-test.run=^(TestWithoutAES|TestPropertyRecords)$", "-test.timeout=2m",
			"-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG="+slowAES)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	if prefersAES(t) {
		t.Skip("GODEBUG does not reach this processor's instructions")
	}
	log, h, logged := new(recordtest.KeyLog), echo(), new(logLines)
	cfg := serverConfig()
	cfg.KeyLogWriter = log
	o := patient
	o.LeanTLS = true
	addr := listen(t, start(t, myriad.Config{Logger: logged.logger()}), o.Handler(cfg, always(h)))
	if _, err := recordtest.Handshake(dialTCP(t, addr), tls.TLS_AES_128_GCM_SHA256, log); err != nil {
		t.Fatal(err)
	}
	if owns(t, await(t, "Opened", h.opens)) {
		t.Error("a connection has records that nobody has tried")
	}
	if n := logged.count(tlsloop.ErrUntried.Error()); n != 1 {
		t.Errorf("the log has the reason %d times", n)
	}
}

// Where LeanTLS is asked for and cannot be had, the log has the reason, once for each Handler. A
// Config that may leave says nothing.
func TestLogsWhyNotLean(t *testing.T) {
	leanOnly(t)
	for name, tt := range map[string]struct {
		server func(*tls.Config)
		reason string
	}{
		"as usual":           {func(*tls.Config) {}, ""},
		"GetConfigForClient": {getConfig, "GetConfigForClient"},
		"MaxVersion":         {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, "MaxVersion"},
		"encrypted hellos": {func(c *tls.Config) {
			c.GetEncryptedClientHelloKeys = func(*tls.ClientHelloInfo) ([]tls.EncryptedClientHelloKey, error) {
				return nil, nil
			}
		}, "encrypted hellos"},
	} {
		t.Run(name, func(t *testing.T) {
			logged, cfg := new(logLines), serverConfig()
			tt.server(cfg)
			addr := listen(t, start(t, myriad.Config{Logger: logged.logger()}), patient.Handler(cfg, always(echo())))
			for range 3 {
				tc := dial(t, addr, clientConfig())
				send(t, tc, "hello")
				expect(t, tc, "hello")
			}
			want := 1
			if tt.reason == "" {
				want = 0
			}
			if n := logged.count("LeanTLS is not in force"); n != want {
				t.Errorf("%d lines, want %d", n, want)
			}
			if n := logged.count(tt.reason); tt.reason != "" && n != 1 {
				t.Errorf("the reason is in %d lines", n)
			}
		})
	}
}

// logLines are those of a log.
type logLines struct {
	mu  sync.Mutex
	all []string
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *logLines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// A property of crypto/tls: a record with Finished has nothing else. What followed it would be of
// the handshake's keys.
func TestPropertyNothingBehindFinished(t *testing.T) {
	for name, behind := range map[string]string{
		"a part of a message": "\x18", "a KeyUpdate": "\x18\x00\x00\x01\x00", "another type": "\x01\x00\x00\x04",
	} {
		t.Run(name, func(t *testing.T) {
			log, closed := new(recordtest.KeyLog), make(chan error, 1)
			cfg := serverConfig()
			cfg.KeyLogWriter = log
			o := patient
			o.Closed = func(_ *myriad.Conn, err error) { closed <- err }
			addr := listen(t, start(t, myriad.Config{}), o.Handler(cfg, func(tls.ConnectionState) myriad.Handler {
				t.Error("the handshake has succeeded")
				return nil
			}))
			nc := dialTCP(t, addr)
			peer, err := recordtest.HandshakeWith(nc, tls.TLS_AES_128_GCM_SHA256, log, behind)
			if err != nil {
				t.Fatal(err)
			}
			expectRefusal(t, nc, peer)
			if err := await(t, "Closed", closed); err == nil {
				t.Error("Closed has no error")
			}
		})
	}
}

// expectRefusal reads up to an alert, which must be unexpected_message.
func expectRefusal(t *testing.T, nc net.Conn, peer *recordtest.Client) {
	t.Helper()
	for {
		r, err := recordtest.ReadRecord(nc)
		if err != nil {
			t.Fatal("no alert:", err)
		}
		kind, text, err := peer.In.Open(r)
		if err != nil {
			t.Fatal(err)
		}
		if kind == recordAlert {
			if got := fmt.Sprintf("%x", text); got != "020a" {
				t.Errorf("alert %s", got)
			}
			return
		}
	}
}
