package push_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// Every request gets the figures. Only an operator gets the names of slow clients and their
// channels.
func TestOnlyOperatorsSeeNamesInMetrics(t *testing.T) {
	for _, tt := range []struct {
		about  string
		config push.Config
		key    string
		names  bool
	}{
		{"nothing is set", push.Config{}, "", true},
		{"an API key", push.Config{APIKey: "key"}, "", false},
		{"an API key", push.Config{APIKey: "key"}, "wrong", false},
		{"an API key", push.Config{APIKey: "key"}, "key", true},
		{"a console key", push.Config{ConsoleKey: "view"}, "", false},
		{"a console key", push.Config{ConsoleKey: "view"}, "view", true},
		{"both keys", push.Config{APIKey: "key", ConsoleKey: "view"}, "key", false},
		{"both keys", push.Config{APIKey: "key", ConsoleKey: "view"}, "view", true},
		{"a token secret only", push.Config{TokenSecret: tokentest.Secret}, "", false},
		{"a token secret only", push.Config{TokenSecret: tokentest.Secret}, tokentest.Secret, false},
		{"no console", push.Config{APIKey: "key", DisableConsole: true}, "", false},
		{"no console", push.Config{APIKey: "key", DisableConsole: true}, "key", true},
	} {
		tt.config.Namespaces = []push.Namespace{dropping}
		ts := servertest.New(t, tt.config)
		slow, missing := slowClients(ts)
		w := ts.Do("GET", "/metrics", "", "X-API-Key", tt.key)
		page, request := w.Body.String(), fmt.Sprintf("%s, key %q", tt.about, tt.key)
		if w.Code != 200 || !strings.Contains(page, "\nmyriad_connections 0\n") ||
			!strings.Contains(page, "\ngo_goroutines ") {
			t.Errorf("%s: %d without the figures: %s", request, w.Code, page)
		}
		for _, name := range []string{slow, "a-user", "a-channel", missing, "another-channel",
			"myriad_slow_client_queued_bytes{"} {
			if strings.Contains(page, name) != tt.names {
				t.Errorf("%s: names %q: %v, want %v", request, name, !tt.names, tt.names)
			}
		}
	}
}

// The guide for operators has a row for each of our figures.
func TestMetricsAreInTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	ts := servertest.New(t, push.Config{})
	names := regexp.MustCompile(`(?m)^# HELP (myriad_\w+) `).FindAllStringSubmatch(ts.Do("GET", "/metrics",
		"").Body.String(), -1)
	if len(names) < 5 {
		t.Fatalf("only %d figures were found", len(names))
	}
	for _, name := range names {
		if !bytes.Contains(guide, []byte("`"+name[1]+"`")) {
			t.Errorf("docs/guides/operate.md has no row for %s", name[1])
		}
	}
}

// promtool's lint has nothing to say of the page, also when every figure has a value.
func TestMetricsPassPromtool(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", Namespaces: []push.Namespace{dropping}})
	slowClients(ts)
	ts.Hub.CountRefusal(hub.RefusedToken, "192.0.2.1:1")
	page := ts.Do("GET", "/metrics", "", "X-API-Key", "key").Body.String()
	for _, name := range []string{"myriad_slow_client_queued_bytes{", "myriad_connections "} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("the page has no %s", name)
		}
	}
	lint(t, page)
}

func lint(t *testing.T, page string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err != nil {
		t.Error(err)
	}
}

// dropping is a namespace whose policy drops publications.
var dropping = push.Namespace{Name: "d", Slow: push.SlowDropOldest, SlowQueue: 1}

// slowClients has a client disconnected as slow, and another one miss a publication of a channel
// of dropping. It returns their ids.
func slowClients(ts *servertest.Server) (slow, missing string) {
	ts.T.Helper()
	f, g := new(servertest.Transport), &servertest.Transport{Peer: pushtest.Peer{Stuck: true, Bytes: 1 << 20}}
	f.Session = ts.Hub.StartConnected(f, servertest.JSONForm, hub.Grant{User: "a-user"}, nil)
	f.Session.TooSlow("a-channel", 4711)
	g.Session = ts.Hub.StartConnected(g, servertest.JSONForm, hub.Grant{}, nil)
	if err := g.Session.Subscribe("d:another-channel", hub.SubscribeCommand{}, func(hub.Welcome) {}); err != nil {
		ts.T.Fatal(err)
	}
	for range 2 {
		if err := ts.Publish(ts.T.Context(), "d:another-channel", []byte("1")); err != nil {
			ts.T.Fatal(err)
		}
	}
	f.Leave()
	g.Leave()
	return f.Session.ID(), g.Session.ID()
}
