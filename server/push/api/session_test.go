package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// The API finds a client by the session in its reply to connect: of a transport with requests of
// their own, and of one that only receives. A WebSocket of both directions has none.
func TestAPISelectsSessions(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	token := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), jwt.MapClaims{"sub": "ann",
		"exp": ts.Clock.Now().Add(time.Hour).Unix()})
	emulated := ts.Open("POST", "/connection/http_stream", `{"id":1,"connect":{"token":"`+token+`"}}`)
	receiving := ts.Open("POST", "/connection/uni_http_stream", `{"token":"`+token+`"}`)
	sessions := []string{sessionIn(t, emulated.Take()), sessionIn(t, receiving.Take())}
	if sessions[0] == sessions[1] {
		t.Errorf("both have the session %s", sessions[0])
	}
	for i, session := range sessions {
		one, other := []*servertest.Stream{emulated, receiving}[i], []*servertest.Stream{receiving, emulated}[i]
		if got := ts.Call("subscribe", `{"session":"`+session+`","channel":"news"}`); got !=
			`{"result":{"num_clients":1}}` {
			t.Errorf("subscribe: %s", got)
		}
		ts.Call("publish", `{"channel":"news","data":1}`)
		if got := one.Take(); !strings.Contains(got, `"pub":{"data":1}`) {
			t.Errorf("the client of the session gets %q", got)
		}
		if got := other.Take(); got != "" {
			t.Errorf("the other gets %q", got)
		}
		if got := ts.Call("unsubscribe", `{"user":"bob","session":"`+session+`","channel":"news"}`); got !=
			`{"result":{"num_clients":0}}` {
			t.Errorf("the session of another user: %s", got)
		}
		ts.Call("unsubscribe", `{"user":"ann","session":"`+session+`","channel":"news"}`)
		one.Take()
		if got := ts.Call("refresh", `{"session":"`+session+`","expire_at":1800000100}`); got !=
			`{"result":{"num_clients":1}}` || !strings.Contains(one.Take(), `"refresh":{"expires":true,"ttl":100}`) {
			t.Errorf("refresh: %s", got)
		}
	}
	if ts.Do("POST", "/emulation", `{"session":"`+sessions[1]+`","node":"","data":"{}"}`).Code != 404 {
		t.Error("a client that only receives can send commands")
	}
	ts.Call("disconnect", `{"session":"`+sessions[1]+`"}`)
	if emulated.IsClosed() || !receiving.IsClosed() {
		t.Errorf("disconnected: %v, %v", emulated.IsClosed(), receiving.IsClosed())
	}
	if got := ts.Client(jwt.MapClaims{"sub": "ann"}).Session.SessionID(); got != "" {
		t.Errorf("a WebSocket has the session %s", got)
	}
}

func sessionIn(t *testing.T, reply string) string {
	t.Helper()
	_, rest, _ := strings.Cut(reply, `"session":"`)
	session, _, found := strings.Cut(rest, `"`)
	if !found || len(session) != 36 {
		t.Fatalf("no session in %s", reply)
	}
	return session
}

// The push of a subscription has no place for publications that the client has missed, in neither
// codec: they follow it, and its position is the one before them.
func TestSubscribeAPIRecovers(t *testing.T) {
	for _, codec := range []centrifuge.Codec{centrifuge.JSON, centrifuge.Protobuf} {
		ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, Recovery: true}}})
		for _, data := range []string{"1", "2", "3"} {
			ts.Call("publish", `{"channel":"news","data":`+data+`}`)
		}
		epoch := epochOf(ts, "news")
		f := new(servertest.Transport)
		f.Session = ts.Hub.Start(f, map[centrifuge.Codec]hub.Form{centrifuge.JSON: servertest.JSONForm,
			centrifuge.Protobuf: servertest.ProtobufForm}[codec], nil)
		t.Cleanup(f.Leave)
		if _, err := f.Session.Connect(push.ConnectRequest{}); err != nil {
			t.Fatal(err)
		}
		ts.Call("subscribe", `{"client":"`+f.Session.ID()+`","channel":"news","data":{"a":1},`+
			`"recover_since":{"offset":1,"epoch":"`+epoch+`"}}`)
		want := codec.AppendReply(nil, &centrifuge.Reply{Push: &centrifuge.Push{Channel: "news",
			Subscribe: &centrifuge.SubscribeResult{Recoverable: true, Data: []byte(`{"a":1}`),
				Position: centrifuge.Position{Offset: 1, Epoch: epoch}}}})
		for offset, data := range []string{2: "2", 3: "3"} {
			if data != "" {
				want = codec.AppendReply(want, &centrifuge.Reply{Push: &centrifuge.Push{Channel: "news",
					Publication: &centrifuge.Publication{Data: []byte(data), Offset: uint64(offset)}}})
			}
		}
		f.Want(t, "codec", string(want))
		if codec == centrifuge.Protobuf && !strings.Contains(string(want), `{"a":1}`) {
			t.Errorf("the push has no data: %q", want)
		}
	}
}

// A time that is over ends connections at once; a client keeps what it had if info is missing.
func TestRefreshAPIEndsAtOnce(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{{Presence: true}},
		Timing: push.Timing{Ping: 24 * time.Hour}})
	ann := ts.Client(jwt.MapClaims{"sub": "ann", "info": 1})
	ts.Call("subscribe", `{"user":"ann","channel":"news"}`)
	ts.Call("refresh", `{"user":"ann"}`)
	if got := ts.Call("presence", `{"channel":"news"}`); !strings.Contains(got, `"conn_info":1`) {
		t.Errorf("without info: %s", got)
	}
	ts.Clock.Advance(2 * time.Hour)
	ann.Take()
	ann.WantOpen(t, "after the end of its token")
	ts.Call("refresh", `{"user":"ann","expire_at":1800007199}`)
	ann.WantClosed(t, "a second ago", answer.DisconnectExpired)
}
