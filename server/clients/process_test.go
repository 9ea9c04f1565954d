package clients

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait for something that usually takes milliseconds.
const patience = 2 * time.Minute

var binary string // of the server

func TestMain(m *testing.M) {
	if server := os.Getenv("UPGRADE_RELAY"); server != "" {
		if err := relayUpgrade(server); err != nil {
			fmt.Println("relay: failed:", err)
			os.Exit(1)
		}
		return
	}
	if kind := os.Getenv("MYRIAD_CROWD"); kind != "" {
		run := func() error { return runCrowd(kind) }
		if other := otherCrowds[kind]; other != nil {
			run = other
		}
		if err := run(); err != nil {
			fmt.Println("crowd:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		var err error
		if binary, err = build("myriad", ".", "github.com/myriad-go/myriad/server/cmd/myriad"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := endChromium(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, "ending Chromium:", err)
			return 1
		}
		return code
	}())
}

// otherCrowds are child processes that only some systems support.
var otherCrowds = map[string]func() error{}

// relayUpgrade is a child process that only some systems support.
var relayUpgrade = func(string) error { return errors.ErrUnsupported }

// A process is a child process with a record of its output lines.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	seen  []string
	done  chan error
}

// start runs a program until the test ends, or stop is called.
func start(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, env, program, args...)
}

// startWith is start for a program that inherits files, from descriptor 3 on.
func startWith(t *testing.T, files []*os.File, env []string, program string, args ...string) *process {
	t.Helper()
	p := launch(t, files, env, program, args...)
	t.Cleanup(p.kill)
	return p
}

// launch runs a program until kill is called, maybe after the test.
func launch(t *testing.T, files []*os.File, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), lines: make(chan string, 10000), done: make(chan error, 1)}
	p.cmd.Env, p.cmd.ExtraFiles = append(os.Environ(), env...), files
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer out.Close()
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.lines <- scan.Text()
		}
	}()
	go func() {
		err := p.cmd.Wait()
		<-read
		close(p.lines)
		p.done <- err
	}()
	return p
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.wait()
}

// want waits for a line that matches the pattern, and returns the submatches.
func (p *process) want(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%s ended without a line like %q; it printed\n%s", filepath.Base(p.cmd.Path), pattern,
					strings.Join(p.seen, "\n"))
			}
			p.seen = append(p.seen, line)
			if found := re.FindStringSubmatch(line); found != nil {
				return found
			}
		case <-timeout.C:
			p.t.Fatalf("%s printed no line like %q in %v; it printed\n%s", filepath.Base(p.cmd.Path), pattern, patience,
				strings.Join(p.seen, "\n"))
		}
	}
}

// never fails the test if a line so far matches.
func (p *process) never(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return
			}
			p.seen = append(p.seen, line)
			continue
		default:
		}
		break
	}
	for _, line := range p.seen {
		if re.MatchString(line) {
			p.t.Errorf("%s said %q", filepath.Base(p.cmd.Path), line)
		}
	}
}

func (p *process) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the process to end and returns its error. It may be called again.
func (p *process) wait() error {
	select {
	case err := <-p.done:
		p.done <- err
		return err
	case <-time.After(patience):
		return fmt.Errorf("still running after %v", patience)
	}
}

// A server is the real binary.
type server struct {
	*process
	addr string // host:port
}

func serve(t *testing.T, args ...string) server {
	t.Helper()
	p := start(t, nil, binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	return server{p, p.want(`url=http://([0-9.:]+)`)[1]}
}

// stop sends the server the signal to shut down.
func (s server) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
}

// build compiles a package as the program of that name, in folder. Programs stay in the user's
// cache, where go build finds those that are still right and does not link them again.
func build(name, folder, pkg string, env ...string) (program string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	io.WriteString(h, here)
	program = filepath.Join(cache, "myriad-clients", fmt.Sprintf("%08x", h.Sum32()), name)
	cmd := exec.Command("go", "build", "-o", program, pkg)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return program, nil
}

// example builds and starts a program of the folder examples.
func example(t *testing.T, name string, args ...string) *process {
	t.Helper()
	program, err := build(name, "../../examples", "./"+name)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, nil, program, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
}

// missing skips the test, or fails it where clients are required.
func missing(t *testing.T, client, install string) {
	t.Helper()
	message := fmt.Sprintf("%s is not installed: %s", client, install)
	if os.Getenv("MYRIAD_REQUIRE_CLIENTS") == "1" {
		t.Fatal(message)
	}
	t.Skip(message)
}
