package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"

	"github.com/myriad-go/myriad/server/push/internal/receipts"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/policy"
)

// A field that the server does not implement is refused by name, with what to do instead.
func TestAPIRefusesFieldsByName(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, Presence: true}}})
	stream := ts.Events("channel=news")
	stream.Take()
	for _, tt := range []struct{ method, body, want string }{
		{"publish", `{"channel":"news","data":1,"b64data":"eHg="}`, `"data and b64data are both given`},
		{"publish", `{"channel":"news","dta":1}`,
			`"publish has no field \"dta\": it takes b64data, channel, data, delta, idempotency_key, skip_history, ` +
				`tags, version, version_epoch"`},
		{"publish", `{"channel":"news","data":1,"user":"ann"}`, `"publish has no field \"user\"`},
		{"subscribe", `{"user":"ann","channel":"news","override":{"a":1}}`,
			`"subscribe has no field \"override.a\": override takes force_positioning, `},
		{"subscribe", `{"user":"ann","channel":"news","override":{"presence":{"valu":true}}}`,
			`"subscribe has no field \"override.presence.valu\": override.presence takes value"`},
		{"subscribe", `{"user":"ann","channel":"news","override":{"force_recovery":{"value":true}}}`,
			`"override.force_recovery needs a namespace with the rule recovery"`},
		{"subscribe", `{"user":"ann","channel":"news","all_users":true}`, `"field \"all_users\" of subscribe`},
		{"subscribe", `{"user":"ann"}`, `"channel is missing"`},
		{"subscribe", `{"channel":"news"}`, `"user, client or session is missing"`},
		{"refresh", `{"expired":true}`, `"user, client or session is missing"`},
		{"refresh", `{"user":"ann","expire_at":-1}`, `"expire_at is not in the next hundred years"`},
		{"history", `{"channel":"news","since":{"offset":1,"epch":"x"}}`,
			`"history has no field \"since.epch\": since takes epoch, offset"`},
		{"disconnect", `{"user":"ann","disconnect":{"code":4000,"reason":"x","reconnect":true}}`,
			`"field \"disconnect.reconnect\" of disconnect is not served`},
		{"info", `{"verbose":true}`, `"info has no field \"verbose\": it takes none"`},
		{"channels", `{"pattern":"a[b"}`, `"the pattern \"a[b\" has [ without ]"`},
		{"publish", `{"channel":"news","b64data":"%%"}`, `"publish has a field that is not base64: `},
	} {
		got := ts.Call(tt.method, tt.body)
		if !strings.HasPrefix(got, `{"error":{"code":107,"message":`+tt.want) || !json.Valid([]byte(got)) {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.body, got, tt.want)
		}
	}
	if got := stream.Take(); got != "" {
		t.Errorf("a refused publication was delivered: %q", got)
	}
	// A field with an empty value is not refused, because generated clients send every field.
	for _, body := range []string{
		`{"channel":"news","data":1,"b64data":"","delta":false,"version":0,"version_epoch":null,"tags":{},` +
			`"idempotency_key":"","unknown":null}`,
		`{"Channel":"news","DATA":1}`,
	} {
		if got := ts.Call("publish", body); !strings.HasPrefix(got, `{"result":`) {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// The error for a method that only other servers of the protocol have names the method. Client
// libraries show that message.
func TestAPIRefusesMethodsByName(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	for _, method := range unservedMethods {
		if got := ts.Call(method, `{"method":"m"}`); !strings.HasPrefix(got,
			`{"error":{"code":104,"message":"the method \"`+method+`\" is not served`) {
			t.Errorf("%s: %s", method, got)
		}
	}
}

func TestAPISkipsHistory(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, Recovery: true}}})
	stream := ts.Events("channel=news")
	epoch := epochOf(ts, "news")
	stream.Take()
	ts.Call("publish", `{"channel":"news","data":1}`)
	if got := ts.Call("publish", `{"channel":"news","data":2,"skip_history":true}`); got != `{"result":{}}` {
		t.Errorf("a publication beside the history: %s", got)
	}
	ts.Call("broadcast", `{"channels":["news"],"data":3,"skip_history":true}`)
	ts.Call("publish", `{"channel":"news","data":4}`)
	want := strings.ReplaceAll("id: E:1\ndata: 1\n\ndata: 2\n\ndata: 3\n\nid: E:2\ndata: 4\n\n", "E", epoch)
	if got := stream.Take(); got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	if got := ts.Call("history", `{"channel":"news","limit":9}`); !strings.Contains(got,
		`[{"data":1,"offset":1},{"data":4,"offset":2}]`) {
		t.Errorf("history: %s", got)
	}
}

