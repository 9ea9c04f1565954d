package push_test

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/policy"
)

// The API and /events have the rule known-only, too.
func TestKnownOnlyOfTheAPI(t *testing.T) {
	rules := []push.Namespace{{KnownOnly: true}, {Name: "n", HistorySize: 1, Presence: true}}
	ts := servertest.New(t, push.Config{Namespaces: rules})
	for method, more := range map[string]string{"publish": `,"data":1`, "presence": "", "presence_stats": "",
		"history": "", "history_remove": "", "subscribe": `,"user":"ann"`} {
		w := ts.Do("POST", "/api/"+method, `{"channel":"o:a"`+more+`}`, "X-Centrifugo-Error-Mode", "transport")
		if w.Code != 404 || w.Body.String() != `{"code":102,"message":"unknown channel"}` {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	if w := ts.Do("GET", "/events?channel=o:a", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "known-only") {
		t.Errorf("events: %d %s", w.Code, w.Body)
	}
	if _, err := policy.NewNamespaces([]push.Namespace{{Name: "a", KnownOnly: true}}, false); err == nil {
		t.Error("a namespace with a name has the rule")
	}
}

// Rules about users need clients that have one.
func TestPersonalChannelsNeedUsers(t *testing.T) {
	if _, err := push.New(push.Config{Namespaces: []push.Namespace{{Personal: true}}}); err == nil ||
		!strings.Contains(err.Error(), "no client has a user") {
		t.Errorf("without users: %v", err)
	}
}
