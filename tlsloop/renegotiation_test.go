package tlsloop_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// A client that asks for a new handshake within a TLS 1.2 connection, in a record that its keys
// fit, gets an alert and the end, as from crypto/tls itself.
func TestRenegotiationIsRefused(t *testing.T) {
	openssl := tool(t, "openssl")
	t.Run("tlsloop", func(t *testing.T) {
		h := echo()
		said := renegotiate(t, openssl, listen(t, start(t, myriad.Config{}),
			patient.Handler(serverConfig(), always(h))))
		if !strings.Contains(said, unexpectedMessage) {
			t.Errorf("openssl says %q", said)
		}
		if err := await(t, "Closed", h.closes); err == nil || !strings.Contains(err.Error(),
			"unexpected handshake message") {
			t.Errorf("Closed(%v)", err)
		}
	})
	t.Run("crypto/tls", func(t *testing.T) {
		l, err := tls.Listen("tcp", "127.0.0.1:0", serverConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			io.Copy(nc, nc)
		}()
		if said := renegotiate(t, openssl, l.Addr().String()); !strings.Contains(said, unexpectedMessage) {
			t.Errorf("openssl says %q", said)
		}
	})
}

// unexpectedMessage is how OpenSSL reports alert 10.
const unexpectedMessage = "SSL alert number 10"

// renegotiate has openssl do so once it has an echo, and returns all it says.
func renegotiate(t *testing.T, openssl, addr string) string {
	t.Helper()
	cmd := exec.Command(openssl, "s_client", "-connect", addr, "-servername", "localhost", "-tls1_2", "-brief")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	impatience := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer impatience.Stop()
	send(t, in, "hello\n")
	expect(t, out, "hello\n")
	send(t, in, "R\n")
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // what it says is what matters
	return said.String()
}

// A handshake record in the clear is the end as well.
func TestPlainHandshakeRecord(t *testing.T) {
	t.Parallel()
	h := echo()
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h)))
	cfg := clientConfig()
	cfg.MaxVersion = tls.VersionTLS12
	tc := dial(t, addr, cfg)
	send(t, tc.NetConn(), "\x16\x03\x03\x00\x04\x01\x00\x00\x00")
	if _, err := io.ReadAll(tc); err == nil || !strings.Contains(err.Error(), "bad record MAC") {
		t.Errorf("the client hears of %v", err)
	}
	if err := await(t, "Closed", h.closes); err == nil || !strings.Contains(err.Error(), "bad record MAC") {
		t.Errorf("Closed(%v)", err)
	}
}