func epochOf(ts *servertest.Server, channel string) string {
	ts.T.Helper()
	h, err := ts.History(ts.T.Context(), channel, push.Query{})
	if err != nil {
		ts.T.Fatal(err)
	}
	return h.Top.Epoch
}

func TestAPITags(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5}},
		Limits: push.Limits{Publication: 100}})
	ts.Call("publish", `{"channel":"news","data":1,"tags":{"k":"v"}}`)
	if got := ts.Call("history", `{"channel":"news","limit":9}`); !strings.Contains(got,
		`[{"data":1,"offset":1,"tags":{"k":"v"}}]`) {
		t.Errorf("history: %s", got)
	}
	got := ts.Call("publish", `{"channel":"news","data":1,"tags":{"k":"`+strings.Repeat("v", 100)+`"}}`)
	if got != `{"error":{"code":106,"message":"data and tags are 102 bytes together; the limit is 100"}}` {
		t.Errorf("too large tags: %s", got)
	}
}

// A publication with an idempotency key is made once per channel in five minutes.
func TestAPIPublishesOnce(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{Name: "kept", HistorySize: 9}},
		Limits: push.Limits{IdempotencyKeys: 3}})
	stream := ts.Events("channel=news&channel=kept:1&named=1")
	stream.Take()
	publish := func(channel, key string) string {
		return ts.Call("publish", `{"channel":"`+channel+`","data":1,"idempotency_key":"`+key+`"}`)
	}
	first := publish("kept:1", "a")
	if again := publish("kept:1", "a"); again != first || !strings.Contains(first, `"offset":1`) {
		t.Errorf("the same key: first %s, then %s", first, again)
	}
	publish("news", "a")
	if got := strings.Count(stream.Take(), "data: 1"); got != 2 {
		t.Errorf("%d publications of one key in two channels, want one in each", got)
	}
	ts.Call("broadcast", `{"channels":["kept:1","news"],"data":1,"idempotency_key":"a"}`)
	if got := stream.Take(); got != "" {
		t.Errorf("a broadcast with the same key was delivered: %q", got)
	}
	publish("news", "b") // the third key; the next one makes the oldest forgotten
	publish("news", "c")
	publish("kept:1", "a")
	if got := strings.Count(stream.Take(), "data: 1"); got != 3 {
		t.Errorf("%d publications, want those of two new keys and one of a forgotten key", got)
	}
	ts.Clock.Advance(receipts.Window + time.Second)
	stream.Take()
	publish("news", "c")
	if got := strings.Count(stream.Take(), "data: 1"); got != 1 {
		t.Errorf("%d publications after the key's time", got)
	}
	if got := ts.Call("publish", `{"channel":"","data":1,"idempotency_key":"d"}`); !strings.Contains(got,
		"channel is missing") {
		t.Error(got)
	}
}

func TestAPIDisconnectKeepsTheWhitelist(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	token := tokentest.Tokens(t, ts.Clock.Now())["good"]
	ts.Events("channel=a&token=" + token)
	ts.Events("channel=a&token=" + token)
	all := ts.Hub.Sessions()
	got := ts.Call("disconnect", `{"user":"`+all[0].User()+`","whitelist":["`+all[0].ID()+`"]}`)
	if got != `{"result":{"num_clients":1}}` || all[0].IsClosing() || !all[1].IsClosing() {
		t.Errorf("%s; the one on the whitelist is closing: %v, the other: %v", got, all[0].IsClosing(),
			all[1].IsClosing())
	}
}

// What a publication may have is Limits.Publication, however its request is written: in base64,
// with spaces, alone or in a batch.
func TestPublicationLimitOfEveryForm(t *testing.T) {
	ts := servertest.New(t, push.Config{Limits: push.Limits{Publication: 200_000}})
	stream := ts.Events("channel=a")
	indented := func(n int) (text string) { // n bytes without its spaces
		text = "[\n" + strings.Repeat("    1,\n", (n-3)/2) + "    1\n]"
		return text + strings.Repeat(" ", 100_000)
	}
	for name, data := range map[string]func(n int) string{
		"data":     func(n int) string { return `"data":"` + strings.Repeat("x", n-2) + `"` },
		"indented": func(n int) string { return `"data":` + indented(n) },
		"in base64": func(n int) string {
			return `"b64data":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), n)) + `"`
		},
		"with tags": func(n int) string { return `"tags":{"ab":"cd"},"data":` + indented(n-4) },
	} {
		for n, want := range map[int]string{199_999: `{}`, 200_001: `"code":106,`} {
			request := `{"channel":"a",` + data(n) + `}`
			for path, body := range map[string]string{
				"/api/publish": request, "/api": `{"method":"publish","params":` + request + `}`,
				"/api/batch":     `{"commands":[{"publish":` + request + `}]}`,
				"/api/broadcast": `{"channels":["a"],` + data(n) + `}`,
			} {
				stream.Take()
				w := ts.Do("POST", path, body)
				got := len(strings.TrimSpace(strings.ReplaceAll(stream.Take(), "data: ", "")))
				if w.Code != 200 || !strings.Contains(w.Body.String(), want) || (got > 190_000) != (want == "{}") {
					t.Errorf("%s of %d bytes by %s: %d %s, a subscriber got %d bytes", name, n, path, w.Code, w.Body,
						got)
				}
			}
		}
	}
}

