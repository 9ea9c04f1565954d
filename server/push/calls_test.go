package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/golang-jwt/jwt/v5"
)

// A program does by calls what the HTTP API does by requests, with the same effects.
func TestCalls(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Node: "n1", Namespaces: []push.Namespace{
		{HistorySize: 5, Recovery: true, Presence: true, SubscribeToken: true}, {Name: "plain"}}})
	ctx := t.Context()
	ann, bob := ts.Client(jwt.MapClaims{"sub": "ann"}), ts.Client(jwt.MapClaims{"sub": "bob"})

	first, err := ts.PublishWith(ctx, "news", []byte(` {"a": 1} `), push.PublishOptions{IdempotencyKey: "k",
		Tags: map[string]string{"t": "x"}})
	if err != nil || first.Offset == 0 || first.Epoch == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := ts.PublishWith(ctx, "news", []byte("2"), push.PublishOptions{IdempotencyKey: "k"}); err != nil ||
		again != first {
		t.Errorf("the same key again: %+v, %v", again, err)
	}
	all, err := ts.Broadcast(ctx, []string{"news", "plain:a", "no\nname"}, []byte("text"),
		push.PublishOptions{Kind: push.Text})
	if err != nil || len(all) != 3 || all[0].Offset != first.Offset+1 || all[1] != (push.Published{}) ||
		!errors.As(all[2].Err, new(push.Error)) {
		t.Errorf("broadcast: %+v, %v", all, err)
	}
	newer := push.PublishOptions{Version: &push.Version{Number: 2}}
	at, err := ts.PublishWith(ctx, "news", []byte("3"), newer)
	if older, err2 := ts.PublishWith(ctx, "news", []byte("4"), newer); err != nil || err2 != nil || older != at {
		t.Errorf("an old version: %v, %v, %v", older, err, err2)
	}
	h, err := ts.History(ctx, "news", push.Query{Limit: -1})
	if err != nil || len(h.Publications) != 3 || string(h.Publications[0].Data) != `{"a":1}` ||
		h.Publications[0].Tags["t"] != "x" || h.Publications[1].Kind != push.Text || h.Top != at {
		t.Errorf("history: %+v, %v", h, err)
	}

	hidden := false
	n, err := ts.Subscribe(ctx, push.Target{User: "ann"}, "news", push.SubscribeOptions{Since: &first,
		Data: []byte("7"),
		Info: []byte(`{"role": "boss"}`)})
	if got := taken(ann); err != nil || n != 1 || !strings.Contains(got, `"data":7`) ||
		!strings.Contains(got, `"offset":3`) {
		t.Errorf("subscribe: %d, %v; ann gets %s", n, err, got)
	}
	n, err = ts.Subscribe(ctx, push.Target{Client: bob.Session.ID()}, "news",
		push.SubscribeOptions{Override: push.Override{
			Presence: &hidden}})
	if err != nil || n != 1 {
		t.Errorf("subscribe: %d, %v", n, err)
	}
	there, err := ts.Presence(ctx, "news")
	if err != nil || len(there.Clients) != 1 || there.Clients[0].User != "ann" ||
		string(there.Clients[0].ChanInfo) != `{"role":"boss"}` {
		t.Errorf("presence: %+v, %v", there, err)
	}
	if stats, err := ts.PresenceStats(ctx, "news"); err != nil || stats.Count != 1 || len(stats.Clients) != 0 {
		t.Errorf("presence stats: %+v, %v", stats, err)
	}
	if list, err := ts.Channels(ctx, "n*"); err != nil || !slices.Equal(list, []push.ChannelInfo{{Name: "news",
		Subscribers: 2}}) {
		t.Errorf("channels: %v, %v", list, err)
	}
	if list, err := ts.Connections(ctx, "ann"); err != nil || len(list) != 1 || list[0].Client != ann.Session.ID() ||
		!slices.Equal(list[0].Channels, []string{"news"}) {
		t.Errorf("connections: %+v, %v", list, err)
	}
	ts.Clock.Advance(1500 * time.Millisecond)
	if list, err := ts.Nodes(ctx); err != nil || len(list) != 1 || list[0].Name != "n1" || list[0].Clients != 2 ||
		list[0].Users != 2 || list[0].Subscriptions != 2 || list[0].Channels != 1 || list[0].Uptime != time.Second {
		t.Errorf("nodes: %+v, %v", list, err)
	}

	ann.Take()
	n, err = ts.Refresh(ctx, push.Target{User: "ann"}, push.RefreshOptions{ExpireAt: ts.Clock.Now().Unix() + 100})
	if err != nil || n != 1 || !strings.Contains(taken(ann), `"ttl":100`) {
		t.Errorf("refresh: %d, %v", n, err)
	}
	if n, err := ts.Unsubscribe(ctx, push.Target{User: "ann"}, "news"); err != nil || n != 1 ||
		!strings.Contains(taken(ann), `"unsubscribe"`) {
		t.Errorf("unsubscribe: %d, %v", n, err)
	}
	if err := ts.RemoveHistory(ctx, "news"); err != nil {
		t.Error(err)
	}
	if h, err := ts.History(ctx, "news", push.Query{Limit: -1}); err != nil || len(h.Publications) != 0 || h.Top != at {
		t.Errorf("a removed history: %+v, %v", h, err)
	}
	if n, err := ts.Disconnect(ctx, push.Target{User: "bob"}, push.Disconnect{Code: 4001,
		Reason: "bye"}); err != nil || n != 1 {
		t.Errorf("disconnect: %d, %v", n, err)
	}
	bob.WantClosed(t, "with a code", push.Disconnect{Code: 4001, Reason: "bye"})
	if n, err := ts.Disconnect(ctx, push.Target{User: "ann"}, push.Disconnect{}); err != nil || n != 1 {
		t.Errorf("disconnect: %d, %v", n, err)
	}
	ann.WantClosed(t, "without a code", answer.DisconnectForced)
}

