package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/load"
	"github.com/myriad-go/myriad/websocket"
)

// loaded runs myriad load with arguments, and returns what it prints.
func loaded(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"myriad", "load"}, args...), &out, &syncBuffer{})
	return out.String(), err
}

// measured runs myriad load on five connections, and writes its report to a file. The run is made
// again, for twice as long, until it has measured two replies: a busy machine may need that.
func measured(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	for length := 200 * time.Millisecond; ; length *= 2 {
		out, err := loaded(t, append(args, "--json", file, "--warmup", "0s", "--duration", length.String(),
			"--connections", "5")...)
		text, failed := os.ReadFile(file)
		var r load.Report
		if failed = cmp.Or(failed, json.Unmarshal(text, &r)); failed != nil {
			t.Fatalf("the report: %v; the run: %v", failed, err)
		}
		if r.Total.Latency.Count() >= 2 {
			return out, err
		}
		if length > 10*time.Second {
			t.Fatalf("fewer than two replies in %v; error %v, output:\n%s", length, err, out)
		}
	}
}

func TestLoad(t *testing.T) {
	url, _, stop := start(t)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	first, again, page := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json"), filepath.Join(dir, "a.html")
	out, err := measured(t, first, "http", url+"/health", "--html", page)
	if err != nil || !strings.Contains(out, "5 connections") || !strings.Contains(out, "no errors") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	out, err = measured(t, again, "http", url+"/health", "--compare", first, "--fail-if", "p99>1ns")
	if err == nil || !strings.Contains(err.Error(), "p99>1ns: it was ") || !strings.Contains(out, "now/before") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	p, err := os.ReadFile(page)
	for _, want := range []string{"5 connections", "<svg", "</html>"} {
		if err != nil || !bytes.Contains(p, []byte(want)) {
			t.Errorf("%q is not in the page: %v, %s", want, err, p)
		}
	}
	out, err = measured(t, again, "push", url, "--rate", "50")
	if err != nil || !strings.Contains(out, "0 missing, 0 twice, 0 out of order") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// The commands of the guide for servers of WebSockets.
func TestLoadWebSockets(t *testing.T) {
	var all websocket.Group
	o := &websocket.Options{OnOpen: func(c *websocket.Conn) { _, _ = all.Join(c) }}
	o.OnMessage = func(_ *websocket.Conn, op websocket.Op, p []byte) { _ = all.Send(op, append([]byte("ann: "), p...)) }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = websocket.Accept(w, r, o)
	}))
	defer s.Close()
	file, page := filepath.Join(t.TempDir(), "a.json"), filepath.Join(t.TempDir(), "a.html")
	out, err := measured(t, file, "ws", s.URL, "--html", page)
	if p, failed := os.ReadFile(page); failed != nil || !strings.Contains(string(p), "this server is no echo") {
		t.Errorf("the page: %v\n%s", failed, p)
	}
	if err == nil || !strings.Contains(err.Error(), "the server is no echo") ||
		!strings.Contains(out, "this server is no echo") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	message := filepath.Join(t.TempDir(), "message.json")
	if err := os.WriteFile(message, []byte(`{"say": "{id}"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for length := 200 * time.Millisecond; ; length *= 2 {
		out, err = loaded(t, "ws", s.URL, "--html", page, "--rooms", "1", "--join", "hello", "--message", "@"+message,
			"--rate", "50", "--warmup", "0s", "--duration", length.String(), "--connections", "5")
		if err != nil || strings.Contains(out, "last subscriber") || length > 10*time.Second {
			break
		}
	}
	if err != nil || !strings.Contains(out, "0 missing, 0 twice, 0 out of order") ||
		!strings.Contains(out, "last subscriber") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestLoadRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--yes-i-own-this":     {"http", "http://192.0.2.1/"},
		"no kind of load":      {"udp"},
		"has no {id}":          {"ws", "ws://127.0.0.1:1/", "--rooms", "2", "--message", "hello"},
		"without rooms":        {"ws", "ws://127.0.0.1:1/", "--join", "hello"},
		"takes one argument":   {"http"},
		"write http://":        {"http", "127.0.0.1:1"},
		"p99>50ms":             {"http", "http://127.0.0.1:1/", "--fail-if", "slow"},
		"there is no figure":   {"http", "http://127.0.0.1:1/", "--fail-if", "last-p99>1s"},
		"no such file":         {"http", "http://127.0.0.1:1/", "--compare", "/nowhere/a.json"},
		"16 at least":          {"--join", "127.0.0.1:1", "--secret", "short"},
		"did you mean --rate?": {"http", "http://127.0.0.1:1/", "--rat", "5"},
	} {
		if _, err := loaded(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
