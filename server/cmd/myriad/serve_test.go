package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs the command until stop. stop returns the command's error.
func start(t *testing.T, args ...string) (url string, log *syncBuffer, stop func() error) {
	t.Helper()
	return begin(t, func(ctx context.Context, log io.Writer) error {
		return run(ctx, append([]string{"myriad", "serve", "--listen", "127.0.0.1:0"}, args...), log, log)
	})
}

// startWith is start with settings that have no flag. It fills in those that tests do not set.
func startWith(t *testing.T, s settings) (url string, log *syncBuffer, stop func() error) {
	t.Helper()
	return begin(t, func(ctx context.Context, log io.Writer) error {
		s.listen, s.log = "127.0.0.1:0", slog.New(slog.NewTextHandler(log, nil))
		s.push.Limits.Queue, s.push.Timing.Ping = 1<<20, 25*time.Second
		return serve(ctx, s)
	})
}

// begin runs serve until stop. It returns when the log has the URL.
func begin(t *testing.T, serve func(ctx context.Context, log io.Writer) error) (url string, log *syncBuffer,
	stop func() error) {
	t.Helper()
	found, log, stop := beginUntil(t, `url=(http://[0-9.:]+)`, serve)
	return found[1], log, stop
}

// beginUntil runs serve until stop. It returns when the log matches the pattern.
func beginUntil(t *testing.T, pattern string, serve func(ctx context.Context, log io.Writer) error) (found []string,
	log *syncBuffer, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log = new(syncBuffer)
	done := make(chan error, 1)
	go func() { done <- serve(ctx, log) }()
	stop = func() error {
		cancel()
		select {
		case err := <-done:
			done <- err
			return err
		case <-time.After(30 * time.Second):
			t.Fatalf("serve does not end; log:\n%s", log)
			return nil
		}
	}
	t.Cleanup(func() { stop() })
	line := regexp.MustCompile(pattern)
	for range 3000 {
		if found := line.FindStringSubmatch(log.String()); found != nil {
			return found, log, stop
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the log has nothing like %q:\n%s", pattern, log)
	return nil, nil, nil
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestServeInDevelopmentMode(t *testing.T) {
	url, log, stop := start(t)
	if status, body := get(t, url+"/health"); status != 200 || !strings.HasPrefix(body, `{"late_us":`) {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := get(t, url+"/"); status != 200 || !strings.Contains(body, "<title>Myriad console</title>") {
		t.Errorf("console: %d %s", status, body)
	}
	r, err := http.Post(url+"/api/publish", "application/json", strings.NewReader(`{"channel":"news","data":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 200 {
		t.Errorf("publish without a key: %s", r.Status)
	}
	if !strings.Contains(log.String(), "development mode") {
		t.Errorf("the log does not say that it is in development mode:\n%s", log)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

func TestServeSecured(t *testing.T) {
	t.Setenv("MYRIAD_API_KEY", "key")
	url, log, stop := start(t, "--token-secret", "secret")
	for path, want := range map[string]int{"/events?channel=news": 401, "/api/publish": 405, "/health": 200} {
		if status, body := get(t, url+path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if strings.Contains(log.String(), "development mode") {
		t.Errorf("development mode with key and secret:\n%s", log)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

func TestServeOnATakenAddress(t *testing.T) {
	url, _, _ := start(t)
	address := strings.TrimPrefix(url, "http://")
	err := run(context.Background(), []string{"myriad", "serve", "--listen", address}, io.Discard, io.Discard)
	if want := "--listen " + address +
		": bind: address already in use: another process has the port: stop it, or listen on another " +
		"port"; err == nil ||
		err.Error() != want {
		t.Errorf("serve: %v", err)
	}
}

// SIGHUP does not end a server without a certificate.
func TestServeOutlivesSIGHUP(t *testing.T) {
	url, log, stop := start(t)
	for n := 1; n <= 2; n++ {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			if strings.Count(log.String(), "SIGHUP: read the configuration again") == n {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := strings.Count(log.String(), "SIGHUP: read the configuration again"); got != n {
			t.Errorf("the log has %d lines about SIGHUP after %d signals:\n%s", got, n, log)
		}
	}
	if status, body := get(t, url+"/health"); status != 200 {
		t.Errorf("health: %d %s", status, body)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}
