package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
)

// Options that do not fit together are refused, each with what to do.
func TestClusterSettings(t *testing.T) {
	for _, tt := range []struct {
		c    clusterSettings
		want string // empty: it is valid
	}{
		{clusterSettings{}, ""},
		{clusterSettings{listen: "127.0.0.1:6222", data: "d"}, ""},
		{clusterSettings{listen: "localhost:6222", routes: []string{"[::1]:6223"}, data: "d"}, ""},
		{clusterSettings{nats: "nats://a:4222"}, ""},
		{clusterSettings{listen: "10.0.0.1:6222", data: "d", secret: "s", cert: "c", key: "k", ca: "a"}, ""},
		{clusterSettings{listen: "127.0.0.1:6222"}, "needs --data"},
		{clusterSettings{listen: "127.0.0.1", data: "d"}, "write HOST:PORT"},
		{clusterSettings{listen: "10.0.0.1:6222", data: "d", cert: "c", key: "k", ca: "a"}, "set --cluster-secret"},
		{clusterSettings{listen: "10.0.0.1:6222", data: "d", secret: "s"}, "set --cluster-cert"},
		{clusterSettings{listen: ":6222", data: "d", secret: "s"}, "set --cluster-cert"},
		{clusterSettings{listen: "127.0.0.1:6222", routes: []string{"10.0.0.1:6222"}, data: "d"},
			"set --cluster-secret"},
		{clusterSettings{listen: "127.0.0.1:6222", data: "d", cert: "c"}, "belong together"},
		{clusterSettings{listen: "127.0.0.1:6222", data: "d", sync: "often"}, "write always, or a time"},
		{clusterSettings{listen: "127.0.0.1:6222", data: "d", nats: "nats://a:4222"}, "exclude each other"},
		{clusterSettings{nats: "nats://a:4222", secret: "s"}, "in its URL"},
		{clusterSettings{nats: "nats://a:4222", sync: "10s"}, "the sync_interval of those"},
		{clusterSettings{secret: "s"}, "needs --cluster-listen"},
		{clusterSettings{data: "d"}, "needs --cluster-listen"},
	} {
		err := tt.c.check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.c, err, tt.want)
		}
	}
}

func TestTwoNodesAreWarned(t *testing.T) {
	two := clusterSettings{listen: "a:1", routes: []string{"a:1", "b:1"}}
	three := clusterSettings{listen: "a:1", routes: []string{"b:1", "c:1"}}
	if two.warning() == "" || three.warning() != "" || (&clusterSettings{}).warning() != "" {
		t.Errorf("two nodes: %q, three: %q", two.warning(), three.warning())
	}
}

func TestRetentionsOfNamespaces(t *testing.T) {
	list := retentions([]push.Namespace{{}, {Name: "a", HistorySize: 5}, {Name: "b", HistorySize: 5},
		{Name: "c", HistorySize: 5, HistoryAge: time.Hour}})
	if len(list) != 2 || list[0] != (bus.Retention{Size: 5, Age: 5 * time.Minute}) || list[1].Age != time.Hour {
		t.Errorf("retentions %v", list)
	}
}

// startTwo starts two nodes in this process. It returns when they are healthy and know each other.
func startTwo(t *testing.T, args ...string) (urls [2]string, log *syncBuffer) {
	t.Helper()
	peers := freeport.For(t, 2)
	for i := range urls {
		urls[i], log, _ = start(t, append([]string{"--node", fmt.Sprintf("n%d", i), "--data", t.TempDir(),
			"--cluster-listen", peers[i], "--cluster-route", peers[0], "--cluster-route", peers[1]}, args...)...)
	}
	for _, url := range urls {
		eventually(t, func() bool { status, _ := get(t, url+"/health"); return status == http.StatusOK })
		eventually(t, func() bool {
			_, text := get(t, url+"/metrics")
			return strings.Contains(text, "myriad_cluster_nodes 2\n")
		})
	}
	return urls, log
}

// Two nodes in this process are one server to their clients.
func TestServeAsCluster(t *testing.T) {
	urls, log := startTwo(t, "--namespace", "history-size=10 recovery presence")
	if !strings.Contains(log.String(), "two nodes are not highly available") {
		t.Error("two nodes are not warned of")
	}
	bodyOf(t, urls[0]+"/api/publish", `{"channel":"news","data":"hello"}`)
	eventually(t, func() bool {
		return strings.Contains(bodyOf(t, urls[1]+"/api/history", `{"channel":"news","limit":1}`), `"data":"hello"`)
	})
	eventually(t, func() bool { return strings.Count(bodyOf(t, urls[1]+"/api/info", `{}`), `"uid"`) == 2 })
	if status, body := get(t, urls[0]+"/console/cluster"); status != 200 || !strings.Contains(body, `"name":"n1"`) {
		t.Errorf("/console/cluster: %d %s", status, body)
	}
	if status, body := get(t, urls[0]+"/metrics"); status != 200 || !strings.Contains(body, "myriad_cluster_nodes 2") {
		t.Errorf("/metrics: %d, without two nodes: %v", status, strings.Contains(body, "myriad_cluster_nodes"))
	}
}

// What is done to a user at one node reaches that user's streams at the other one. Presence counts
// the clients of all nodes.
func TestServeActsOnUsersOfAllNodes(t *testing.T) {
	t.Setenv("MYRIAD_TOKEN_SECRET", "a secret that is long enough for HS256")
	urls, _ := startTwo(t, "--namespace", "presence", "--api-key", "key")
	token, err := runToken(t, "make", "--user", "ann")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ method, body string }{
		{"disconnect", `{"user":"ann"}`},
		{"unsubscribe", `{"user":"ann","channel":"news"}`},
		{"refresh", `{"user":"ann","expired":true}`},
	} {
		stream, err := http.Get(urls[0] + "/events?channel=news&token=" + strings.TrimSpace(token))
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		var first [80]byte
		if n, err := stream.Body.Read(first[:]); err != nil || stream.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", stream.Status, first[:n], err)
		}
		count := bodyOf(t, urls[1]+"/api/presence_stats", `{"channel":"news"}`)
		if !strings.Contains(count, `"num_clients":1`) {
			t.Errorf("the other node counts %s", count)
		}
		if said := bodyOf(t, urls[1]+"/api/"+tt.method, tt.body); !strings.Contains(said, `"num_clients":1`) {
			t.Errorf("%s: %s", tt.method, said)
		}
		eventually(t, func() bool {
			return strings.Contains(bodyOf(t, urls[1]+"/api/presence_stats", `{"channel":"news"}`), `"num_clients":0`)
		})
	}
}

func bodyOf(t *testing.T, url, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-API-Key", "key")
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", url, r.Status, err)
	}
	return string(text)
}

func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not so in time")
		}
	}
}
