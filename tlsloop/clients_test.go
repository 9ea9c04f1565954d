package tlsloop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// tool finds a client that is not ours, or skips.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("MYRIAD_REQUIRE_CLIENTS") == "1" {
		t.Fatal(err)
	}
	t.Skipf("%v (MYRIAD_REQUIRE_CLIENTS=1 makes this a failure)", err)
	return ""
}

// inTime ends a client that would be waited for without end.
func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// authorityFile is the test's authority as a file.
func authorityFile(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted().cert.Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// lines answers a line with the same in capitals, and closes after "quit".
func lines() *probe {
	h := newProbe()
	var got bytes.Buffer
	h.opened = func(*myriad.Conn) { got.Reset() }
	h.received = func(c *myriad.Conn, p []byte) {
		got.Write(p)
		for {
			line, err := got.ReadString('\n')
			if err != nil {
				got.WriteString(line)
				return
			}
			c.Write([]byte(strings.ToUpper(line)))
			if line == "quit\n" {
				c.Close()
			}
		}
	}
	return h
}

func TestOpenSSL(t *testing.T) {
	openssl := tool(t, "openssl")
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(lines())))
	ca := authorityFile(t)
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		t.Run(version, func(t *testing.T) {
			cmd := exec.CommandContext(inTime(t), openssl, "s_client", "-connect", addr, "-servername", "localhost",
				"-verify_return_error", "-CAfile", ca, "-quiet", version)
			cmd.Stdin = strings.NewReader("one\ntwo\nquit\n")
			out, err := cmd.Output()
			if string(out) != "ONE\nTWO\nQUIT\n" {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
	for suite, own := range map[string]bool{"TLS_AES_128_GCM_SHA256": true, "TLS_AES_256_GCM_SHA384": true,
		"TLS_CHACHA20_POLY1305_SHA256": false} {
		t.Run(suite, func(t *testing.T) {
			h := lines()
			opened := h.opened
			left := make(chan bool, 1)
			h.opened = func(c *myriad.Conn) { opened(c); left <- tlsloop.OwnRecords(c) }
			addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h)))
			cmd := exec.CommandContext(inTime(t), openssl, "s_client", "-connect", addr, "-servername", "localhost",
				"-verify_return_error", "-CAfile", ca, "-quiet", "-ciphersuites", suite)
			cmd.Stdin = strings.NewReader("one\ntwo\nquit\n")
			out, err := cmd.Output()
			if string(out) != "ONE\nTWO\nQUIT\n" {
				t.Errorf("got %q, %v", out, err)
			}
			if got := await(t, "Opened", left); got != (own && patient.LeanTLS) {
				t.Errorf("it has left its tls.Conn: %v", got)
			}
		})
	}
	// With K, s_client updates its keys and asks for ours to be; with k, only its own.
	t.Run("key updates", func(t *testing.T) {
		cmd := exec.CommandContext(inTime(t), openssl, "s_client", "-connect", addr, "-servername", "localhost",
			"-CAfile", ca, "-tls1_3", "-brief")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait() // its code depends on its version
		// It reads all that is there, takes the first letter for a command, and drops the rest: so
		// one line at a time.
		notes := bufio.NewScanner(said)
		for _, line := range []string{"one\n", "K\n", "two\n", "k\n", "quit\n"} {
			send(t, in, line)
			if len(line) > len("K\n") {
				expect(t, out, strings.ToUpper(line))
				continue
			}
			for notes.Scan() && notes.Text() != "KEYUPDATE" {
			}
		}
	})
}

const pythonClient = `
import socket, ssl, sys
ctx = ssl.create_default_context(cafile=sys.argv[2])
host, port = sys.argv[1].rsplit(":", 1)
version = None
with socket.create_connection((host, int(port))) as raw, ctx.wrap_socket(raw, server_hostname="localhost") as s:
    s.sendall(b"x" * 100000 + b"\n")
    got = b""
    while len(got) < 100001:
        got += s.recv(65536)
    assert got == b"X" * 100000 + b"\n"
    s.sendall(b"quit\n")
    assert s.recv(100) == b"QUIT\n"
    assert s.recv(100) == b""   # a close_notify: without one this raises
    version = s.version()
    s.unwrap()
print("done", version)
`

func TestPython(t *testing.T) {
	python := tool(t, "python3")
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(lines())))
	out, err := exec.CommandContext(inTime(t), python, "-c", pythonClient, addr, authorityFile(t)).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "done TLSv1.3") {
		t.Errorf("%s, %v", out, err)
	}
}

// s_client takes up its session again with the ticket it was given.
func TestOpenSSLSessions(t *testing.T) {
	openssl := tool(t, "openssl")
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(lines())))
	ca, session := authorityFile(t), filepath.Join(t.TempDir(), "session")
	talk := func(words string, args ...string) string {
		args = append([]string{"s_client", "-connect", addr, "-servername", "localhost", "-CAfile", ca, "-ign_eof"},
			args...)
		cmd := exec.CommandContext(inTime(t), openssl, args...)
		cmd.Stdin = strings.NewReader(words)
		out, _ := cmd.CombinedOutput() // its code depends on its version
		return string(out)
	}
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		if got := talk("one\nquit\n", version, "-sess_out", session); !strings.Contains(got, "New, TLSv1") ||
			!strings.Contains(got, "ONE\n") {
			t.Errorf("%s: %s", version, got)
		}
		if got := talk("two\nquit\n", version, "-sess_in", session); !strings.Contains(got, "Reused, TLSv1") ||
			!strings.Contains(got, "TWO\n") {
			t.Errorf("%s with the ticket: %s", version, got)
		}
	}
}
