package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/workers"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func post(c *http.Client, url, body string) (*http.Response, string, error) {
	res, err := c.Post(url+"/events", "application/json", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, string(text), err
}

// ids reads the file back: the number of times that each event is in it.
func ids(t *testing.T, name string) map[string]int {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var event struct{ ID string }
		if err := json.Unmarshal(s.Bytes(), &event); err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		found[event.ID]++
	}
	return found
}

// Clients post without end while the program is told to end: each event that was answered with 202
// is in the file, once.
func TestNothingAcceptedIsLostOnSIGTERM(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events.jsonl")
	cmd, url := exampletest.Program(t, "--file", name)
	c := exampletest.Client(t)
	var mu sync.Mutex
	var accepted []string
	enough := make(chan struct{})
	var producers sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			for n := 0; ; n++ {
				a, b := fmt.Sprintf("%d-%d-a", p, n), fmt.Sprintf("%d-%d-b", p, n)
				res, text, err := post(c, url, fmt.Sprintf(`{"id":%q}{"id": %q}`, a, b))
				if err != nil {
					return // it has ended
				}
				if res.StatusCode != http.StatusAccepted {
					t.Errorf("%s: %s", res.Status, text)
					return
				}
				mu.Lock()
				accepted = append(accepted, a, b)
				if len(accepted) == 1000 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	producers.Wait()
	found := ids(t, name)
	for _, id := range accepted {
		if found[id] != 1 {
			t.Errorf("event %s was accepted and is in the file %d times", id, found[id])
		}
	}
	// A request whose answer was cut off may have been accepted: at most the last one of each
	// producer.
	if extra := len(found) - len(accepted); extra > 2*8 {
		t.Errorf("%d events in the file, %d accepted", len(found), len(accepted))
	}
}

// A disk that stands still: so many events are held, further ones are refused whole, and none is
// lost when it goes on.
func TestFullQueueAnswers503(t *testing.T) {
	pool := workers.New(workers.Config{})
	gate := make(chan struct{})
	file, err := openLines(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	in := newIngest(pool, func(lines []byte) error { <-gate; return file.append(lines) }, 5)
	url, c := "http://"+exampletest.Serve(t, in.routes()), exampletest.Client(t)
	for i, tt := range []struct {
		body   string
		status int
	}{
		{`{"id":"1"}{"id":"2"}{"id":"3"}`, 202},
		{`{"id":"x"}{"id":"x"}{"id":"x"}`, 503},
		{`{"id":"4"}{"id":"5"}`, 202},
		{`{"id":"x"}`, 503},
	} {
		res, text, err := post(c, url, tt.body)
		wait, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 without it
		if err != nil || res.StatusCode != tt.status || wait > mostRetry ||
			(tt.status == 503) != (wait >= leastRetry) {
			t.Fatalf("request %d: %v, %v %q", i, err, res, text)
		}
	}
	close(gate)
	for { // the client comes again as it was told to, but need not wait a second here
		res, text, err := post(c, url, `{"id":"6"}`)
		if err == nil && res.StatusCode == 202 {
			break
		}
		if err != nil || res.StatusCode != 503 {
			t.Fatalf("with room again: %v, %v %q", res, err, text)
		}
	}
	if err := errors.Join(in.queue.Close(t.Context()), pool.Close(t.Context()), file.close()); err != nil {
		t.Error(err)
	}
	found := ids(t, file.f.Name())
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		if found[id] != 1 || len(found) != 6 {
			t.Fatalf("the file has %v", found)
		}
	}
}

func TestMalformedEvents(t *testing.T) {
	pool := workers.New(workers.Config{})
	var written []byte
	in := newIngest(pool, func(lines []byte) error { written = append(written, lines...); return nil }, 10)
	url, c := "http://"+exampletest.Serve(t, in.routes()), exampletest.Client(t)
	for _, tt := range []struct {
		body   string
		status int
		want   string // in the answer
	}{
		{"", 400, "no event"},
		{`{"a":1} {"b"`, 400, "event 2"},
		{`{"a":1} [2]`, 400, "event 2 is [2]"},
		{`{"a":1} 17`, 400, "event 2 is 17"},
		{`{"a":"` + strings.Repeat("x", maxBody) + `"}`, 413, "too large"},
		{"{\n \"a\": 1\n}\n", 202, ""},
	} {
		res, text, err := post(c, url, tt.body)
		if err != nil || res.StatusCode != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%.40q: %v, %v %q", tt.body, err, res, text)
		}
	}
	res, err := c.Get(url + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	var stats workers.QueueStats
	if err := errors.Join(json.NewDecoder(res.Body).Decode(&stats), res.Body.Close()); err != nil ||
		stats.Held+int(stats.Done) != 1 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if err := errors.Join(in.queue.Close(t.Context()), pool.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if string(written) != "{\"a\":1}\n" {
		t.Errorf("wrote %q", written)
	}
}

// A write that is cut off leaves nothing, and half a line of another life is ended.
func TestLineFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events.jsonl")
	for _, lines := range []string{"one\n", "two\nhalf", "three\n"} {
		l, err := openLines(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.append([]byte(lines)), l.close()); err != nil {
			t.Fatal(err)
		}
		if l.append([]byte("lost\n")) == nil {
			t.Error("a closed file took a line")
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(text)); !slices.Equal(got, []string{"one", "two", "half", "three"}) {
		t.Errorf("the file has %q", text)
	}
	if _, err := openLines(filepath.Join(name, "no", "folder")); err == nil {
		t.Error("a file that cannot be was opened")
	}
}
