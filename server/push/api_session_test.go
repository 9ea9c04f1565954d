package push_test

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// The API finds a client by the session in its reply to connect: of a transport with requests of
// their own, and of one that only receives. A WebSocket of both directions has none.
func TestAPISelectsSessions(t *testing.T) {
	ts := newTestServer(t, push.Config{TokenSecret: testSecret})
	token := sign(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "ann",
		"exp": ts.clock.Now().Add(time.Hour).Unix()})
	emulated := ts.open("POST", "/connection/http_stream", `{"id":1,"connect":{"token":"`+token+`"}}`)
	receiving := ts.open("POST", "/connection/uni_http_stream", `{"token":"`+token+`"}`)
	sessions := []string{sessionIn(t, emulated.take()), sessionIn(t, receiving.take())}
	if sessions[0] == sessions[1] {
		t.Errorf("both have the session %s", sessions[0])
	}
	for i, session := range sessions {
		one, other := []*fakeStream{emulated, receiving}[i], []*fakeStream{receiving, emulated}[i]
		if got := ts.call("subscribe", `{"session":"`+session+`","channel":"news"}`); got !=
			`{"result":{"num_clients":1}}` {
			t.Errorf("subscribe: %s", got)
		}
		ts.call("publish", `{"channel":"news","data":1}`)
		if got := one.take(); !strings.Contains(got, `"pub":{"data":1}`) {
			t.Errorf("the client of the session gets %q", got)
		}
		if got := other.take(); got != "" {
			t.Errorf("the other gets %q", got)
		}
		if got := ts.call("unsubscribe", `{"user":"bob","session":"`+session+`","channel":"news"}`); got !=
			`{"result":{"num_clients":0}}` {
			t.Errorf("the session of another user: %s", got)
		}
		ts.call("unsubscribe", `{"user":"ann","session":"`+session+`","channel":"news"}`)
		one.take()
		if got := ts.call("refresh", `{"session":"`+session+`","expire_at":1800000100}`); got !=
			`{"result":{"num_clients":1}}` || !strings.Contains(one.take(), `"refresh":{"expires":true,"ttl":100}`) {
			t.Errorf("refresh: %s", got)
		}
	}
	if ts.do("POST", "/emulation", `{"session":"`+sessions[1]+`","node":"","data":"{}"}`).Code != 404 {
		t.Error("a client that only receives can send commands")
	}
	ts.call("disconnect", `{"session":"`+sessions[1]+`"}`)
	if emulated.isClosed() || !receiving.isClosed() {
		t.Errorf("disconnected: %v, %v", emulated.isClosed(), receiving.isClosed())
	}
	if got := ts.client(jwt.MapClaims{"sub": "ann"}).s.SessionID(); got != "" {
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
		ts := newTestServer(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, Recovery: true}}})
		for _, data := range []string{"1", "2", "3"} {
			ts.call("publish", `{"channel":"news","data":`+data+`}`)
		}
		epoch := ts.epochOf("news")
		f := new(fakeTransport)
		f.s = ts.hub.Start(f, map[centrifuge.Codec]hub.Form{centrifuge.JSON: jsonForm,
			centrifuge.Protobuf: protobufForm}[codec], nil)
		t.Cleanup(f.hangUp)
		if _, err := f.s.Connect(push.ConnectRequest{}); err != nil {
			t.Fatal(err)
		}
		ts.call("subscribe", `{"client":"`+f.s.ID()+`","channel":"news","data":{"a":1},`+
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
	ts := newTestServer(t, push.Config{TokenSecret: testSecret, Namespaces: []push.Namespace{{Presence: true}},
		Timing: push.Timing{Ping: 24 * time.Hour}})
	ann := ts.client(jwt.MapClaims{"sub": "ann", "info": 1})
	ts.call("subscribe", `{"user":"ann","channel":"news"}`)
	ts.call("refresh", `{"user":"ann"}`)
	if got := ts.call("presence", `{"channel":"news"}`); !strings.Contains(got, `"conn_info":1`) {
		t.Errorf("without info: %s", got)
	}
	ts.clock.Advance(2 * time.Hour)
	ann.Take()
	ann.WantOpen(t, "after the end of its token")
	ts.call("refresh", `{"user":"ann","expire_at":1800007199}`)
	ann.WantClosed(t, "a second ago", answer.DisconnectExpired)
}
