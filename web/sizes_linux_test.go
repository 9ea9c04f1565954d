package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/http1"
)

// These tests run the server in a process of its own, so that what it takes can be read off its
// largest resident size. MYRIAD_WEB_BYTES says how large the bodies are; at 10 GiB it must still
// take less than maxResident.

const (
	sizesChild   = "MYRIAD_WEB_SIZES_CHILD"
	sizesBytes   = "MYRIAD_WEB_BYTES"
	defaultBytes = 192 << 20 // three times what may be resident
	maxResident  = 64 << 20
)

// A conn must fit the allocator's size class of 80 bytes. That of 96 is also the class of much that
// a TLS handshake throws away: conns among it keep pages that are nearly empty, 300 bytes for each.
func TestConnIsSmall(t *testing.T) {
	if size := reflect.TypeFor[http1.Conn]().Size(); size > 80 {
		t.Errorf("a conn has %d bytes, at most 80 are allowed", size)
	}
}

// TestSizesChild is the server of the tests below, when they start this binary again.
func TestSizesChild(t *testing.T) {
	file := os.Getenv(sizesChild)
	if file == "" {
		t.Skip("runs only as a child")
	}
	f := serve(t, &Server{Handler: sizesHandler(file)})
	fmt.Println("listening", f.addr)
	io.Copy(io.Discard, os.Stdin) // until the parent ends
}

// slowly pauses now and then, for long enough that the other side has filled whatever there is to
// fill.
type slowly struct {
	io.Reader
	read int
}

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.read += n; s.read > 16<<20 {
		s.read = 0
		time.Sleep(5 * time.Millisecond)
	}
	return n, err
}

func sizesHandler(file string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /up", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, &slowly{Reader: r.Body}, make([]byte, 1<<20))
		fmt.Fprint(w, n, " ", err)
	})
	mux.HandleFunc("GET /down/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.PathValue("n"), 10, 64)
		io.Copy(w, struct{ io.Reader }{io.LimitReader(zeros{}, n)})
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("GET /resident", func(w http.ResponseWriter, r *http.Request) {
		status, _ := os.ReadFile("/proc/self/status")
		_, after, _ := strings.Cut(string(status), "VmHWM:")
		kib, _, _ := strings.Cut(strings.TrimSpace(after), " ")
		n, _ := strconv.Atoi(kib)
		fmt.Fprint(w, n<<10)
	})
	return mux
}

// startSizes returns the address of a child.
func startSizes(t *testing.T, file string) string {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestSizesChild$", "-test.v")
	child.Env = append(os.Environ(), sizesChild+"="+file)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			go io.Copy(io.Discard, out)
			return addr
		}
	}
	t.Fatal("the child said nothing")
	return ""
}

func TestLargeBodiesTakeLittle(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector multiplies what is resident")
	}
	size := int64(defaultBytes)
	if s := os.Getenv(sizesBytes); s != "" {
		var err error
		if size, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", sizesBytes, err)
		}
	}
	file := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	addr := startSizes(t, file)
	began := time.Now()
	report := func(what string) {
		r, err := client(t).Get("http://" + addr + "/resident")
		resident, _ := strconv.Atoi(mustBody(t, r, err))
		t.Logf("%s: %d MiB in %v, largest resident size %.1f MiB", what, size>>20,
			time.Since(began).Round(time.Millisecond), float64(resident)/(1<<20))
		if resident == 0 || resident > maxResident {
			t.Errorf("%s: %d bytes resident, limit %d", what, resident, maxResident)
		}
		began = time.Now()
	}
	for _, declared := range []bool{true, false} {
		if got := upload(t, addr, size, declared); got != fmt.Sprint(size, " <nil>") {
			t.Errorf("upload: %s", got)
		}
		report("upload to a slow handler")
	}
	for path, what := range map[string]string{fmt.Sprint("/down/", size): "download to a slow client",
		"/file": "file to a slow client"} {
		if got := download(t, addr, path); got != size {
			t.Errorf("%s: %d bytes", what, got)
		}
		report(what)
	}
}

func upload(t *testing.T, addr string, size int64, declared bool) string {
	t.Helper()
	req, _ := http.NewRequest("POST", "http://"+addr+"/up", io.LimitReader(zeros{}, size))
	if declared {
		req.ContentLength = size
	}
	tr := &http.Transport{WriteBufferSize: 256 << 10}
	defer tr.CloseIdleConnections()
	r, err := tr.RoundTrip(req)
	return mustBody(t, r, err)
}

func download(t *testing.T, addr, path string) int64 {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	r, err := http.ReadResponse(bufio.NewReaderSize(&slowly{Reader: nc}, 1<<20), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 1<<20))
	if err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	}
	return n
}
