package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// A publication whose version is not above the channel's latest is dropped, and answered with the
// position of the latest. Versions of another epoch are not compared.
func TestAPIVersions(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{Name: "h", HistorySize: 9}}})
	stream := ts.Events("channel=h:1")
	stream.Take()
	for _, tt := range []struct {
		body   string
		offset int // in the answer
	}{
		{`"data":1,"version":5`, 1}, {`"data":2,"version":5`, 1}, {`"data":3,"version":4`, 1},
		{`"data":4,"version":6,"version_epoch":"a"`, 2}, {`"data":5,"version":6,"version_epoch":"a"`, 2},
		{`"data":6,"version":1,"version_epoch":"b"`, 3}, {`"data":7`, 4}, {`"data":8,"version":1`, 5},
	} {
		if got, want := ts.Call("publish", `{"channel":"h:1",`+tt.body+`}`),
			fmt.Sprintf(`"offset":%d,`, tt.offset); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", tt.body, got, want)
		}
	}
	if got, want := stream.Take(), "data: 1\n\ndata: 4\n\ndata: 6\n\ndata: 7\n\ndata: 8\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	if got := ts.Call("broadcast", `{"channels":["h:1","h:2","x"],"data":9,"version":1}`); strings.Count(got,
		`"result"`) != 3 || !strings.Contains(got, `"code":108,"message":"version needs a channel whose namespace`) {
		t.Errorf("broadcast: %s", got)
	}
	if got := stream.Take(); got != "" {
		t.Errorf("a version that is not newer was delivered: %q", got)
	}
	for body, want := range map[string]string{
		`"channel":"h:1","version_epoch":"a"`:             "version_epoch without version",
		`"channel":"h:1","version":1,"skip_history":true`: "version with skip_history",
		`"channel":"h:1","version":1,"version_epoch":"` + strings.Repeat("x", 256+1) +
			`"`: "version_epoch has more",
	} {
		if got := ts.Call("publish", `{"data":1,`+body+`}`); !strings.Contains(got, `"code":107`) ||
			!strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// The API says more of a subscription: what others learn of the client, data for it, and its end.
func TestSubscribeAPIFields(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{{Presence: true}},
		Timing: push.Timing{Ping: time.Hour}})
	ann := ts.Client(jwt.MapClaims{"sub": "ann"})
	ends := ts.Clock.Now().Add(time.Minute).Unix()
	for _, tt := range []struct{ fields, told, info string }{
		{`"info":{"a": 1},"data":{"hello": 1},"expire_at":` + fmt.Sprint(ends), `"data":{"hello":1}`, `{"a":1}`},
		{`"b64info":"eyJhIjoyfQ==","b64data":"eyJiIjozfQ=="`, `"data":{"b":3}`, `{"a":2}`},
	} {
		ts.Call("unsubscribe", `{"user":"ann","channel":"news"}`)
		ann.Take()
		if got := ts.Call("subscribe", `{"user":"ann","channel":"news",`+tt.fields+`}`); got !=
			`{"result":{"num_clients":1}}` {
			t.Fatalf("%s: %s", tt.fields, got)
		}
		if got := strings.Join(ann.Take(), ""); !strings.Contains(got, tt.told) {
			t.Errorf("%s: the client is told %s", tt.fields, got)
		}
		if got := ts.Call("presence", `{"channel":"news"}`); !strings.Contains(got, `"chan_info":`+tt.info) {
			t.Errorf("%s: %s", tt.fields, got)
		}
	}
	ts.Call("unsubscribe", `{"user":"ann","channel":"news"}`)
	ts.Call("subscribe", `{"user":"ann","channel":"news","expire_at":`+fmt.Sprint(ends)+`}`)
	ann.Take()
	ts.Clock.Advance(59 * time.Second)
	ann.Want(t, "before the end")
	ts.Clock.Advance(2 * time.Second)
	ann.Want(t, "at the end",
		`{"push":{"channel":"news","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
	for _, fields := range []string{`"expire_at":1`, `"expire_at":9000000000000`, `"b64info":"/w=="`,
		`"info":1,"b64info":"MQ=="`, `"override":{"force_recovery":{"value":true}}`, `"all_users":true`} {
		if got := ts.Call("subscribe", `{"user":"ann","channel":"news",`+fields+`}`); !strings.Contains(got,
			`"code":107`) {
			t.Errorf("%s: %s", fields, got)
		}
	}
	open := servertest.New(t, push.Config{})
	if got := open.Call("subscribe", `{"user":"ann","channel":"news","expire_at":`+fmt.Sprint(ends)+`}`); !strings.
		Contains(got, "expire_at needs clients with tokens") {
		t.Errorf("clients without tokens: %s", got)
	}
}
