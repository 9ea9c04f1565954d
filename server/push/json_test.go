package push_test

import (
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"

	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What programs make JSON of looks as the HTTP API shows it.
func TestJSONOfProgramsIsThatOfTheAPI(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 10, Presence: true}}})
	ctx := t.Context()
	ts.Events("channel=news")
	at, err := ts.PublishWith(ctx, "news", []byte(`{"a": "<b>"}`),
		push.PublishOptions{Tags: map[string]string{"t": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = ts.PublishWith(ctx, "news", []byte("text"), push.PublishOptions{Kind: push.Text}); err != nil {
		t.Fatal(err)
	}
	if _, err = ts.PublishWith(ctx, "news", []byte{0xff}, push.PublishOptions{Kind: push.Binary}); err != nil {
		t.Fatal(err)
	}
	_, err = ts.PublishAs(ctx, "news", push.Publication{Data: []byte("1"), Client: "c", User: "u"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := ts.Broadcast(ctx, []string{"news", ""}, []byte("1"), push.PublishOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	history, err := ts.History(ctx, "news", push.Query{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	presence, err := ts.Presence(ctx, "news")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := ts.Nodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stats := ts.Call("presence_stats", `{"channel":"news"}`)
	for _, tt := range []struct {
		value        any
		method, body string
		more         string // members of other answers
	}{
		{history, "history", `{"channel":"news","limit":10}`, ""},
		{presence, "presence", `{"channel":"news"}`, stats},
		{map[string]any{"nodes": nodes}, "info", `{}`, ""},
		{map[string]any{"responses": all}, "broadcast",
			`{"channels":["news",""],"data":1,"idempotency_key":"k"}`, ""},
	} {
		mine, err := json.Marshal(tt.value)
		if err != nil {
			t.Errorf("%s: %v", tt.method, err)
			continue
		}
		var got, want, more map[string]any
		if err := json.Unmarshal(mine, &got); err != nil {
			t.Fatal(err)
		}
		theirs := ts.Call(tt.method, tt.body)
		if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(theirs, `{"result":`), "}")),
			&want); err != nil {
			t.Fatal(theirs, err)
		}
		if tt.more != "" {
			if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(tt.more, `{"result":`), "}")),
				&more); err != nil {
				t.Fatal(tt.more, err)
			}
			for name, value := range more {
				want[name] = value
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: a program has\n%s\nand the API\n%s %s", tt.method, mine, theirs, tt.more)
		}
	}
	back := push.Position{}
	if text, err := json.Marshal(at); err != nil || json.Unmarshal(text, &back) != nil || back != at ||
		!strings.HasPrefix(string(text), `{"offset":1,"epoch":"`) {
		t.Errorf("a position is %s, %v; back %+v", text, err, back)
	}
}
