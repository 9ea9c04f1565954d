package centrifuge_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// emulated reads the session and the node in the reply to connect.
func emulatedIn(t *testing.T, reply string) (session, node string) {
	t.Helper()
	var r struct {
		Connect struct{ Session, Node string }
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(reply, "data: ")), &r); err != nil ||
		r.Connect.Session == "" ||
		r.Connect.Node == "" {
		t.Fatalf("%q: %v", reply, err)
	}
	return r.Connect.Session, r.Connect.Node
}

func emulate(ts *servertest.Server, session, node, commands string) int {
	body, _ := json.Marshal(map[string]string{"session": session, "node": node, "data": commands})
	return ts.Do("POST", "/emulation", string(body)).Code
}

// A client that only reads a response sends its commands in requests of their own.
func TestEmulation(t *testing.T) {
	connect := `{"id":1,"connect":{}}`
	for name, open := range map[string]func(*servertest.Server) *servertest.Stream{
		"http_stream": func(ts *servertest.Server) *servertest.Stream {
			return ts.Open("POST", "/connection/http_stream", connect)
		},
		"sse": func(ts *servertest.Server) *servertest.Stream {
			return ts.Open("GET", "/connection/sse?cf_connect="+url.QueryEscape(connect), "")
		},
		"sse by POST": func(ts *servertest.Server) *servertest.Stream {
			return ts.Open("POST", "/connection/sse",
				connect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := servertest.New(t, push.Config{})
			message := func(line string) string {
				if name == "http_stream" {
					return line + "\n"
				}
				return "data: " + line + "\n\n"
			}
			c := open(ts)
			session, node := emulatedIn(t, c.Take())
			commands := `{"id":2,"subscribe":{"channel":"news"}}` + "\n" + `{"id":3,"ping":{}}`
			if code := emulate(ts, session, node, commands); code != 204 {
				t.Errorf("commands were answered with %d", code)
			}
			want := message(`{"id":2,"subscribe":{}}`) + message(`{"id":3,"ping":{}}`)
			if got := c.Take(); got != want {
				t.Errorf("received %q, want %q", got, want)
			}
			ts.Do("POST", "/api/publish", `{"channel":"news","data":{"a":1}}`)
			if got, want := c.Take(), message(`{"push":{"channel":"news","pub":{"data":{"a":1}}}}`); got != want {
				t.Errorf("received %q, want %q", got, want)
			}
			emulate(ts, session, node, "not JSON")
			want = message(`{"push":{"disconnect":{"code":3501,"reason":"bad request"}}}`)
			if got := c.Take(); got != want || !c.IsClosed() {
				t.Errorf("received %q, want %q", got, want)
			}
			pushtest.WaitFor(t, "the session to end", func() bool { return emulate(ts, session, node, connect) == 404 })
		})
	}
}

func TestEmulationRefuses(t *testing.T) {
	ts := servertest.New(t, push.Config{Limits: push.Limits{Frame: 100}})
	long := strings.Repeat("x", 101)
	for _, tt := range []struct {
		method, target, body string
		want                 int
	}{
		{"POST", "/emulation", `{"session":"none","node":"","data":"{}"}`, 404},
		{"POST", "/emulation", `{"session":"","node":"","data":"{}"}`, 404},
		{"POST", "/emulation", `{"session":`, 400},
		{"POST", "/emulation", long, 413},
		{"GET", "/emulation", "", 405},
		{"GET", "/connection/http_stream", "", 405},
		{"POST", "/connection/http_stream", long, 413},
		{"GET", "/connection/sse", "", 400},
		{"GET", "/connection/sse?cf_connect=" + long, "", 413},
		{"GET", "/connection/websocket?cf_ws_frame_ping_pong=true", "", 400},
		{"GET", "/connection/websocket?format=msgpack", "", 400},
		{"POST", "/connection/http_stream?cf_tomorrow=1", "{}", 400},
		{"GET", "/connection/websocket?cf_protocol_version=v1", "", 400},
		{"GET", "/connection/uni_websocket?cf_connect=%7B%7D", "", 400},
		{"GET", "/connection/websocket?cf_protocol_version=v2&cf_protocol=protobuf&other=1", "", 426},
		{"PUT", "/connection/uni_sse", "", 405},
	} {
		if w := ts.Do(tt.method, tt.target, tt.body); w.Code != tt.want {
			t.Errorf("%s %.50s: %d %s, want %d", tt.method, tt.target, w.Code, w.Body, tt.want)
		}
	}
}

