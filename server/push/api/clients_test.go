package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/golang-jwt/jwt/v5"
)

// The API subscribes clients, as they could not themselves.
func TestSubscribeAPI(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret,
		Namespaces: []push.Namespace{{SubscribeToken: true,
			HistorySize: 5, Recovery: true}}})
	ann, bob := ts.Client(jwt.MapClaims{"sub": "ann"}), ts.Client(jwt.MapClaims{"sub": "bob"})
	ts.Call("publish", `{"channel":"news","data":1}`)
	if got := ts.Call("subscribe", `{"user":"ann","channel":"news"}`); got != `{"result":{"num_clients":1}}` {
		t.Error(got)
	}
	if got := ann.Take(); len(got) != 1 ||
		!strings.HasPrefix(got[0], `{"push":{"channel":"news","subscribe":{"recoverable":true,"epoch":"`) {
		t.Errorf("received %q", got)
	}
	if got := ts.Call("subscribe", `{"user":"ann","channel":"news"}`); got != `{"result":{"num_clients":0}}` {
		t.Error("again:", got)
	}
	if got := ts.Call("subscribe", `{"user":"ann","channel":"a\u0001"}`); !strings.Contains(got, `"code":107`) {
		t.Error("an invalid name:", got)
	}
	ts.Call("publish", `{"channel":"news","b64data":"/w=="}`)
	ann.Want(t, "bytes", `{"push":{"channel":"news","pub":{"data":"/w==","offset":2}}}`)
	ts.Call("publish", `{"channel":"news","b64data":"eyJhIjoxfQ==","delta":true}`)
	ann.Want(t, "JSON in base64", `{"push":{"channel":"news","pub":{"data":{"a":1},"offset":3}}}`)
	bob.Want(t, "another user")
	bob.Frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	bob.Want(t, "without a token", `{"id":2,"error":{"code":103,"message":"permission denied"}}`)
}

// The API ends connections at a time, or at once.
func TestRefreshAPI(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Timing: push.Timing{Ping: time.Hour}})
	ann, bob := ts.Client(jwt.MapClaims{"sub": "ann"}), ts.Client(jwt.MapClaims{"sub": "bob"})
	if got := ts.Call("refresh", `{"user":"ann","expired":true}`); got != `{"result":{"num_clients":1}}` {
		t.Error(got)
	}
	ann.WantClosed(t, "expired", answer.DisconnectExpired)
	soon := ts.Clock.Now().Add(time.Minute).Unix()
	got := ts.Call("refresh", `{"user":"bob","expire_at":`+fmt.Sprint(soon)+`}`)
	if got != `{"result":{"num_clients":1}}` {
		t.Error(got)
	}
	ts.Clock.Advance(80 * time.Second)
	bob.WantOpen(t, "before the time to bring a token is over")
	ts.Clock.Advance(10 * time.Second)
	bob.WantClosed(t, "afterwards", answer.DisconnectExpired)
}
