// Package exampletest is the common part of the examples' tests: it serves their handlers, runs
// them as programs, and sends them requests.
package exampletest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web"
)

// Patience is how long anything may take that should take milliseconds.
const Patience = time.Minute

// AsProgram is the variable of the environment with which a test's binary is the program. Programs
// that start themselves want it set.
const AsProgram = "EXAMPLE_AS_PROGRAM"

// Main is what TestMain does: it runs the tests, or the program if Program has started this
// process.
func Main(m *testing.M, program func()) {
	if os.Getenv(AsProgram) != "" {
		program()
		return
	}
	m.Run()
}

// Program starts the program as its user would, with these flags, and returns its URL. When the
// test ends it is killed if it still runs.
func Program(t *testing.T, flags ...string) (cmd *exec.Cmd, url string) {
	t.Helper()
	cmd = exec.Command(os.Args[0], append([]string{"--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Env = append(os.Environ(), AsProgram+"=1")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // in vain if it has ended
	line, err := bufio.NewReader(log).ReadString('\n')
	_, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("it said %q, %v", line, err)
	}
	return cmd, "http://" + addr
}

// Serve serves h with a web.Server until the test ends, and returns host:port. Clients that the
// test makes afterwards leave before.
func Serve(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	s := &web.Server{Handler: h}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// Client is one whose idle connections do not outlive the test.
func Client(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: Patience}
}

// Body reads an answer's body to its end. r and err are what a method of the client has returned.
func Body(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// Guide checks that all Go of a guide stands in the files of its example.
func Guide(t *testing.T, guide string, files ...string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/" + guide)
	if err != nil {
		t.Fatal(err)
	}
	code := ""
	for _, name := range files {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code += string(part)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 8 {
		t.Errorf("%s has %d blocks of Go", guide, len(blocks))
	}
	for _, b := range blocks {
		for part := range strings.SplitSeq(b[1], "…\n") {
			if !strings.Contains(code, strings.TrimSpace(part)) {
				t.Errorf("%s has Go that stands in no file:\n%s", guide, part)
			}
		}
	}
}