func TestPublishAPI(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", Limits: push.Limits{Publication: 1000}})
	stream := ts.Events("channel=news")
	stream.Take()
	good := `{"channel":"news","data":{"a": "é\u2028"}}`
	for _, tt := range []struct {
		name, method, body, key string
		status                  int
		answer                  string
	}{
		{"good", "POST", good, "key", 200, `{"result":{}}`},
		{"without a key", "POST", good, "", 401,
			`{"error":{"code":101,"message":"the key is missing or wrong: send it in the header X-API-Key, or as ` +
				`Authorization: apikey KEY"}}`},
		{"a wrong key", "POST", good, "kez", 401, `{"error":{"code":101,`},
		{"a longer key", "POST", good, "keyy", 401, `{"error":{"code":101,`},
		{"GET", "GET", "", "key", 405, `{"error":{"code":104,"message":"use POST"}}`},
		{"not JSON", "POST", "hello", "key", 400,
			`{"error":{"code":107,"message":"the body is not a JSON object that publish accepts`},
		{"empty", "POST", "", "key", 400, `{"error":{"code":107,`},
		{"half", "POST", good[:20], "key", 400, `{"error":{"code":107,`},
		{"more behind it", "POST", good + "x", "key", 400, `{"error":{"code":107,`},
		{"an array", "POST", "[]", "key", 400, `{"error":{"code":107,`},
		{"without a channel", "POST", `{"data":1}`, "key", 200,
			`{"error":{"code":107,"message":"channel is missing"}}`},
		{"without data", "POST", `{"channel":"news"}`, "key", 200,
			`{"error":{"code":107,"message":"data is missing"}}`},
		{"a number for a channel", "POST", `{"channel":1,"data":1}`, "key", 400, `{"error":{"code":107,`},
		{"a bad channel", "POST", `{"channel":"a\u0000","data":1}`, "key", 200,
			`{"error":{"code":107,"message":"the channel is not a name`},
		{"data that is not UTF-8", "POST", "{\"channel\":\"news\",\"data\":\"\xff\"}", "key", 200,
			`{"error":{"code":107,"message":"data is not UTF-8`},
		{"a surrogate in UTF-8", "POST", "{\"channel\":\"news\",\"data\":\"\xed\xa0\x80\"}", "key", 200,
			`{"error":{"code":107,"message":"data is not UTF-8`},
		{"a key that is not UTF-8", "POST", "{\"channel\":\"news\",\"data\":{\"\xc0\x80\":1}}", "key", 200,
			`{"error":{"code":107,"message":"data is not UTF-8`},
		{"a channel that is not UTF-8", "POST", "{\"channel\":\"news\xff\",\"data\":1}", "key", 200,
			`{"error":{"code":107,"message":"the channel is not a name`},
		{"half a surrogate for a channel", "POST", `{"channel":"\ud800","data":1}`, "key", 200,
			`{"error":{"code":107,"message":"the channel is not a name`},
		{"too much data", "POST", `{"channel":"news","data":"` + strings.Repeat("x", 1000) + `"}`, "key", 200,
			`{"error":{"code":106,"message":"data is 1002 bytes; the limit is 1000"}}`},
		{"far too much", "POST", strings.Repeat("x", 100000), "key", 413, `{"error":{"code":106,`},
	} {
		w := ts.Do(tt.method, "/api/publish", tt.body, "X-API-Key", tt.key)
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.answer) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.answer)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: Content-Type %q", tt.name, got)
		}
	}
	if got := stream.Take(); got != `data: {"a":"é\u2028"}`+"\n\n" {
		t.Errorf("subscriber received %q", got)
	}
	if got := ts.Do("GET", "/api/frobnicate", "").Code; got != 404 {
		t.Errorf("an unknown method: %d", got)
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
