package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
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
	if len(list) != 2 || list[0] != (push.Retention{Size: 5, Age: 5 * time.Minute}) || list[1].Age != time.Hour {
		t.Errorf("retentions %v", list)
	}
}

// Two nodes in this process are one server to their clients.
func TestServeAsCluster(t *testing.T) {
	peers, err := freeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	urls := make([]string, 2)
	var log *syncBuffer
	for i := range urls {
		urls[i], log, _ = start(t, "--node", fmt.Sprintf("n%d", i), "--data", t.TempDir(),
			"--cluster-listen", peers[i], "--cluster-route", peers[0], "--cluster-route", peers[1],
			"--namespace", "history-size=10 recovery presence")
	}
	if !strings.Contains(log.String(), "two nodes are not highly available") {
		t.Error("two nodes are not warned of")
	}
	for _, url := range urls {
		eventually(t, func() bool { status, _ := get(t, url+"/health"); return status == http.StatusOK })
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

func bodyOf(t *testing.T, url, body string) string {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
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