// A call that cannot be followed fails with an Error that says why, and has no effect.
func TestCallsAreChecked(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{{Name: "kept",
		HistorySize: 5}},
		Limits: push.Limits{Publication: 100, Broadcast: 2}})
	ctx, long := t.Context(), bytes.Repeat([]byte("1"), 101)
	publish := func(channel string, data []byte, o push.PublishOptions) error {
		_, err := ts.PublishWith(ctx, channel, data, o)
		return err
	}
	counted := func(_ int, err error) error { return err }
	ann := push.Target{User: "ann"}
	subscribe := func(o push.SubscribeOptions) error { return counted(ts.Subscribe(ctx, ann, "a", o)) }
	once, skipped := push.PublishOptions{Version: &push.Version{Number: 1}},
		push.PublishOptions{Version: &push.Version{Number: 1},
			SkipHistory: true}
	keyed := push.PublishOptions{IdempotencyKey: strings.Repeat("k", 257)}
	unnumbered := push.PublishOptions{Version: &push.Version{Epoch: "e"}}
	elsewhere := push.Position{Offset: 1, Epoch: "other"}
	three, reason := []string{"a", "b", "c"}, strings.Repeat("r", 124)
	tagged := push.PublishOptions{Tags: map[string]string{"t": string(long)}}
	recovering := push.SubscribeOptions{Override: push.Override{ForceRecovery: new(true)}}
	for name, c := range map[string]struct {
		err  error
		code uint32
	}{
		"no channel":             {publish("", []byte("1"), push.PublishOptions{}), 107},
		"bad channel":            {publish("a\nb", []byte("1"), push.PublishOptions{}), 107},
		"no data":                {publish("a", nil, push.PublishOptions{}), 107},
		"no JSON":                {publish("a", []byte("{"), push.PublishOptions{}), 107},
		"no UTF-8":               {publish("a", []byte("\xff"), push.PublishOptions{Kind: push.Text}), 107},
		"no kind":                {publish("a", []byte("1"), push.PublishOptions{Kind: 9}), 107},
		"large data":             {publish("a", long, push.PublishOptions{}), 106},
		"large bytes":            {publish("a", long, push.PublishOptions{Kind: push.Binary}), 106},
		"large tags":             {publish("a", []byte("1"), tagged), 106},
		"long key":               {publish("a", []byte("1"), keyed), 107},
		"version 0":              {publish("kept:a", []byte("1"), unnumbered), 107},
		"version, no history":    {publish("a", []byte("1"), once), 108},
		"version, skipped":       {publish("kept:a", []byte("1"), skipped), 107},
		"no history":             {second(ts.History(ctx, "a", push.Query{})), 108},
		"no history to remove":   {ts.RemoveHistory(ctx, "a"), 108},
		"no presence":            {second(ts.Presence(ctx, "kept:a")), 108},
		"another epoch":          {second(ts.History(ctx, "kept:a", push.Query{Since: &elsewhere})), 112},
		"bad pattern":            {second(ts.Channels(ctx, "[")), 107},
		"no channels":            {second(ts.Broadcast(ctx, nil, []byte("1"), push.PublishOptions{})), 107},
		"many channels":          {second(ts.Broadcast(ctx, three, long, push.PublishOptions{})), 106},
		"nobody":                 {counted(ts.Subscribe(ctx, push.Target{}, "a", push.SubscribeOptions{})), 107},
		"info":                   {subscribe(push.SubscribeOptions{Info: []byte("{")}), 107},
		"large info":             {subscribe(push.SubscribeOptions{Info: long}), 106},
		"expired":                {subscribe(push.SubscribeOptions{ExpireAt: 1}), 107},
		"recovery":               {subscribe(recovering), 107},
		"unsubscribe from none":  {counted(ts.Unsubscribe(ctx, ann, "")), 107},
		"code":                   {counted(ts.Disconnect(ctx, ann, push.Disconnect{Code: 1000, Reason: ""})), 107},
		"reason":                 {counted(ts.Disconnect(ctx, ann, push.Disconnect{Code: 4000, Reason: reason})), 107},
		"refresh in nanoseconds": {counted(ts.Refresh(ctx, ann, push.RefreshOptions{ExpireAt: 1 << 60})), 107},
	} {
		var got push.Error
		if !errors.As(c.err, &got) || got.Code != c.code || got.Message == "" {
			t.Errorf("%s: %v, want the code %d", name, c.err, c.code)
		}
	}
	ts.Drain()
	if err := publish("a", []byte("1"), push.PublishOptions{}); err == nil {
		t.Error("a draining server publishes")
	}
}

