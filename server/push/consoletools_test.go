package push_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/golang-jwt/jwt/v5"
)

// The console lists all namespaces with the rules that they have set.
func TestConsoleShowsNamespaces(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{
		{Name: "z", HistorySize: 10, Recovery: true, Presence: true, JoinLeave: true, Slow: push.SlowDropOldest},
		{Name: "a", Personal: true, SubscribeToken: true, Publish: push.PublishNobody, ChannelRegex: "^<b>$"},
	}, APIKey: "key", DenyClientPublish: true})
	var got struct {
		Namespaces        []shownNamespace
		DenyClientPublish bool `json:"deny_client_publish"`
	}
	w := ts.Do("GET", "/console/namespaces", "", "X-API-Key", "key")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err, w.Body)
	}
	want := "[{ [{publish clients} {slow disconnect}]} " +
		"{a [{publish nobody} {subscribe-token } {user-limited } {personal } {channel-regex ^<b>$} " +
		"{slow disconnect}]} {z [{publish clients} {history-size 10} {history-age 5m0s} " +
		"{recovery } {presence } {join-leave } " +
		"{slow drop-oldest} {slow-queue 65536}]}]"
	if text := fmt.Sprint(got.Namespaces); text != want || !got.DenyClientPublish {
		t.Errorf("%s, want %s", text, want)
	}
}

// The console explains a token with the server's own keys and rules, and says why it is refused.
func TestConsoleExplainsTokens(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, APIKey: "key", TokenIssuer: "me",
		Namespaces: []push.Namespace{{Name: "p", SubscribeToken: true, Publish: push.PublishNobody}}})
	ask := func(body string) (e explainedToken, status int) {
		t.Helper()
		w := ts.Do("POST", "/console/token", body, "X-API-Key", "key")
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil && w.Code == 200 {
			t.Fatal(err, w.Body)
		}
		return e, w.Code
	}
	claims := jwt.MapClaims{"sub": "<img>", "iss": "me", "exp": ts.Clock.Now().Add(time.Hour).Unix(),
		"channels": []string{"p:1"}}
	good := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), claims)
	e, _ := ask(`{"token":"` + good + `","channels":["p:1","p:2","news"]}`)
	if e.Error != "" || e.User != "<img>" || e.Ends == nil || len(e.Claims) != 4 || len(e.Channels) != 3 ||
		!strings.HasPrefix(e.Channels[0].Subscribe, "yes: the server subscribes") ||
		!strings.HasPrefix(e.Channels[1].Subscribe, "no: the rule subscribe-token") ||
		e.Channels[2].Publish != "yes: every client may" {
		t.Errorf("%+v", e)
	}
	forged := tokentest.Sign(t, jwt.SigningMethodHS256, []byte("another secret of thirty-two bytes"), claims)
	if e, _ := ask(`{"token":"` + forged + `"}`); !strings.Contains(e.Error, "signature is invalid") ||
		e.Ends != nil ||
		len(e.Claims) != 4 {
		t.Errorf("forged: %+v", e)
	}
	if e, _ := ask(`{"token":"x"}`); !strings.Contains(e.Error, "no JSON Web Token") {
		t.Errorf("no token: %+v", e)
	}
	names := `["a"` + strings.Repeat(`,"a"`, explainedChannels) + `]`
	for body, want := range map[string]int{`{`: 400, `{"channels":` + names + `}`: 400,
		`{"token":"` + strings.Repeat("x", tokenBytes) + `"}`: 413} {
		if _, status := ask(body); status != want {
			t.Errorf("%.20s: %d, want %d", body, status, want)
		}
	}
	if w := ts.Do("POST", "/console/token", `{"token":"`+good+`"}`); w.Code != 401 {
		t.Errorf("without the key: %d", w.Code)
	}
	open := servertest.New(t, push.Config{})
	if w := open.Do("POST", "/console/token", `{"token":"`+good+`"}`); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "no secret and no key") {
		t.Errorf("in a server without tokens: %d %s", w.Code, w.Body)
	}
}

// The console shows refusals with their reasons, the newest first, each once.
func TestConsoleShowsRefusals(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret,
		Namespaces: []push.Namespace{{SubscribeToken: true}},
		APIKey:     "key"})
	type shown struct {
		Counts   map[string]uint64
		Refusals []push.ShownRefusal
		Last     uint64
	}
	show := func(after uint64) (s shown) {
		t.Helper()
		w := ts.Do("GET", fmt.Sprintf("/console/refusals?after=%d", after), "", "X-API-Key", "key")
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
			t.Fatal(err, w.Body)
		}
		return s
	}
	if s := show(0); len(s.Refusals) != 0 || s.Refusals == nil || s.Last != 0 {
		t.Errorf("at first: %+v", s)
	}
	c := ts.Client(jwt.MapClaims{"sub": "ann"})
	c.Frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	c.Frame([]byte(`{"id":3,"subscribe":{"channel":"other","token":"x"}}`))
	s := show(0)
	if len(s.Refusals) != 2 || s.Last != 2 || s.Counts["permission"] != 2 || s.Counts["rate"] != 0 {
		t.Fatalf("%+v", s)
	}
	for i, want := range []string{`subscribe "other": push: error 103: permission denied: push: invalid token`,
		`subscribe "news": push: error 103: permission denied: the rule subscribe-token wants a token`} {
		if one := s.Refusals[i]; one.Reason != "permission" || one.Remote != "192.0.2.1:1234" ||
			!one.At.Equal(ts.Clock.Now()) || !strings.Contains(one.Details, "user=ann error="+want) {
			t.Errorf("%+v, want %s", one, want)
		}
	}
	if s := show(1); len(s.Refusals) != 1 || s.Refusals[0].Number != 2 {
		t.Errorf("after the first: %+v", s)
	}
	for range 3 * 100 {
		ts.Clock.Advance(time.Second)
		ts.Hub.CountRefusal(hub.RefusedFrame, "192.0.2.1:1", "error", strings.Repeat("é\xff", 500))
	}
	s = show(0)
	if len(s.Refusals) != 100 || s.Last != 3*100+2 ||
		len(s.Refusals[0].Details) > 500+len("…") {
		t.Errorf("%d are kept, the last is %d with %d bytes", len(s.Refusals), s.Last, len(s.Refusals[0].Details))
	}
}
