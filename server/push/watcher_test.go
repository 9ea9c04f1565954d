package push_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A watcher, an operator's subscription in the console, receives publications and is invisible to
// clients and counters.
func TestWatchersAreInvisible(t *testing.T) {
	counting := &pushtest.CountingBus{Bus: membus.New(membus.Config{Clock: pushtest.NewClock()})}
	ts := servertest.New(t, push.Config{Bus: counting, Namespaces: []push.Namespace{{Presence: true, JoinLeave: true,
		HistorySize: 5,
		Recovery:    true}}})
	client := new(servertest.Transport)
	client.Session = ts.Hub.Start(client, servertest.JSONForm, nil)
	t.Cleanup(client.Leave)
	client.Frame([]byte(`{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"news","join_leave":true}}`))
	client.Take()
	if w := ts.Do("GET", "/console/events?channel=news&channel=only-watched", ""); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	watcher := ts.Streams[0]
	watcher.Take()

	if got := ts.Call("publish", `{"channel":"news","data":1}`); !strings.Contains(got, `"offset":1`) {
		t.Error(got)
	}
	if got := watcher.Take(); !strings.Contains(got, "event: news\ndata: 1\n") {
		t.Errorf("the watcher received %q", got)
	}
	if got := strings.Join(client.Take(), ""); strings.Contains(got, "join") {
		t.Errorf("a client receives a notice of the watcher: %s", got)
	}
	id := client.Session.ID()
	for _, tt := range []struct{ method, body, want string }{
		{"presence", `{"channel":"news"}`, `{"result":{"presence":{"` + id + `":{"user":"","client":"` + id + `"}}}}`},
		{"presence_stats", `{"channel":"news"}`, `{"result":{"num_clients":1,"num_users":1}}`},
		{"channels", `{}`, `{"result":{"channels":{"news":{"num_clients":1}}}}`},
		{"connections", `{}`, `{"result":{"connections":{"` + id + `":{"transport":"websocket","protocol":"json",` +
			`"user":"","state":{"channels":{"news":{}}}}}}}`},
	} {
		if got := ts.Call(tt.method, tt.body); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.method, got, tt.want)
		}
	}
	var info struct {
		Result struct {
			Nodes []struct {
				Clients  int `json:"num_clients"`
				Channels int `json:"num_channels"`
			}
		}
	}
	if err := json.Unmarshal([]byte(ts.Call("info", `{}`)), &info); err != nil || info.Result.Nodes[0].Clients != 1 ||
		info.Result.Nodes[0].Channels != 1 {
		t.Errorf("info counts %+v, %v", info, err)
	}
	if s := statsOf(ts, t, ""); s.Connections != 1 || s.Channels != 1 || s.Messages != 1 {
		t.Errorf("the console counts %d connections, %d channels, %d messages", s.Connections, s.Channels, s.Messages)
	}
	if metrics := ts.Do("GET", "/metrics", "").Body.String(); !strings.Contains(metrics, "\nmyriad_connections 1\n") {
		t.Error("the metrics count the watcher")
	}
	for _, s := range ts.Hub.Sessions() {
		got := ts.Call("disconnect", `{"client":"`+s.ID()+`"}`)
		if want := s == client.Session; strings.Contains(got, `"num_clients":1`) != want {
			t.Errorf("disconnecting a watcher by its id: %s", got)
		}
	}
	watcher.Close(push.Disconnect{Code: 3000, Reason: "connection closed"})
	client.Leave()
	pushtest.WaitFor(t, "the watcher to end", func() bool { return len(ts.Hub.Sessions()) == 0 })
	pushtest.WaitFor(t, "the channels to be left", func() bool { return counting.Subscribed.Load() == 0 })
}

// Shutdown waits for the streams of watchers, too.
func TestShutdownEndsWatchers(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	ts.Do("GET", "/console/events?channel=news", "")
	if err := ts.Shutdown(t.Context()); err != nil || !ts.Streams[0].IsClosed() || len(ts.Hub.Sessions()) != 0 {
		t.Errorf("%v; the stream is closed: %v, %d sessions are left", err, ts.Streams[0].IsClosed(),
			len(ts.Hub.Sessions()))
	}
}

// Under each slow policy, and for members that are ahead, watchers are not counted.
func TestWatchersAmongSlowMembers(t *testing.T) {
	for _, slow := range []push.SlowPolicy{push.SlowDisconnect, push.SlowDropOldest, push.SlowLatestOnly} {
		ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{Slow: slow}}})
		ts.Do("GET", "/console/events?channel=news", "")
		ts.Events("channel=news")
		for range 3 {
			ts.Call("publish", `{"channel":"news","data":1}`)
		}
		if got := ts.Figures(0).Messages; got != 3 {
			t.Errorf("%s: %d messages are counted, want those of one subscriber", slow, got)
		}
	}
}
