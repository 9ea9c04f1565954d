package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/handover"
)

// A replaceable is a server whose program can be replaced by another one.
type replaceable struct {
	server
	program string // path of a link
}

// serveReplaceable starts a server by a path of its own.
func serveReplaceable(t *testing.T, args ...string) *replaceable {
	t.Helper()
	program := filepath.Join(shortFolder(t), "myriad")
	if err := os.Symlink(binary, program); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, program, append([]string{"serve", "--listen", "127.0.0.1:0", "--namespace", kept}, args...)...)
	return &replaceable{server{p, p.want(`url=http://([0-9.:]+)`)[1]}, program}
}

// replace puts a file in the place of the program, or a link to the server: "".
func (r *replaceable) replace(text string) {
	r.t.Helper()
	if err := os.Remove(r.program); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	err := os.Symlink(binary, r.program)
	if text != "" {
		err = errors.Join(os.Remove(r.program), os.WriteFile(r.program, []byte(text), 0o700))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func init() { otherCrowds["stranger"] = runStranger }

// runStranger takes the place of a server as another program would, which knows nothing of what
// moves.
func runStranger() error {
	nc, err := handover.Inherited()
	if err != nil {
		return err
	}
	io.WriteString(nc, "take\n")
	for one := []byte{0}; one[0] != '\n'; {
		if _, err := nc.Read(one); err != nil {
			return err
		}
	}
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		return err
	}
	_, err = handover.Take(nc, &handover.Program{Engine: e})
	return err
}

// If the new program does not start, fails, or is none of ours, the old server goes on, and says
// why.
func TestUpgradeToABadProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortFolder(t), "h")
	r := serveReplaceable(t, "--handover", path)
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := read(t, r.addr)
	clients := []*reader{c}
	for range 50 { // more than the descriptors below
		clients = append(clients, read(t, r.addr))
	}
	for i, tt := range []struct{ name, program, want string }{
		{"no program", "\x7fELF", "exec format error"},
		{"ends at once", "#!/bin/sh\nexit 7\n", "exit status 7"},
		{"writes garbage", "#!/bin/sh\necho a line of garbage >&3\nexec sleep 300\n", `says .*a line of garbage`},
		{"goes on with garbage", "#!/bin/sh\necho take >&3\necho a line of garbage >&3\nexec sleep 300\n",
			"unexpected message"},
		{"writes one long line", "#!/bin/sh\nhead -c 100000 /dev/zero >&3\n", "a line of more than 64 bytes"},
		{"has other formats", "#!/bin/sh\nMYRIAD_CROWD=stranger exec " + test + "\n", "format is not understood"},
		{"has other options", "#!/bin/sh\nexec " + binary + " serve --listen 127.0.0.1:0\n", "namespace .*kept"},
		{"has too few descriptors", "#!/bin/sh\nulimit -n 40\nexec " + binary + ` "$@"` + "\n", "descriptors|too many"},
	} {
		r.replace(tt.program)
		out := refused(t, binary, "upgrade", "--handover", path)
		if !strings.Contains(out, "no upgrade, the server goes on as it was") ||
			!regexp.MustCompile(tt.want).MatchString(
				out) {
			t.Errorf("%s: %s", tt.name, out)
		}
		r.want("myriad upgrade: no new process took over, and this one goes on.*(" + tt.want + ")")
		publishAt(t, r.addr, i+1)
		for _, c := range clients {
			c.want(i + 1)
		}
	}
	if child := childOf(r.cmd.Process.Pid); child != 0 {
		t.Errorf("the process %d is left", child)
	}
	r.replace("")
	upgradeNow(t, "--handover", path)
	awaitEnd(t, r.cmd.Process.Pid)
	publishAt(t, r.addr, 9)
	for _, c := range clients {
		c.want(9)
	}
}

