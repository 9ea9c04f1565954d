package mercure_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/doors/mercure"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// These are the cases of the conformance tests of Mercure 0.x (conformance-tests/mercure.spec.ts in
// dunglas/mercure), with the token that they send, and of that hub's own tests of its handlers.

// conformanceToken allows everything, and is signed with the secret of those tests.
const (
	conformanceSecret = "!ChangeThisMercureHubJWTSecretKey!"
	conformanceToken  = "eyJhbGciOiJIUzI1NiJ9.eyJtZXJjdXJlIjp7InB1Ymxpc2giOlsiKiJdLCJzdWJzY3JpYmUiOlsiKiJdfX0." +
		"bVXdlWXwfw9ySx7-iV5OpUSHo34RkjUdVzDLBcc6l_g"
)

func conformanceHub(t *testing.T) mercureTest {
	return mercureTest{servertest.New(t, push.Config{TokenSecret: conformanceSecret,
		Doors: servertest.Doors(mercure.Config{Anonymous: true, Subscriptions: true})})}
}

func TestMercureConformance(t *testing.T) {
	const foo = "https://example.net/foo/"
	for _, tt := range []struct {
		name              string
		topics, selectors []string
		private, received bool
	}{
		{"raw string", []string{"a1"}, []string{"a1"}, false, true},
		{"multiple topics", []string{"x", "a2"}, []string{"a2"}, false, true},
		{"multiple topic selectors", []string{"a3"}, []string{"foo", "a3"}, false, true},
		{"URI", []string{foo + "a4"}, []string{foo + "a4"}, false, true},
		{"URI template", []string{foo + "a5"}, []string{foo + "{random}"}, false, true},
		{"nonmatching raw string", []string{"will-not-match}"}, []string{"another-name"}, false, false},
		{"nonmatching URI", []string{foo + "will-not-match}"}, []string{foo + "another-name"}, false, false},
		{"nonmatching URI template", []string{foo + "will-not-match}"}, []string{"https://example.net/bar/{var}"},
			false,
			false},
		{"private raw string", []string{"a1"}, []string{"a1"}, true, false},
		{"private URI", []string{foo + "a4"}, []string{foo + "a4"}, true, false},
		{"private URI template", []string{foo + "a5"}, []string{foo + "{random}"}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := conformanceHub(t)
			stream, header := m.subscribe(url.Values{"topic": tt.selectors}.Encode())
			if got := header.Get("Content-Type"); got != "text/event-stream" {
				t.Errorf("the stream is %s", got)
			}
			id := `id-["` + strings.Join(tt.topics, `","`) + `"]`
			form := url.Values{"topic": tt.topics, "id": {id}, "data": {"data for\n\n        " + tt.name}}
			if tt.private {
				form.Set("private", "on")
			}
			if got := m.publish(form.Encode(), "Authorization", "Bearer "+conformanceToken); got != id {
				t.Errorf("published as %q, want %q", got, id)
			}
			want := ""
			if tt.received {
				want = "id: " + id + "\ndata: data for\ndata: \ndata:         " + tt.name + "\n\n"
			}
			if got := stream.Take(); got != want {
				t.Errorf("received %q, want %q", got, want)
			}
		})
	}
}

