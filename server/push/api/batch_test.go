package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// A batch runs its commands in order and answers each of them.
func TestAPIBatch(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5}, {Name: "bare"}}})
	stream := ts.Events("channel=news")
	stream.Take()
	got := ts.Call("batch", `{"commands":[
		{"publish":{"channel":"news","data":1}},
		{"publish":{"channel":"news","data":2,"label_filter":1}},
		null,
		{},
		{"publish":{"channel":"news","data":3},"info":{}},
		{"rpc":{"method":"a"}},
		{"frobnicate":{}},
		{"batch":{"commands":[]}},
		{"publish":[]},
		{"history":{"channel":"news","limit":0}, "publish": null}
	]}`)
	var replies struct {
		Replies []map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(got), &replies); err != nil || len(replies.Replies) != 10 {
		t.Fatalf("%v: %s", err, got)
	}
	for i, want := range []string{
		`{"publish":{"offset":1,"epoch":`, `{"error":{"code":107,"message":"field \"label_filter\" of publish`,
		`{"error":{"code":107,`, `{"error":{"code":104,`,
		`{"error":{"code":107,"message":"a command has one method; this one has info, publish"`,
		`{"error":{"code":104,"message":"the method \"rpc\"`,
		`{"error":{"code":104,"message":"there is no method \"frobnicate\"`, `{"error":{"code":104,`,
		`{"error":{"code":107,`, `{"history":{"publications":[],"epoch":`,
	} {
		one, _ := json.Marshal(replies.Replies[i])
		if !strings.HasPrefix(string(one), want) {
			t.Errorf("reply %d: %s, want %s", i, one, want)
		}
	}
	if got := stream.Take(); got != "data: 1\n\n" {
		t.Errorf("received %q", got)
	}
}

func TestAPIBatchInParallel(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 500}}})
	var commands, want []string
	for i := range 200 {
		commands = append(commands, fmt.Sprintf(`{"publish":{"channel":"c%d","data":%d}}`, i%7, i))
	}
	got := ts.Call("batch", `{"parallel":true,"commands":[`+strings.Join(commands, ",")+`]}`)
	if n := strings.Count(got, `{"publish":{"offset":`); n != 200 {
		t.Errorf("%d of 200 were published: %s", n, got)
	}
	for i := range 7 {
		want = append(want, fmt.Sprint(200/7+min(1, max(0, 200%7-i))))
		h := ts.Call("history", fmt.Sprintf(`{"channel":"c%d"}`, i))
		if !strings.Contains(h, `"offset":`+want[i]) {
			t.Errorf("channel %d: %s, want offset %s", i, h, want[i])
		}
	}
}

// A batch is bounded in commands, and in the bytes of its replies.
func TestAPIBatchLimits(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5}},
		Limits: push.Limits{Commands: 3, Publication: 1000, Batch: 6000}})
	many := strings.TrimSuffix(strings.Repeat(`{"info":{}},`, 4), ",")
	for _, tt := range []struct{ path, body string }{{"/api/batch", `{"commands":[` + many + `]}`},
		{"/api", strings.Repeat(`{"method":"info","params":{}}`+"\n", 4)}} {
		w := ts.Do("POST", tt.path, tt.body)
		if w.Code != 413 || !strings.Contains(w.Body.String(), `"code":106,"message":"more than 3 commands`) {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
		}
	}
	if w := ts.Do("POST", "/api/batch", `{"commands":["`+strings.Repeat("x", 7000)+`"]}`); w.Code != 413 {
		t.Errorf("a body above the limit: %d %s", w.Code, w.Body)
	}
	for range 5 {
		ts.Call("publish", `{"channel":"news","data":"`+strings.Repeat("x", 990)+`"}`)
	}
	const ask = `{"history":{"channel":"news","limit":9}}`
	got := ts.Call("batch", `{"commands":[`+ask+","+ask+","+ask+`]}`)
	if n := strings.Count(got, `{"history":`); n != 2 || !strings.Contains(got,
		`{"error":{"code":106,"message":"the replies before it are`) {
		t.Errorf("%d histories were read into one answer: %.300s", n, got)
	}
}

// The older form of the API is POST /api with one command to a line, as gocent v3 sends it.
func TestAPILines(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key"})
	do := func(body string, fields ...string) string {
		w := ts.Do("POST", "/api", body, fields...)
		if w.Code != 200 {
			return fmt.Sprint(w.Code, " ", w.Body)
		}
		return w.Body.String()
	}
	const key = "apikey key"
	got := do(`{"method":"publish","params":{"channel":"news","data":1}}`+"\n"+`{"id":7,"method":"HISTORY",`+
		`"params":{"channel":"news"}}{"method":"rpc","params":{"method":"m"}}`, "Authorization", key)
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || lines[0] != `{"result":{}}` ||
		lines[1] != `{"id":7,"error":{"code":108,"message":"not available"}}` ||
		!strings.HasPrefix(lines[2], `{"error":{"code":104,"message":"the method \"rpc\"`) {
		t.Errorf("%q", got)
	}
	for _, tt := range []struct{ body, auth, want string }{
		{`{"method":"info"}`, "apikey other", "401"}, {`{"method":"info"}`, "", "401"},
		{`{"method":"info"}`, "Bearer key", "401"},
		{`{"method":"info","parallel":true}`, key, "400"}, {``, key, "400"}, {`{`, key, "400"}, {`[]`, key, "400"},
		{`{"method":"info","params":{}} x`, key, "400"},
		{`{"method":"info"}`, "APIKEY key", `{"result":{"nodes":`}, {`{"params":{}}`, key, `{"error":{"code":104,`},
	} {
		if got := do(tt.body, "Authorization", tt.auth); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q as %q: %s, want %s", tt.body, tt.auth, got, tt.want)
		}
	}
}

// API errors have status 200. With X-Centrifugo-Error-Mode: transport they have a status of their
// own.
func TestAPIErrorModes(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	for _, tt := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"publish", `{"channel":"news"}`, 400, `{"code":107,"message":"data is missing"}`},
		{"history", `{"channel":"news"}`, 400, `{"code":108,"message":"not available"}`},
		{"rpc", `{"method":"m"}`, 404, `{"code":104,`},
		{"rpc", `{}`, 400, `{"code":107,"message":"method is missing"}`},
		{"publish", `{"channel":"news","data":1}`, 200, `{"result":{}}`},
	} {
		w := ts.Do("POST", "/api/"+tt.method, tt.body, "X-Centrifugo-Error-Mode", "transport")
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.body, w.Code, w.Body, tt.status, tt.want)
		}
	}
}