// myriad upgrade asks a server without --handover by its pid. It fails if the server refuses, and
// never ends another program.
func TestUpgradeByPid(t *testing.T) {
	t.Parallel()
	r := serveReplaceable(t)
	c := read(t, r.addr)
	pid := strconv.Itoa(r.cmd.Process.Pid)
	r.replace("#!/bin/sh\nsleep 0.2\nexit 7\n")
	if out := refused(t, binary, "upgrade", "--pid", pid); !strings.Contains(out, "which has ended: the log says why") {
		t.Errorf("a program that ends: %s", out)
	}
	r.want("SIGUSR2: no new process took over, and this one goes on.*exit status 7")
	r.replace("")
	file := r.program + ".pid"
	if err := os.WriteFile(file, []byte(pid+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	upgradeNow(t, "--pid-file", file)
	publishAt(t, r.addr, 1)
	c.want(1)

	other := start(t, nil, "sleep", "300")
	for _, args := range [][]string{{"--pid", strconv.Itoa(other.cmd.Process.Pid)}, {"--pid-file", file},
		{"--pid", "-1"}, {"--pid", "5", "--pid-file", file}, {"--pid-file", r.program + ".none"}, {}, {"now"},
		{"--pid", "5", "--timeout", "soon"}} {
		refused(t, binary, append([]string{"upgrade"}, args...)...)
	}
	if err := other.cmd.Process.Signal(syscall.Signal(0)); err != nil || hasEnded(other.cmd.Process.Pid) {
		t.Errorf("another program: %v", err)
	}
}

// passed makes a listener as a service manager does.
func passed(t *testing.T, network, addr string) (*os.File, net.Listener) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	file, err := ln.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, ln
}

// Sockets of a service manager move with the clients that they have brought, by each way. They stay
// the service manager's: new clients wait there while no server runs.
func TestUpgradeWithPassedSockets(t *testing.T) {
	t.Parallel()
	folder := shortFolder(t)
	path := filepath.Join(folder, "h")
	public, ln := passed(t, "tcp", "127.0.0.1:0")
	admin, _ := passed(t, "unix", filepath.Join(folder, "admin"))
	addr := ln.Addr().String()
	env := []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=public:admin", "H=" + path}
	// LISTEN_PID is the pid of the shell, which execs the server.
	const script = `LISTEN_PID=$$ exec "$0" serve --listen fd:public --admin-listen fd:admin --handover "$H" ` +
		`--namespace '` + kept + `'`
	serve := func() *process {
		t.Helper()
		p := startWith(t, []*os.File{public, admin}, env, "sh", "-c", script, binary)
		p.want("admin=unix:")
		return p
	}
	p := serve()
	c := read(t, addr)
	api := func(want int) {
		t.Helper()
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, "admin"))
			}}}
		r, err := client.Post("http://localhost/api/publish", "application/json",
			strings.NewReader(fmt.Sprintf(`{"channel":"kept:a","data":%d}`, want)))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		c.want(want)
		read(t, addr) // a new client
	}
	api(1)
	pid := upgradeNow(t, "--handover", path) // the old one starts the new one, which has been passed nothing
	awaitEnd(t, p.cmd.Process.Pid)
	api(2)
	p = serve() // the service manager starts the new one
	awaitEnd(t, pid)
	api(3)
	p.never("they are closed")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", addr) // which waits
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	io.WriteString(nc, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	serve()
	if answer, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("a client that has waited: %q, %v", answer, err)
	}
}

// traits are what a process has from the one that has started it.
func traits(t *testing.T, pid int) map[string]string {
	t.Helper()
	had := map[string]string{}
	for name, pattern := range map[string]string{"status": `(?m)^Umask:.*$`, "limits": `(?m)^Max open files.*$`,
		"oom_score_adj": `.*`} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		had[name] = regexp.MustCompile(pattern).FindString(string(text))
	}
	var err error
	if had["folder"], err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil {
		t.Fatal(err)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	for one := range strings.SplitSeq(strings.TrimSuffix(string(environ), "\x00"), "\x00") {
		name, value, _ := strings.Cut(one, "=")
		had["$"+name] = value
	}
	return had
}

// descriptorsOf are what the descriptors of a process lead to, besides what every process has of
// its own.
func descriptorsOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	leads := map[string]bool{}
	for _, link := range links {
		to, err := os.Readlink(link)
		switch {
		case err != nil || strings.HasPrefix(to, "anon_inode:") || to == "/dev/null":
		case strings.HasPrefix(to, "/sys/fs/cgroup/"): // which the runtime looks at
		default:
			leads[to] = true
		}
	}
	return leads
}

