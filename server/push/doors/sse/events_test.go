package sse_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/web"
)

func TestEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	one := ts.Events("channel=news&channel=news", "Last-Event-ID", "7")
	both := ts.Events("channel=sport&channel=news&named=1")
	if got := one.Take(); !strings.HasPrefix(got, "retry: ") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("a stream starts with %q", got)
	}
	both.Take()
	ts.Do("POST", "/api/publish", `{"channel":"news","data":{"n":1}}`)
	ts.Do("POST", "/api/publish", `{"channel":"sport","data":2}`)
	if got, want := one.Take(), "data: {\"n\":1}\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	if got, want := both.Take(), "event: news\ndata: {\"n\":1}\n\nevent: sport\ndata: 2\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	for range 3 {
		ts.Clock.Advance(25 * time.Second)
		if got := one.Take(); got != ":\n\n" {
			t.Errorf("a ping interval later: %q", got)
		}
	}
	if one.IsClosed() {
		t.Error("closed without an answer to a ping, which SSE does not have")
	}
	one.Close(push.Disconnect{Code: 3000, Reason: "connection closed"})
	pushtest.WaitFor(t, "the session to end", func() bool { return ts.Figures(0).Connections == 1 })
}

func TestSlowEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{Limits: push.Limits{Queue: 1000}})
	slow, quick := ts.Events("channel=news"), ts.Events("channel=news")
	slow.SetQueued(990)
	ts.Do("POST", "/api/publish", `{"channel":"news","data":"0123456789"}`)
	if !slow.IsClosed() || quick.IsClosed() {
		t.Errorf("slow closed: %v, quick closed: %v", slow.IsClosed(), quick.IsClosed())
	}
	if got := ts.Figures(0).SlowDisconnects; got != 1 {
		t.Errorf("%d slow disconnects", got)
	}
}

func TestEventsRefused(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Limits: push.Limits{Channels: 2}})
	all := tokentest.Tokens(t, ts.Clock.Now())
	good := "&token=" + all["good"]
	for _, tt := range []struct {
		name, method, query string
		status              int
		answer              string
	}{
		{"no channel", "GET", "x=1" + good, 400, `{"error":{"code":107,"message":"name a channel`},
		{"another parameter", "GET", "channel=a&lastEventId=e:1" + good, 400,
			`{"error":{"code":107,"message":"the parameter \"lastEventId\" is not served: the parameters are chan`},
		{"another value", "GET", "channel=a&named=true" + good, 400,
			`{"error":{"code":107,"message":"named is \"true\"`},
		{"named error", "GET", "channel=error&named=1" + good, 400,
			`{"error":{"code":107,"message":"an event named \"error\"`},
		{"named gap", "GET", "channel=a&channel=gap&named=1" + good, 400,
			`{"error":{"code":107,"message":"an event named`},
		{"named open", "GET", "channel=open&named=1" + good, 400, `{"error":{"code":107,"message":"an event named`},
		{"an empty channel", "GET", "channel=" + good, 400, `{"error":{"code":107,`},
		{"a line end in it", "GET", "channel=a%0Adata:b" + good, 400, `{"error":{"code":107,`},
		{"not UTF-8", "GET", "channel=a%FF" + good, 400, `{"error":{"code":107,`},
		{"too long", "GET", "channel=" + strings.Repeat("x", 256) + good, 400, `{"error":{"code":107,`},
		{"too many", "GET", "channel=a&channel=b&channel=c" + good, 400,
			`{"error":{"code":107,"message":"3 channels, at most 2`},
		{"POST", "POST", "channel=a" + good, 405, `{"error":{"code":104,`},
		{"no token", "GET", "channel=a", 401, `{"error":{"code":101,`},
		{"expired", "GET", "channel=a&token=" + all["expired"], 401,
			`{"error":{"code":109,"message":"token expired"}}`},
		{"forged", "GET", "channel=a&token=" + all["another secret"], 401,
			`{"error":{"code":3500,"message":"invalid token"}}`},
		{"none", "GET", "channel=a&token=" + all["none"], 401, `{"error":{"code":3500,`},
	} {
		w := ts.Do(tt.method, "/events?"+tt.query, "")
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.answer) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if len(ts.Streams) > 0 {
		t.Fatal("a client without a valid token was accepted")
	}
	ts.Events("channel=a&token=" + all["good"])
	byHeader := ts.Events("channel=a", "Authorization", "Bearer "+all["good"])
	ts.Clock.Advance(59 * time.Second)
	if byHeader.IsClosed() {
		t.Error("closed before the token ended")
	}
	ts.Clock.Advance(2 * time.Second)
	if !byHeader.IsClosed() {
		t.Error("open after the token ended")
	}
}

// An SSE client that disconnects before its handler runs is not logged as an error. A server other
// than web.Server, which cannot hold streams, is logged with what to do.
func TestEventsNotOpened(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error // of detach; nil: the error of web.Detached for another server's ResponseWriter
		status int
		logged string
	}{
		{"the client has disconnected", fmt.Errorf("web: write: %w", net.ErrClosed), 200, ""},
		{"the client has reset", syscall.ECONNRESET, 200, ""},
		{"another server", nil, 500, "push: events need a web.Server"},
	} {
		ts := servertest.New(t, push.Config{})
		ts.Detach = func(w http.ResponseWriter) (hub.ResponseStream, error) { return nil, tt.err }
		if tt.err == nil {
			ts.Detach = func(w http.ResponseWriter) (hub.ResponseStream, error) {
				_, err := web.Detached(w)
				return nil, err
			}
		}
		w := ts.Do("GET", "/events?channel=news", "")
		if w.Code != tt.status || (w.Body.Len() == 0) != (tt.logged == "") {
			t.Errorf("%s: answered %d %s", tt.name, w.Code, w.Body)
		}
		if got := ts.Log.String(); !strings.Contains(got, tt.logged) || (got == "") != (tt.logged == "") {
			t.Errorf("%s: logged %q, want %q", tt.name, got, tt.logged)
		}
	}
}