// Protobuf over a response has each reply after its length.
func TestEmulationInProtobuf(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	c := ts.Open("POST", "/connection/http_stream", "\x04\x08\x01\x22\x00", "Content-Type",
		"application/octet-stream")
	reply := c.Take()
	at := strings.Index(reply, "\x4a\x24") // field 9, 36 bytes: the session
	if at < 0 {
		t.Fatalf("connect was answered with %q", reply)
	}
	session := reply[at+2 : at+38]
	body := "\x12\x24" + session + "\x1a\x0c\x0b\x08\x02\x2a\x07\x0a\x05ch\xc3\xa4n"
	w := ts.Do("POST", "/emulation", body, "Content-Type", "application/octet-stream")
	if got := c.Take(); w.Code != 204 || got != "\x04\x08\x02\x32\x00" {
		t.Errorf("%d, and received %q", w.Code, got)
	}
	data := []byte{0xff, 0}
	ts.PublishAs(t.Context(), "chän", push.Publication{Data: data, Kind: push.Binary})
	want := centrifuge.Protobuf.AppendReply(nil, &centrifuge.Reply{Push: &centrifuge.Push{Channel: "chän",
		Publication: &centrifuge.Publication{Data: data}}})
	if got := c.Take(); got != string(want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

// A unidirectional client sends a connect request and reads pushes without replies around them.
func TestUnidirectional(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	token := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), jwt.MapClaims{"sub": "ann",
		"exp": ts.Clock.Now().Add(60e9).Unix(), "channels": []string{"news", "a"}})
	request := fmt.Sprintf(`{"token":%q,"name":"test"}`, token)
	for _, tt := range []struct{ method, target, body, before, after string }{
		{"POST", "/connection/uni_http_stream", request, "", "\n"},
		{"GET", "/connection/uni_sse?cf_connect=" + url.QueryEscape(request), "", "data: ", "\n\n"},
		{"POST", "/connection/uni_sse", request, "data: ", "\n\n"},
	} {
		c := ts.Open(tt.method, tt.target, tt.body)
		got := c.Take()
		if !strings.HasPrefix(got, tt.before+`{"connect":{"client":"`) || !strings.HasSuffix(got,
			`"}}`+tt.after) || !strings.Contains(got,
			`"expires":true,"ttl":60,"subs":{"a":{},"news":{}},"ping":25,"session":"`) {
			t.Errorf("%s: received %q", tt.target, got)
		}
		ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`)
		if got, want := c.Take(), tt.before+`{"channel":"news","pub":{"data":1}}`+tt.after; got != want {
			t.Errorf("%s: received %q, want %q", tt.target, got, want)
		}
	}
	for request, want := range map[string]string{
		`{"token":"forged"}`: `{"disconnect":{"code":3500,"reason":"invalid token"}}`,
		`{}`:                 `{"disconnect":{"code":3501,"reason":"bad request"}}`,
		`[`:                  `{"disconnect":{"code":3501,"reason":"bad request"}}`,
	} {
		c := ts.Open("POST", "/connection/uni_http_stream", request)
		if got := c.Take(); got != want+"\n" || !c.IsClosed() {
			t.Errorf("%s: received %q, want %q", request, got, want)
		}
	}
}

// Without tokens, a unidirectional client names the channels that it wants.
func TestUnidirectionalWithoutTokens(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	c := ts.Open("POST", "/connection/uni_http_stream", `{"subs":{"news":{}}}`)
	if got := c.Take(); !strings.Contains(got, `"subs":{"news":{}}`) {
		t.Errorf("received %q", got)
	}
	ts.Clock.Advance(60e9)
	if got := c.Take(); got != "{}\n{}\n" {
		t.Errorf("the pings are %q", got)
	}
	if c.IsClosed() {
		t.Error("disconnected because it does not answer")
	}
}

// Requests of an emulated client come at the same time. Each is answered once, and what is left is
// what the last one has asked for.
func TestEmulationAtTheSameTime(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	c := ts.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`)
	session, node := emulatedIn(t, c.Take())
	const requests = 40
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			command := fmt.Sprintf(`{"id":%d,"subscribe":{"channel":"a"}}`+"\n"+
				`{"id":%d,"unsubscribe":{"channel":"a"}}`, 10+2*i, 11+2*i)
			if code := emulate(ts, session, node, command); code != 204 {
				t.Errorf("answered with %d", code)
			}
		})
	}
	all.Wait()
	lines := strings.Split(strings.TrimSpace(c.Take()), "\n")
	if len(lines) != 2*requests {
		t.Errorf("%d replies to %d commands", len(lines), 2*requests)
	}
	for _, line := range lines {
		if strings.Contains(line, "error") && !strings.Contains(line, `"code":105`) {
			t.Errorf("received %s", line)
		}
	}
	ts.Do("POST", "/api/publish", `{"channel":"a","data":1}`)
	if got := c.Take(); got != "" {
		t.Errorf("a client that has left received %q", got)
	}
}

// What is published in front of an end reaches the client before the end, by every door.
func TestEndBehindTheLastMessage(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	connect := `{"id":1,"connect":{"subs":{"a":{}}}}`
	streams := map[string]*servertest.Stream{
		"events":          ts.Events("channel=a"),
		"uni_http_stream": ts.Open("POST", "/connection/uni_http_stream", `{"subs":{"a":{}}}`),
	}
	two := ts.Open("POST", "/connection/http_stream", connect)
	session, node := emulatedIn(t, two.Take())
	emulate(ts, session, node, `{"id":2,"subscribe":{"channel":"a"}}`)
	streams["http_stream"] = two
	for _, s := range streams {
		s.Take()
	}
	ts.Do("POST", "/api/publish", `{"channel":"a","data":"last"}`)
	for _, s := range ts.Hub.Sessions() {
		s.Disconnect(push.Disconnect{Code: 4000, Reason: "over"})
	}
	for name, s := range streams {
		got := s.Take()
		last, end := strings.Index(got, `"last"`), strings.Index(got, "4000")
		if !s.IsClosed() || last < 0 || end >= 0 && end < last {
			t.Errorf("%s: received %q, closed: %v", name, got, s.IsClosed())
		}
	}
}

// Many responses that are not read end as slow ones, and their secrets are forgotten.
func TestAttackEmulationSecrets(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	for range 20 {
		c := ts.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`)
		session, node := emulatedIn(t, c.Take())
		guess := []byte(session)
		guess[len(guess)-1] ^= 1
		if code := emulate(ts, string(guess), node, `{"id":2,"ping":{}}`); code != 404 {
			t.Errorf("a guessed session is answered %d", code)
		}
		c.Close(push.Disconnect{})
		pushtest.WaitFor(t, "the secret to be forgotten", func() bool {
			return emulate(ts, session, node,
				"{}") == 404
		})
	}
}
