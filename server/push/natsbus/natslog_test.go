package natsbus

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
)

// A mistake is explained once a minute for each host, and for as many hosts as are remembered.
func TestMistakesAreExplainedOnce(t *testing.T) {
	var out bytes.Buffer
	l := &natsLog{log: slog.New(slog.NewTextHandler(&out, nil))}
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		text            string
		after           time.Duration
		known, reported bool
	}{
		{`10.0.0.3:58412 - rid:21 - authentication error - User "node"`, 0, true, true},
		{`10.0.0.3:58428 - rid:22 - authentication error - User "node"`, time.Second, true, false},
		{`10.0.0.2:6222 - rid:23 - Route Error 'Authorization Violation'`, 0, true, true},
		{`10.0.0.4:58428 - rid:24 - authentication error - User "node"`, 0, true, true},
		{`10.0.0.3:58444 - rid:25 - authentication error - User "node"`, explainAgain, true, true},
		{`10.0.0.3:6222 - rid:26 - TLS route handshake error: remote error: tls: bad certificate`, 0, true, true},
		{`10.0.0.3:6222 - rid:27 - Error flushing: broken pipe`, 0, true, false},
		{`10.0.0.9:6222 - rid:28 - Error flushing: broken pipe`, 0, false, false},
	} {
		out.Reset()
		now = now.Add(c.after)
		known := l.explain(c.text, now)
		if reported := out.Len() > 0; known != c.known || reported != c.reported {
			t.Errorf("case %d: %s: known %v, reported %v: %s", i, c.text, known, reported, &out)
		}
	}
	for i := range 2 * maxExplained {
		l.first(mistakeOf{host: string(rune('a' + i))}, now)
	}
	if len(l.heard) > maxExplained {
		t.Errorf("%d hosts are remembered, want %d at most", len(l.heard), maxExplained)
	}
}

// awaited is a log that waits for texts.
type awaited struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	seen chan struct{}
}

func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text.Write(p)
	if a.want != "" && strings.Contains(a.text.String(), a.want) {
		a.want = ""
		close(a.seen)
	}
	return len(p), nil
}

func (a *awaited) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

// A node with another secret is refused. The logs of both nodes say why, and what to do.
func TestWrongSecretIsExplained(t *testing.T) {
	first := freeport.For(t, 1)[0]
	logs := map[string]*awaited{"right": {want: "this node has refused another one", seen: make(chan struct{})},
		"wrong": {want: "another node has refused this one", seen: make(chan struct{})}}
	for _, name := range []string{"right", "wrong"} {
		listen := map[string]string{"right": first, "wrong": "127.0.0.1:-1"}[name]
		s, err := StartServer(ServerConfig{Name: name, Dir: t.TempDir(), Listen: listen, Routes: []string{first},
			Secret: "the " + name + " secret", Logger: slog.New(slog.NewTextHandler(logs[name], nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown()
	}
	for name, log := range logs {
		select {
		case <-log.seen:
		case <-patient(t).Done():
			t.Fatalf("the log of the %s one says %s", name, log)
		}
		if text := log.String(); !strings.Contains(text, "--cluster-secret") || strings.Contains(text, "the "+name) {
			t.Errorf("the log of the %s one says %s", name, text)
		}
	}
}

// patient ends a little before the test's own deadline.
func patient(t *testing.T) context.Context {
	end, has := t.Deadline()
	if !has {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), end.Add(-10*time.Second))
	t.Cleanup(cancel)
	return ctx
}
