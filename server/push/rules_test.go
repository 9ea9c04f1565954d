package push_test

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

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