// A stream of events continues where it was interrupted, or reports a gap.
func TestEventsRecover(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 3, Recovery: true}}})
	first := ts.Events("channel=news")
	head, id, found := strings.Cut(strings.TrimSuffix(first.Take(), "\n\n"), "\n\nid: ")
	epoch, zero, _ := strings.Cut(id, ":")
	if !found || zero != "0" || !strings.HasPrefix(head, "retry: ") {
		t.Fatalf("a stream begins with %q and %q", head, id)
	}
	publish := func(data string) { ts.Do("POST", "/api/publish", `{"channel":"news","data":`+data+`}`) }
	publish("1")
	publish("2")
	if got, want := first.Take(), "id: E:1\ndata: 1\n\nid: E:2\ndata: 2\n\n"; got != strings.ReplaceAll(want, "E",
		epoch) {
		t.Errorf("received %q", got)
	}
	publish("3")
	for _, tt := range []struct{ name, query, header, want string }{
		{"by header", "channel=news", epoch + ":1", "id: E:2\ndata: 2\n\nid: E:3\ndata: 3\n\n"},
		{"by query", "channel=news&last_event_id=" + epoch + ":2", "", "id: E:3\ndata: 3\n\n"},
		{"named", "channel=news&named=1", epoch + ":2", "id: E:3\nevent: news\ndata: 3\n\n"},
		{"nothing missed", "channel=news", epoch + ":3", "id: E:3\n\n"},
		{"another epoch", "channel=news", "x:1", "event: gap\ndata: {\"channel\":\"news\"}\nid: E:3\n\n"},
		{"no id of ours", "channel=news", "17", "event: gap\ndata: {\"channel\":\"news\"}\nid: E:3\n\n"},
		{"several channels", "channel=news&channel=more", epoch + ":1", ""},
	} {
		fields := []string{}
		if tt.header != "" {
			fields = []string{"Last-Event-ID", tt.header}
		}
		_, got, _ := strings.Cut(ts.Events(tt.query, fields...).Take(), "\n\n")
		if got != strings.ReplaceAll(tt.want, "E", epoch) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	publish("4")
	publish("5")
	_, got, _ := strings.Cut(ts.Events("channel=news", "Last-Event-ID", epoch+":1").Take(), "\n\n")
	if !strings.HasPrefix(got, "event: gap\n") {
		t.Errorf("more was missed than is kept: %q", got)
	}
}

// /events has the rule of ChannelRegex, too.
func TestChannelRegexOfEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{ChannelRegex: "^a$"}}})
	if w := ts.Do("GET", "/events?channel=b", ""); w.Code != 400 || !strings.Contains(w.Body.String(),
		"channel regex") {
		t.Errorf("events: %d %s", w.Code, w.Body)
	}
}

// Streams of events obey the same rules.
func TestEventsOfLimitedChannels(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{{UserLimited: true},
		{Name: "p", SubscribeToken: true}}})
	token := func(c jwt.MapClaims) string {
		c["exp"] = ts.Config().Clock.Now().Add(time.Hour).Unix()
		return tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), c)
	}
	for _, tt := range []struct {
		channel string
		claims  jwt.MapClaims
		want    string
	}{
		{"dialog#42", jwt.MapClaims{"sub": "43"}, "is for other users"},
		{"p:1", jwt.MapClaims{"sub": "43", "caps": tokentest.Caps(tokentest.Cap("", []string{"pub"}, "p:1"))},
			"the token's claim channels"},
		{"dialog#42", jwt.MapClaims{"sub": "42"}, ""},
		{"p:1", jwt.MapClaims{"sub": "43", "caps": tokentest.Caps(tokentest.Cap("", []string{"sub"}, "p:1"))}, ""},
	} {
		path := "/events?channel=" + url.QueryEscape(tt.channel) + "&token=" + token(tt.claims)
		if tt.want == "" {
			if w := ts.Do("GET", path, ""); w.Code != 200 {
				t.Errorf("%s: %d %s", tt.channel, w.Code, w.Body)
			}
			continue
		}
		if w := ts.Do("GET", path, ""); w.Code != 403 || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: %d %s", tt.channel, w.Code, w.Body)
		}
	}
}

// So may one for /events.
func TestTokenOfManyYearsForEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	for _, exp := range []int64{9223372036, 9223372037, 253402300799, 1 << 53} {
		stream := ts.Events("channel=news&token=" + tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret),
			jwt.MapClaims{"sub": "ann", "exp": exp}))
		ts.Clock.Advance(100 * time.Second)
		if stream.IsClosed() {
			t.Errorf("until %d: the stream was closed", exp)
		}
	}
}

// The answer to an SSE subscriber names the claim.
func TestEventsTellTheClaim(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	claims := jwt.MapClaims{"sub": "ann", "exp": ts.Clock.Now().Add(time.Minute).Unix(), "channels": []string{"a\n"}}
	w := ts.Do("GET", "/events?channel=news&token="+tokentest.Sign(t, jwt.SigningMethodHS256,
		[]byte(tokentest.Secret), claims), "")
	if w.Code != 401 || !strings.Contains(w.Body.String(),
		`"code":3500,"message":"invalid token: the claim channels has \"a`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