func second[T any](_ T, err error) error { return err }

// What middleware knows of a client's request, Hooks.Connect knows, through each door that asks it;
// later hooks, and the connection, do not keep it.
func TestConnectHookHasValues(t *testing.T) {
	type key struct{}
	ts := servertest.New(t, push.Config{Hooks: push.Hooks{
		Connect: func(ctx context.Context, _ push.Caller, _ push.ConnectRequest) (push.ConnectAnswer, error) {
			user, _ := ctx.Value(key{}).(string)
			if user == "" {
				return push.ConnectAnswer{}, push.Disconnect{Code: 4501, Reason: "log in first"}
			}
			return push.ConnectAnswer{User: user}, ctx.Err()
		},
	}})
	inner := ts.Handler
	ts.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), key{}, r.Header.Get("X-Session")))
		defer cancel()
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
	streamed := ts.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`, "X-Session", "ann")
	if got := streamed.Take(); !strings.Contains(got, `"connect"`) {
		t.Errorf("http_stream: %s", got)
	}
	ts.Open("POST", "/connection/uni_sse", `{}`, "X-Session", "bob").Take()
	ts.Events("channel=news", "X-Session", "cid").Take()
	list, err := ts.Connections(t.Context(), "")
	var users []string
	for _, c := range list {
		users = append(users, c.User+" by "+c.Transport)
	}
	want := []string{"ann by http_stream", "bob by uni_sse", "cid by events"}
	if err != nil || !slices.Equal(users, want) {
		t.Errorf("the users are %v, want %v; %v", users, want, err)
	}
	if f := ts.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`); !f.IsClosed() {
		t.Error("a client without a session is connected")
	}
}

