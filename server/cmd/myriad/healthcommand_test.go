package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func health(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"myriad", "health"}, args...), &out, io.Discard)
	return out.String(), err
}

// The server on this machine is found by what its --listen says, a unix socket and TLS included.
func TestHealthOfThisMachine(t *testing.T) {
	url, _, stop := start(t)
	address := strings.TrimPrefix(url, "http://")
	_, port, _ := strings.Cut(address, ":")
	socket := "unix:" + filepath.Join(t.TempDir(), "public.sock")
	beginUntil(t, `url=unix:`, func(ctx context.Context, log io.Writer) error {
		return run(ctx, []string{"myriad", "serve", "--listen", socket}, io.Discard, log)
	})
	for _, args := range [][]string{{url}, {url + "/"}, {"--listen", address}, {"--listen", ":" + port},
		{"--listen", "0.0.0.0:" + port}, {"--listen", socket}} {
		if out, err := health(t, args...); err != nil || !strings.HasPrefix(out, "{") {
			t.Errorf("health %q: %q, %v", args, out, err)
		}
	}
	t.Setenv("MYRIAD_LISTEN", address)
	if out, err := health(t); err != nil || !strings.HasPrefix(out, "{") {
		t.Errorf("health by the environment: %q, %v", out, err)
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path)
	}))
	defer secure.Close()
	if out, err := health(t, "--tls-cert", "any", "--listen", secure.Listener.Addr().String()); err != nil ||
		out != "/health\n" {
		t.Errorf("health by TLS: %q, %v", out, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := health(t); err == nil || !strings.Contains(err.Error(), "refused") ||
		!strings.Contains(err.Error(), "--listen ") {
		t.Errorf("health of no server: %v", err)
	}
}

func TestHealthSaysWhatIsWrong(t *testing.T) {
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late/health" {
			<-r.Context().Done()
			return
		}
		http.Error(w, "the server will shut down", http.StatusServiceUnavailable)
	}))
	defer answers.Close()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{answers.URL}, "503 Service Unavailable: the server will shut down"},
		{[]string{"--timeout", "20ms", answers.URL + "/late"}, "in time"},
		{[]string{"--timeout", "soon"}, "with its unit"},
		{[]string{"a", "b"}, "one URL"},
		{[]string{"%"}, "is no URL"},
		{[]string{"--listen", "fd:public"}, "give the URL"},
		{[]string{"--listen", "here"}, "write HOST:PORT"},
	} {
		if out, err := health(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) || out != "" {
			t.Errorf("health %q: %q, %v, want an error with %q", tt.args, out, err, tt.want)
		}
	}
}
