package push_test

import (
	"errors"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// Rules of namespaces change while clients are connected: what they ask for later is judged by the
// new ones. Rules that channels keep cannot change, and then nothing does.
func TestReloadNamespaces(t *testing.T) {
	config := push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{{Name: "a", HistorySize: 5},
		{Name: "b"}}}
	ts := servertest.New(t, config)
	c := ts.Client(jwt.MapClaims{"sub": "ann"})
	c.Asks(t, "before", `{"id":2,"subscribe":{"channel":"a:1"}}`, `{"id":2,"subscribe":{}}`)
	c.Asks(t, "before", `{"id":3,"publish":{"channel":"b:1","data":1}}`, `{"id":3,"publish":{}}`)

	config.Namespaces = []push.Namespace{{Name: "a", HistorySize: 5, SubscribeToken: true, Presence: true},
		{Name: "c", Publish: push.PublishNobody, Personal: true}, {Publish: push.PublishNobody}}
	if err := errors.Join(ts.CheckNamespaces(config), ts.Reload(config)); err != nil {
		t.Fatal(err)
	}
	c.Asks(t, "a token is needed now", `{"id":4,"subscribe":{"channel":"a:2"}}`,
		`{"id":4,"error":{"code":103,"message":"permission denied"}}`)
	c.Asks(t, "the namespace is gone", `{"id":5,"publish":{"channel":"b:1","data":1}}`,
		`{"id":5,"error":{"code":103,"message":"permission denied"}}`)
	c.Asks(t, "presence is new", `{"id":6,"presence_stats":{"channel":"a:1"}}`,
		`{"id":6,"presence_stats":{"num_clients":1,"num_users":1}}`)
	if got := ts.Call("publish", `{"channel":"a:1","data":1}`); got[:19] != `{"result":{"offset"` {
		t.Errorf("publish: %s", got)
	}
	c.Want(t, "the subscription stays", `{"push":{"channel":"a:1","pub":{"data":1,"offset":1}}}`)

	if err := ts.Reload(push.Config{TokenSecret: tokentest.Secret}); err != nil {
		t.Errorf("without namespaces: %v", err)
	}
	for name, list := range map[string][]push.Namespace{
		"another size":                    {{Name: "a", HistorySize: 6}},
		"another age":                     {{Name: "a", HistorySize: 5, HistoryAge: time.Hour}},
		"without the namespace":           {{Name: "c"}},
		"a new one that differs":          {{Name: "a", HistorySize: 5}, {Name: "d", HistorySize: 1}},
		"the one without a name":          {{Name: "a", HistorySize: 5}, {HistorySize: 1}},
		"recovery":                        {{Name: "a", HistorySize: 5, Recovery: true}},
		"join and leave notices":          {{Name: "a", HistorySize: 5, JoinLeave: true}},
		"another policy for slow clients": {{Name: "a", HistorySize: 5, Slow: push.SlowLatestOnly}},
	} {
		config.Namespaces = list
		if err := ts.CheckNamespaces(config); !errors.Is(err, push.ErrNeedsRestart) || ts.Reload(config) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, list := range map[string][]push.Namespace{
		"a mistake": {{Name: "a", HistorySize: -1}}, "a hook that is not there": {{Name: "a", HistorySize: 5,
			SubscribeHook: true}},
	} {
		config.Namespaces = list
		if err := ts.CheckNamespaces(config); err == nil || errors.Is(err, push.ErrNeedsRestart) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.Asks(t, "the rules are those before", `{"id":7,"subscribe":{"channel":"a:3"}}`,
		`{"id":7,"error":{"code":103,"message":"permission denied"}}`)
}
