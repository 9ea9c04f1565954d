package resp

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/resp/wire"
)

// redis starts a redis-server on a unix socket and a port, with arguments behind, and returns the
// address. The test is skipped where there is none, unless MYRIAD_REQUIRE_CLIENTS is set.
func redis(t testing.TB, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("MYRIAD_REQUIRE_CLIENTS") != "" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
	dir, err := os.MkdirTemp("", "resp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir,
		"--appendonly", "no", "--loglevel", "warning"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if nc, err := net.Dial("unix", socket); err == nil {
			nc.Close()
			return socket
		}
	}
	t.Fatal("redis-server does not listen")
	return ""
}

// answerTo is what a server answers to input, and whether it closes the connection then by itself.
func answerTo(t *testing.T, network, addr, in string) string {
	t.Helper()
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(nc, in) // it may be closed before all has been written
	// A command that is incomplete has no answer: so that its end need not be waited for, the peer
	// ends its side. What closed before that is seen by Redis not reading on.
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	all, _ := io.ReadAll(nc)
	return string(all)
}

// malformed is what package wire is tested with, too: see its function of the same name.
func malformed(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("wire/testdata/malformed.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var in, repeated string
		var times int
		_, _ = fmt.Sscanf(line, "%q %d*%q", &in, &times, &repeated) // few lines have all of it
		all = append(all, in+strings.Repeat(repeated, times))
	}
	return all
}

// Whatever is wrong is answered as redis-server answers it.
func TestAnswersLikeRedis(t *testing.T) {
	socket := redis(t)
	addrs := map[Dispatch]string{}
	for _, d := range dispatches {
		addrs[d] = serve(t, &Server{Dispatch: d})
	}
	inputs := append(malformed(t), []string{"GET\r\n", "NOPE\r\n", "NOPE a b c\r\n", "nope \"a\\r\\nb\" 'x y'\r\n",
		"CLIENT\r\n",
		"CLIENT NOPE\r\n", "CLIENT ID x\r\n", "CLIENT GETNAME\r\n", "CLIENT SETNAME \"a b\"\r\n",
		"CLIENT REPLY x\r\n",
		"CLIENT NO-EVICT x\r\n", "CLIENT SETNAME\r\n", "HELLO x\r\n", "HELLO 4\r\n", "HELLO 3 FOO\r\n",
		"HELLO 3 AUTH a\r\n",
		"HELLO 2 SETNAME \"a b\"\r\n", "AUTH\r\n", "AUTH x\r\n", "AUTH a b\r\n", "AUTH a b c\r\n", "PING a b\r\n",
		"QUIT\r\n",
		"QUIT x\r\nPING\r\n", "RESET x\r\n", "RESET\r\n", "CONFIG NOPE\r\n", "ECHO\r\n", "SUBSCRIBE\r\n",
		"PUBLISH a\r\n",
		"UNSUBSCRIBE\r\nPUNSUBSCRIBE x\r\n", "SUBSCRIBE a\r\nGET k\r\nPING\r\nPING x\r\nQUIT\r\n", "PUBSUB\r\n",
		"PUBSUB NOPE\r\n", "PUBSUB CHANNELS\r\n", "PUBSUB NUMSUB\r\n", "PUBSUB NUMSUB a\r\n", "PUBSUB NUMPAT\r\n",
		"PUBSUB NUMPAT x\r\n", "SUBSCRIBE a\r\nRESET\r\nPING\r\n", strings.Repeat("NOPE ", 60) + "\r\n",
		strings.Repeat("n", 200) + " a\r\n", "*1\r\n$0\r\n\r\n", "*2\r\n$0\r\n\r\n$1\r\na\r\n",
		"CLIENT REPLY OFF\r\nPING\r\n", "CLIENT REPLY OFF\r\nQUIT\r\n", "CLIENT REPLY OFF\r\n*1\r\nx\r\n",
		"CLIENT REPLY SKIP\r\n*1\r\nx\r\n", "CLIENT REPLY SKIP\r\nNOPE\r\nPING\r\n",
		"CLIENT REPLY SKIP\r\nQUIT\r\n", "PING\r\nCLIENT REPLY SKIP\r\nQUIT\r\n",
		"CLIENT REPLY SKIP\r\nCLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\nPING\r\n",
		"CLIENT REPLY OFF\r\nRESET\r\nPING\r\n", "CLIENT REPLY OFF\r\nCLIENT REPLY x\r\nCLIENT REPLY ON\r\n",
		"CLIENT REPLY OFF\r\nSUBSCRIBE a b\r\nUNSUBSCRIBE a\r\nPING\r\nPUBLISH a x\r\n",
		"CLIENT REPLY SKIP\r\nSUBSCRIBE a b\r\nPING\r\n", "CLIENT REPLY SKIP\r\nPUNSUBSCRIBE\r\nPING\r\n",
		"CLIENT REPLY OFF\r\nPSUBSCRIBE a*\r\nQUIT\r\n",
		"CLIENT REPLY SKIP\r\nPING\r\nPING\r\n", "CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nPING\r\n",
		"POST / HTTP/1.1\r\n\r\n", "Host: x\r\n", "*2\r\n$4\r\nNO\x00E\r\n$3\r\na\x00b\r\n",
		"PING\r\nPING\r\n*1\r\n$x\r\nPING\r\n",
	}...)
	for _, in := range inputs {
		want := answerTo(t, "unix", socket, in)
		for _, d := range dispatches {
			if got := answerTo(t, "tcp", addrs[d], in); got != want {
				t.Errorf("%v: %.80q (%d bytes): got %.200q, redis-server says %.200q", d, in, len(in), got, want)
			}
		}
	}
}

