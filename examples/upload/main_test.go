package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// send uploads and returns the response with its body read.
func send(c *http.Client, url string, body io.Reader) (*http.Response, string, error) {
	res, err := c.Post(url+"/files", "application/octet-stream", body)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, string(text), err
}

func get(t *testing.T, c *http.Client, url string) (status int, body []byte) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

// outcome asks until the file has been looked into.
func outcome(t *testing.T, c *http.Client, url string) (r report) {
	t.Helper()
	for r.State = stateWaiting; r.State == stateWaiting; {
		status, body := get(t, c, url)
		if err := json.Unmarshal(body, &r); status != 200 || err != nil {
			t.Fatalf("%s: %d %q, %v", url, status, body, err)
		}
	}
	return r
}

func content(seed uint64, size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(p)
	return p
}

func sum(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

// serve runs u over real HTTP. The function that it returns ends all of it in order; the test's end
// does so too.
func serve(t *testing.T, u *upload, pool *workers.Pool) (url string, stop func()) {
	t.Helper()
	s := &web.Server{Handler: u.routes()}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx := context.Background()
		if err := errors.Join(s.Shutdown(ctx), u.work.Close(ctx), pool.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return "http://" + ln.Addr().String(), stop
}

func newTest(t *testing.T, limit int) (*upload, *workers.Pool) {
	t.Helper()
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pool := workers.New(workers.Config{})
	return newUpload(pool, s, limit, 8<<20), pool
}

func TestFilesAreKeptAndLookedInto(t *testing.T) {
	u, pool := newTest(t, 100)
	url, stop := serve(t, u, pool)
	c := exampletest.Client(t)
	var senders sync.WaitGroup
	for i, size := range []int{0, 1, 1000, 100_000, 8 << 20} {
		senders.Go(func() {
			want := content(uint64(i), size)
			var body io.Reader = bytes.NewReader(want)
			if i%2 == 1 {
				body = io.MultiReader(body) // of unknown length: chunked
			}
			res, text, err := send(c, url, body)
			if err != nil || res.StatusCode != http.StatusAccepted {
				t.Errorf("%d bytes: %v, %v %q", size, err, res, text)
				return
			}
			at := url + res.Header.Get("Location")
			if r := outcome(t, c, at); r != (report{State: stateDone, Size: int64(size), SHA256: sum(want)}) {
				t.Errorf("%d bytes: %+v", size, r)
			}
			if status, got := get(t, c, at+"/content"); status != 200 || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back as %d bytes with status %d", size, len(got), status)
			}
		})
	}
	senders.Wait()
	c.CloseIdleConnections()
	stop()
	if s := u.work.Stats(); s.Done != 5 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatIsNotAFile(t *testing.T) {
	u, pool := newTest(t, 100)
	url, _ := serve(t, u, pool)
	c := exampletest.Client(t)
	if err := os.WriteFile(filepath.Join(u.store.dir, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"secret", "..%2Fsecret", "AAAAAAAAAAAAAAAAAAAAAAAAAA",
		"AAAAAAAAAAAAAAAAAAAAAAAAAA.json", "a"} {
		for _, end := range []string{"", "/content"} {
			if status, _ := get(t, c, url+"/files/"+id+end); status != 404 {
				t.Errorf("%s%s: %d", id, end, status)
			}
		}
	}
	res, text, err := send(c, url, io.MultiReader(bytes.NewReader(make([]byte, 8<<20+1))))
	if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a file that is too large: %v, %v %q", err, res, text)
	}
	if left, err := os.ReadDir(u.store.dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left in the folder, %v", left, err)
	}
}

// A pool that stands still: so many files are held, further ones are refused, with nothing left on
// the disk.
func TestFullQueueAnswers503(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pool, gate := workers.New(workers.Config{Workers: 1}), make(chan struct{})
	pool.TryGo(func() { <-gate })
	u := newUpload(pool, s, 2, 1<<20)
	url, _ := serve(t, u, pool)
	c := exampletest.Client(t)
	var accepted []string
	for i, want := range []int{202, 202, 503, 503} {
		res, text, err := send(c, url, strings.NewReader("file"))
		wait, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 without it
		if err != nil || res.StatusCode != want || wait > mostRetry || (want == 503) != (wait >= leastRetry) {
			t.Fatalf("file %d: %v, %v %q", i, err, res, text)
		}
		if want == 202 {
			accepted = append(accepted, url+res.Header.Get("Location"))
		}
	}
	if status, body := get(t, c, accepted[1]); status != 200 || string(body) != "{\"state\":\"waiting\"}\n" {
		t.Errorf("a file that waits: %d %q", status, body)
	}
	if files, err := os.ReadDir(s.dir); err != nil || len(files) != 2 {
		t.Errorf("%v in the folder, %v", files, err)
	}
	close(gate)
	for _, at := range accepted {
		if r := outcome(t, c, at); r.State != stateDone || r.Size != 4 {
			t.Errorf("%+v", r)
		}
	}
}

// A file that can no longer be read is given up, and its status says so.
func TestFailureIsReported(t *testing.T) {
	u, pool := newTest(t, 10)
	url, _ := serve(t, u, pool)
	id := strings.Repeat("A", 26)
	if err := os.Mkdir(u.store.path(id), 0o755); err != nil { // opens, but cannot be read
		t.Fatal(err)
	}
	if !u.work.TryPut(id) {
		t.Fatal("refused")
	}
	if r := outcome(t, exampletest.Client(t), url+"/files/"+id); r.State != stateFailed ||
		!strings.Contains(r.Error, "directory") {
		t.Errorf("%+v", r)
	}
	if s := u.work.Stats(); s.Tries != retries+1 {
		t.Errorf("%+v", s)
	}
}

// SIGTERM ends it with everything accepted looked into; after a crash, what is in the folder is
// looked into by the next one.
func TestSIGTERMAndRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uploads")
	cmd, url := exampletest.Program(t, "--dir", dir)
	c := exampletest.Client(t)
	var ids []string
	for range 50 {
		res, text, err := send(c, url, strings.NewReader("some file"))
		if err != nil || res.StatusCode != http.StatusAccepted {
			t.Fatalf("%v, %v %q", err, res, text)
		}
		ids = append(ids, filepath.Base(res.Header.Get("Location")))
	}
	c.CloseIdleConnections()
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	done := report{State: stateDone, Size: 9, SHA256: sum([]byte("some file"))}
	for _, id := range ids {
		if r, err := (store{dir}).report(id); err != nil || r != done {
			t.Errorf("after SIGTERM: %+v, %v", r, err)
		}
	}

	// What a crash leaves: a file without its report, and half a file.
	half := strings.Repeat("B", 26) + partEnd
	if err := errors.Join(os.Remove(filepath.Join(dir, ids[0]+reportEnd)),
		os.WriteFile(filepath.Join(dir, half), []byte("ha"), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd, url = exampletest.Program(t, "--dir", dir)
	if r := outcome(t, c, url+"/files/"+ids[0]); r != done {
		t.Errorf("after a restart: %+v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, half)); err == nil {
		t.Error("half a file is kept")
	}
	c.CloseIdleConnections()
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
