package push_test

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

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

func TestAPI(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, Recovery: true, Presence: true},
		{Name: "bare"}}, Version: "v"})
	stream := ts.Events("channel=news")
	client := ts.Hub.Sessions()[0].ID()
	epoch := ""
	for _, tt := range []struct{ method, body, want string }{
		{"publish", `{"channel":"news","data":1}`, `{"result":{"offset":1,"epoch":"E"}}`},
		{"publish", `{"channel":"bare:1","data":1}`, `{"result":{}}`},
		{"broadcast", `{"channels":["news","bare:1",""],"data":2}`,
			`{"responses":[{"result":{"offset":2,"epoch":"E"}},{"result":{}},{"error":{"code":107,`},
		{"broadcast", `{"data":2}`, `{"error":{"code":107,"message":"channels is missing"}}`},
		{"history", `{"channel":"news","limit":10}`,
			`{"result":{"publications":[{"data":1,"offset":1},{"data":2,"offset":2}],"epoch":"E","offset":2}}`},
		{"history", `{"channel":"news","limit":1,"reverse":true}`,
			`{"result":{"publications":[{"data":2,"offset":2}],"epoch":"E","offset":2}}`},
		{"history", `{"channel":"news","limit":1,"since":{"offset":1,"epoch":"x"}}`,
			`{"error":{"code":112,"message":"unrecoverable position"}}`},
		{"history", `{"channel":"bare:1"}`, `{"error":{"code":108,"message":"not available"}}`},
		{"history", `{}`, `{"error":{"code":107,"message":"channel is missing"}}`},
		{"history_remove", `{"channel":"news"}`, `{"result":{}}`},
		{"history", `{"channel":"news","limit":10}`, `{"result":{"publications":[],"epoch":"E","offset":2}}`},
		{"presence", `{"channel":"news"}`, `{"result":{"presence":{"` + client + `":{"user":"","client":"` + client +
			`"}}}}`},
		{"presence_stats", `{"channel":"news"}`, `{"result":{"num_clients":1,"num_users":1}}`},
		{"presence", `{"channel":"bare:1"}`, `{"error":{"code":108,"message":"not available"}}`},
		{"channels", `{}`, `{"result":{"channels":{"news":{"num_clients":1}}}}`},
		{"channels", `{"pattern":"n*s"}`, `{"result":{"channels":{"news":{"num_clients":1}}}}`},
		{"channels", `{"pattern":"x*"}`, `{"result":{"channels":{}}}`},
		{"info", `{}`, `{"result":{"nodes":[{"uid":"` + ts.Hub.NodeID() +
			`","name":"myriad","version":"v","num_clients":1,"num_channels":1,"uptime":0,` +
			`"num_users":1,"num_subs":1}]}}`},
		{"unsubscribe", `{"channel":"news"}`,
			`{"error":{"code":107,"message":"user, client or session is missing"}}`},
		{"unsubscribe", `{"channel":"other","client":"` + client + `"}`, `{"result":{"num_clients":0}}`},
		{"disconnect", `{"client":"` + client + `","disconnect":{"code":1,"reason":""}}`, `{"error":{"code":107,`},
		{"disconnect", `{"user":"nobody"}`, `{"result":{"num_clients":0}}`},
		{"disconnect", `[`, `{"error":{"code":107,`},
		{"disconnect", `{"client":"` + client + `"}`, `{"result":{"num_clients":1}}`},
	} {
		got := ts.Do("POST", "/api/"+tt.method, tt.body).Body.String()
		if epoch == "" {
			_, rest, _ := strings.Cut(got, `"epoch":"`)
			epoch, _, _ = strings.Cut(rest, `"`)
		}
		if !strings.Contains(got, strings.ReplaceAll(tt.want, `"E"`, `"`+epoch+`"`)) {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.body, got, tt.want)
		}
	}
	if !stream.IsClosed() {
		t.Error("the client was not disconnected")
	}
}