// So it is before authentication.
func TestStrangersLikeRedis(t *testing.T) {
	socket := redis(t, "--requirepass", "pw")
	addr := serve(t, &Server{Auth: func(_ *Conn, user,
		password string) bool {
		return user == "default" && password == "pw"
	}})
	for _, in := range []string{"PING\r\n", "GET\r\n", "NOPE\r\n", "*11\r\n", "*10\r\n", "*1\r\n$16385\r\n",
		"AUTH x\r\n", "AUTH\r\n",
		"AUTH pw\r\nPING\r\n", "AUTH default pw\r\nPING\r\n", "AUTH other pw\r\nPING\r\n", "HELLO\r\n", "HELLO 3\r\n",
		"HELLO 4\r\n",
		"HELLO 3 AUTH default x\r\n", "RESET\r\nPING\r\n", "QUIT\r\n", "AUTH pw\r\nRESET\r\nPING\r\n",
		"CLIENT ID\r\n",
		"*-1\r\nPING\r\n",
		"AUTH pw\r\n" + string(wire.AppendCommand(nil, "PING", strings.Repeat("x", 20000)))} {
		want := answerTo(t, "unix", socket, in)
		if got := answerTo(t, "tcp", addr, in); got != want {
			t.Errorf("%.80q: got %.200q, redis-server says %.200q", in, got, want)
		}
	}
}

// What Match says is what KEYS finds.
func TestMatchLikeRedis(t *testing.T) {
	socket := redis(t)
	nc, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, Conn: nc}
	defer nc.Close()
	ask := func(args ...string) Value {
		p.send(string(wire.AppendCommand(nil, args...)))
		var kept []byte
		for {
			room := make([]byte, 1<<16)
			n, err := nc.Read(room)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, room[:n]...)
			if n, v, err := wire.ParseValue(kept, Limits{}); n > 0 || err != nil {
				return v
			}
		}
	}
	keys := []string{"", "a", "b", "ab", "abc", "a-c", "]", "[", "^", "\\", "a*c", "hello", "hallo", "h]llo", "-",
		"a]"}
	for _, k := range keys {
		ask("SET", k, "v")
	}
	for _, pattern := range []string{"*", "a*", "?", "??", "[ab]", "[^a]", "[a-c]", "[c-a]", "h[ae]llo", "\\*",
		"a\\*c", "[\\]]", "[]]", "[a",
		"[^", "[", "a\\", "**", "*a*", "[a-", "[^]", "h[^e]llo", "?*", "*?", "*]", "[\\", "[a\\", "[--a]", "[]",
		"a[]b", ""} {
		found := map[string]bool{}
		for _, v := range ask("KEYS", pattern).Elems {
			found[string(v.Str)] = true
		}
		for _, k := range keys {
			if got := wire.Match(pattern, k); !(k == "" && pattern == "**") && got != found[k] {
				t.Errorf("wire.Match(%q, %q) is %v, redis-server says %v", pattern, k, got, found[k])
			}
		}
	}
}