// So does one that connects by WebSocket to a web.Server, whose requests end before their clients
// send connect.
func TestConnectHookHasValuesBySocket(t *testing.T) {
	type key struct{}
	users := make(chan any, 1)
	s := servertest.NewLive(t, push.Config{Hooks: push.Hooks{
		Connect: func(ctx context.Context, _ push.Caller, _ push.ConnectRequest) (push.ConnectAnswer, error) {
			users <- ctx.Value(key{})
			return push.ConnectAnswer{User: "ann"}, nil
		},
	}})
	inner := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, "ann's session")))
	})
	s.Dial(servertest.UpgradeRequest + servertest.MaskedText(`{"id":1,"connect":{}}`))
	select {
	case user := <-users:
		if user != "ann's session" {
			t.Errorf("the hook gets %v", user)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the hook was not called")
	}
}

// A hook's Disconnect that no close frame can carry still ends the connection.
func TestDisconnectsThatCannotBeSent(t *testing.T) {
	for _, tt := range []struct{ given, want push.Disconnect }{
		{push.Disconnect{}, answer.DisconnectForced},
		{push.Disconnect{Code: 12, Reason: ""}, answer.DisconnectServerError},
		{push.Disconnect{Code: 5000, Reason: "x"}, answer.DisconnectServerError},
		{push.Disconnect{Code: 4001, Reason: strings.Repeat("r", 124)}, answer.DisconnectServerError},
		{push.Disconnect{Code: 4001, Reason: "bye"}, push.Disconnect{Code: 4001, Reason: "bye"}},
	} {
		refuse := func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
			return push.ConnectAnswer{}, tt.given
		}
		ts := servertest.New(t, push.Config{Hooks: push.Hooks{Connect: refuse}})
		f := new(servertest.Transport)
		f.Session = ts.Hub.Start(f, servertest.JSONForm, nil)
		f.Frame([]byte(`{"id":1,"connect":{}}`))
		f.WantClosed(t, tt.given.Error(), tt.want)
		f.Leave()
	}
}

// The console works behind a prefix: none of its files names a path from the root.
func TestConsoleBehindPrefix(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	mux := http.NewServeMux()
	mux.Handle("/push/", http.StripPrefix("/push", ts))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/push/", nil))
	page := w.Body.String()
	links := regexp.MustCompile(`(?:href|src)="([^"#:]+)"`).FindAllStringSubmatch(page, -1)
	if w.Code != http.StatusOK || len(links) < 3 {
		t.Fatalf("%d, with %d links", w.Code, len(links))
	}
	for _, link := range links {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/push/"+link[1], nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", link[1], w.Code)
		}
	}
	names, err := fs.Glob(consoleFiles, "*.js")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	fromRoot := regexp.MustCompile("(?:getJSON|request|fetch)\\(['`\"]/")
	for _, name := range names {
		text, err := consoleFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := fromRoot.Find(text); found != nil {
			t.Errorf("%s has %s", name, found)
		}
	}
}

// taken is all that a client has got since it was last asked for.
func taken(f *servertest.Transport) string { return strings.Join(f.Take(), "\n") }

func TestCompactSize(t *testing.T) {
	for _, text := range []string{`1`, ` { "a b" : [ 1 , "\" \\" , "\\" ] }` + "\n\t\r", `"\\\" "`, `[]`,
		"\"\u00a0 \""} {
		var to bytes.Buffer
		if err := json.Compact(&to, []byte(text)); err != nil || push.CompactSize([]byte(text)) != to.Len() {
			t.Errorf("%q has %d bytes, want %d, %v", text, push.CompactSize([]byte(text)), to.Len(), err)
		}
	}
}