// What a hub must refuse to publish, whatever the token allows.
func TestMercureRefusesUpdates(t *testing.T) {
	m := conformanceHub(t)
	watcher, _ := m.subscribe("topic="+url.QueryEscape(subscriptionsPath+"/{topic}/{subscriber}"), "Authorization",
		"Bearer "+conformanceToken)
	pushtest.WaitFor(t, "the watcher's own subscription", func() bool {
		return strings.Contains(watcher.Take(), "data: ")
	})
	for _, tt := range []struct {
		topic, field, value string
		status              int
	}{
		// the hub's own topics: a publisher must not forge events of subscriptions
		{subscriptionsPath + "/foo", "data", "1", 403},
		{subscriptionsPath + "/foo/urn:uuid:1", "data", `{"active":false}`, 403},
		{"https://example.com" + subscriptionsPath + "/foo", "data", "1", 403},
		{"foo/.well-known/mercure/bar", "data", "1", 403},
		{"a", "id", "foo\nevent: injected", 400}, {"a", "id", "foo\revent: injected", 400},
		{"a", "id", "foo\x00bar", 400}, {"a", "type", "foo\nid: injected", 400},
		{"a", "type", "foo\rdata: injected", 400}, {"a", "type", "foo\x00bar", 400},
		{"a", "retry", "invalid", 400}, {"a", "retry", "-1", 400}, {"a", "retry", "1\nid: x", 400},
	} {
		form := url.Values{"topic": {tt.topic}, "private": {"on"}, tt.field: {tt.value}}
		if w := m.post(form.Encode(), "Authorization", "Bearer "+conformanceToken); w.Code != tt.status {
			t.Errorf("%s, %s %q: %d %s, want %d", tt.topic, tt.field, tt.value, w.Code, w.Body, tt.status)
		}
	}
	if got := watcher.Take(); got != "" {
		t.Errorf("the watcher received %q", got)
	}
	if w := m.post("", "Authorization", "Bearer "+conformanceToken, "Content-Type", "text/plain"); w.Code != 400 {
		t.Errorf("without a form: %d", w.Code)
	}
	if id := m.publish("topic=a", "Authorization", "Bearer "+conformanceToken); !strings.HasPrefix(id, "urn:uuid:") {
		t.Errorf("without data: %q", id)
	}
}

// A private update that the subscriber may not have is not named in Last-Event-ID either.
func TestMercureHidesPrivateIDs(t *testing.T) {
	m := conformanceHub(t)
	bearer := []string{"Authorization", "Bearer " + conformanceToken}
	m.publish("topic=foos/a&id=a&data=1", bearer...)
	m.publish("topic=foos/b&id=b&data=secret&private=on", bearer...)
	for _, asked := range []string{"lastEventID=unknown", "Last-Event-ID=unknown", "lastEventID=earliest"} {
		stream, header := m.subscribe("topic=foos/%7Bid%7D&" + asked)
		if got := header.Get("Last-Event-ID"); got == "b" || got == "" {
			t.Errorf("%s: begins after %q", asked, got)
		}
		if got := stream.Take(); strings.Contains(got, "secret") || strings.Contains(got, "id: b") {
			t.Errorf("%s: received %q", asked, got)
		}
	}
	stream, _ := m.subscribe("topic=foos/%7Bid%7D&lastEventID=a", bearer...)
	if got := stream.Take(); got != "id: b\ndata: secret\n\n" {
		t.Errorf("with the right to it: %q", got)
	}
}

// Tokens with a lower-case scheme, and what is no token.
func TestMercureTokens(t *testing.T) {
	m := conformanceHub(t)
	for header, status := range map[string]int{"Bearer " + conformanceToken: 200, "bearer " + conformanceToken: 200,
		"Bearer x": 401, "Bearer " + conformanceToken + "x": 401, "Bearer eyJhbGciOiJub25lIn0.e30.": 401} {
		if w := m.post("topic=a", "Authorization", header); w.Code != status {
			t.Errorf("%.20s…: %d %s, want %d", header, w.Code, w.Body, status)
		}
		w := m.Do("HEAD", mercurePath+"?topic=a", "", "Authorization", header)
		if w.Code != status {
			t.Errorf("subscribing with %.20s…: %d, want %d", header, w.Code, status)
		}
	}
	if w := m.Do("GET", subscriptionsPath, "", "Cookie", mercureCookie+"="+conformanceToken); w.Code != 200 {
		t.Errorf("the list of subscriptions by cookie: %d %s", w.Code, w.Body)
	}
	if w := m.Do("GET", subscriptionsPath, ""); w.Code != 401 {
		t.Errorf("the list of subscriptions without a token: %d", w.Code)
	}
}