// The new process has the folder, umask, limits and environment of the old one, and of its
// descriptors only what moves.
func TestUpgradeKeepsSurroundings(t *testing.T) {
	t.Parallel()
	folder := shortFolder(t)
	for name, text := range map[string]string{"left": "", "config": "[[namespace]]\nname = \"kept\"\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const script = `umask 027; echo 345 >/proc/self/oom_score_adj; cd "$FOLDER"; ulimit -n 5000; exec 8<left; ` +
		`WATCHDOG_PID=$$ exec "$0" serve --listen 127.0.0.1:0 --handover h --config config`
	// The service manager has passed a socket that the server does not use.
	passed, _ := passed(t, "tcp", "127.0.0.1:0")
	p := startWith(t, []*os.File{passed}, []string{"FOLDER=" + folder, "LISTEN_FDS=1", "LISTEN_PID=1",
		"WATCHDOG_USEC=60000000", "SPACES=a b\nc"}, "sh", "-c", script, binary)
	s := server{p, p.want(`url=http://([0-9.:]+)`)[1]}
	read(t, s.addr)
	old := p.cmd.Process.Pid
	before, open := traits(t, old), descriptorsOf(t, old)
	if !open[filepath.Join(folder, "left")] || before["oom_score_adj"] != "345" || before["folder"] != folder {
		t.Fatalf("%v, %v", before, open)
	}
	pid := upgradeNow(t, "--handover", filepath.Join(folder, "h"))
	awaitEnd(t, old)
	after := traits(t, pid)
	for name, value := range map[string]string{"$WATCHDOG_PID": strconv.Itoa(old),
		"$SUCCESSOR_OF_PID":   strconv.Itoa(old),
		"$MYRIAD_HANDOVER_FD": "3"} {
		if after[name] != value {
			t.Errorf("%s is %q, want %q", name, after[name], value)
		}
		delete(after, name)
		delete(before, name)
	}
	for _, name := range []string{"$LISTEN_FDS", "$LISTEN_PID", "$LISTEN_FDNAMES"} {
		if value, has := after[name]; has {
			t.Errorf("%s is %q", name, value)
		}
		delete(before, name)
	}
	for name, value := range before {
		if after[name] != value {
			t.Errorf("%s is %q, and was %q", name, after[name], value)
		}
		delete(after, name)
	}
	for name, value := range after {
		t.Errorf("%s is %q, and was not there", name, value)
	}
	shared := []string{}
	for to := range descriptorsOf(t, pid) {
		if open[to] {
			shared = append(shared, to)
		}
	}
	// Standard output and error are one pipe. The two listeners and the client are the others.
	pattern := regexp.MustCompile(`^pipe:\S+( socket:\S+){3}$`)
	if text := strings.Join(slices.Sorted(slices.Values(shared)), " "); !pattern.MatchString(text) {
		t.Errorf("both processes have %s", text)
	}
}

// The first process of a container starts no successor, with which the container would end. Another
// process takes over from it.
func TestUpgradeOfProcessOne(t *testing.T) {
	t.Parallel()
	canMakeNamespaces(t)
	path := filepath.Join(shortFolder(t), "h")
	p := start(t, nil, "unshare", "-pf", "--mount-proc", "--kill-child", binary, "serve", "--listen", "127.0.0.1:0",
		"--namespace", kept, "--handover", path)
	s := server{p, p.want(`url=http://([0-9.:]+)`)[1]}
	c := read(t, s.addr)
	first := childOf(p.cmd.Process.Pid)
	if err := syscall.Kill(first, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	s.want("SIGUSR2: no new process took over, and this one goes on.*this is process 1")
	if out := refused(t, binary, "upgrade", "--handover", path); !strings.Contains(out, "this is process 1") {
		t.Errorf("myriad upgrade: %s", out)
	}
	publishAt(t, s.addr, 1)
	c.want(1)
	next := serveAt(t, path)
	if err := p.wait(); err != nil {
		t.Error(err)
	}
	publishAt(t, next.addr, 2)
	c.want(2)
}
