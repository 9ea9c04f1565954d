package api_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// A replayed is a request of Centrifugo's documentation, with the answer of Centrifugo 6.9.1 to the
// same requests in the same order. ANN and BOB stand for the ids of two clients.
type replayed struct {
	method, body string
	theirs       string // its answer; an answer that is not JSON is the text of its status
	told         string // what the clients get, a line for each message; with ours, what they get here
	ours         string // part of this server's answer; "": all of it is alike
}

// replay has one history in each channel without a namespace, with presence, joins and leaves and
// recovery. The namespace bare has no rules.
var replay = []replayed{
	{"publish", `{"channel":"chat","data":{"text":"hello"}}`, `{"result":{"offset":1,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"chat","data":1,"tags":{"a":"b"}}`, `{"result":{"offset":2,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"chat","b64data":"eyJ4IjoxfQ=="}`, `{"result":{"offset":3,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"chat","b64data":"%%%"}`, badRequestThere, "", ""},
	{"publish", `{"channel":"other","data":1,"b64data":"Mg=="}`, `{"result":{"offset":1,"epoch":"E"}}`, "",
		"data and b64data are both given"},
	{"publish", `{"channel":"chat","data":1,"skip_history":true}`, `{"result":{}}`, "", ""},
	{"publish", `{"channel":"chat","data":4,"idempotency_key":"k"}`, `{"result":{"offset":4,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"chat","data":5,"idempotency_key":"k"}`, `{"result":{"offset":4,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"chat","data":"","delta":true}`, `{"result":{"offset":5,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"versions","data":1,"version":5,"version_epoch":"x"}`,
		`{"result":{"offset":1,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"versions","data":2,"version":4,"version_epoch":"x"}`,
		`{"result":{"offset":1,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"versions","data":3,"version":1,"version_epoch":"y"}`,
		`{"result":{"offset":2,"epoch":"E"}}`, "", ""},
	{"publish", `{"channel":"bare:1","data":1,"version":1}`, `{"result":{}}`, "",
		"version needs a channel whose namespace has a history"},
	{"publish", `{"channel":"bare:1","data":null}`, `{"result":{}}`, "", ""},
	{"publish", `{"channel":"none:1","data":1}`, unknownThere, "", `{"offset":1,"epoch":`},
	{"publish", `{"channel":"chat"}`, badRequestThere, "", ""},
	{"publish", `{"data":1}`, badRequestThere, "", ""},
	{"publish", `{"channel":5,"data":1}`, "Bad Request", "", ""},
	{"publish", `{"channel":"chat","data":1,"tags":{"a":1}}`, "Bad Request", "", ""},
	{"publish", ``, "Bad Request", "", ""},
	{"publish", `[]`, "Bad Request", "", ""},
	{"publish", `null`, badRequestThere, "", `{"error":{"code":107,`},
	{"publish", `{"channel":"other","data":1,"unknown":1}`, `{"result":{"offset":2,"epoch":"E"}}`, "",
		`publish has no field \"unknown\"`},
	{"broadcast", `{"channels":["a","bare:1",""],"data":{"t":1}}`, `{"result":{"responses":[` +
		`{"result":{"offset":1,"epoch":"E"}},{"result":{}},` + badRequestThere + `]}}`, "", ""},
	{"broadcast", `{"channels":["a"],"data":1,"idempotency_key":"b","tags":{"x":"y"},"b64data":""}`,
		`{"result":{"responses":[{"result":{"offset":2,"epoch":"E"}}]}}`, "", ""},
	{"broadcast", `{"channels":[],"data":1}`, badRequestThere, "", ""},
	{"broadcast", `{"channels":["a"]}`, `{"result":{"responses":[` + badRequestThere + `]}}`, "", "data is missing"},
	{"history", `{"channel":"chat","limit":2}`, `{"result":{"publications":[{"data":{"text":"hello"},"offset":1},` +
		`{"data":1,"tags":{"a":"b"},"offset":2}],"epoch":"E","offset":5}}`, "", ""},
	{"history", `{"channel":"chat"}`, `{"result":{"publications":[],"epoch":"E","offset":5}}`, "", ""},
	{"history", `{"channel":"chat","limit":1,"reverse":true}`,
		`{"result":{"publications":[{"data":"","offset":5}],"epoch":"E","offset":5}}`, "", ""},
	{"history", `{"channel":"chat","limit":1,"since":{"offset":2,"epoch":""}}`,
		`{"result":{"publications":[{"data":{"x":1},"offset":3}],"epoch":"E","offset":5}}`, "", ""},
	{"history", `{"channel":"chat","limit":1,"reverse":true,"since":{"offset":2,"epoch":""}}`,
		`{"result":{"publications":[{"data":{"text":"hello"},"offset":1}],"epoch":"E","offset":5}}`, "", ""},
	{"history", `{"channel":"chat","limit":1,"since":{"offset":2,"epoch":"other"}}`,
		`{"error":{"code":112,"message":"unrecoverable position"}}`, "", ""},
	{"history", `{"channel":"new","limit":3}`, `{"result":{"publications":[],"epoch":"E","offset":0}}`, "", ""},
	{"history", `{"channel":"bare:1"}`, unavailableThere, "", ""},
	{"history", `{"channel":""}`, badRequestThere, "", ""},
	{"history_remove", `{"channel":"versions"}`, `{"result":{}}`, "", ""},
	{"history_remove", `{"channel":"bare:1"}`, unavailableThere, "", ""},
	{"history_remove", `{}`, badRequestThere, "", ""},
	{"history", `{"channel":"versions","limit":9}`, `{"result":{"publications":[],"epoch":"E","offset":2}}`, "", ""},

	{"presence", `{"channel":"chat"}`, `{"result":{"presence":{}}}`, "", ""},
	{"presence", `{"channel":"bare:1"}`, unavailableThere, "", ""},
	{"presence", `{}`, badRequestThere, "", ""},
	{"subscribe", `{"user":"ann","channel":"chat"}`, `{"result":{}}`, `ANN {"push":{"channel":"chat","subscribe":` +
		`{"recoverable":true,"epoch":"E","offset":5,"positioned":true}}}`, ""},
	{"presence", `{"channel":"chat"}`, `{"result":{"presence":{"ANN":{"user":"ann","client":"ANN",` +
		`"conn_info":{"n":1}}}}}`, "", ""},
	{"presence_stats", `{"channel":"chat"}`, `{"result":{"num_clients":1,"num_users":1}}`, "", ""},
	{"presence_stats", `{"channel":"bare:1"}`, unavailableThere, "", ""},
	{"subscribe", `{"user":"bob","client":"BOB","channel":"c1","info":{"i":1},"data":{"d":1}}`, `{"result":{}}`,
		`BOB {"push":{"channel":"c1","subscribe":{"recoverable":true,"epoch":"E","positioned":true,"data":{"d":1}}}}`,
		""},
	{"presence", `{"channel":"c1"}`, `{"result":{"presence":{"BOB":{"user":"bob","client":"BOB",` +
		`"chan_info":{"i":1}}}}}`, "", ""},
	{"subscribe", `{"user":"bob","channel":"bare:2","b64info":"eyJpIjoxfQ==","b64data":"eyJkIjoxfQ=="}`,
		`{"result":{}}`, `BOB {"push":{"channel":"bare:2","subscribe":{"data":{"d":1}}}}`, ""},
	{"subscribe", `{"user":"bob","channel":"bare:3","expire_at":1800001000}`, `{"result":{}}`,
		`BOB {"push":{"channel":"bare:3","subscribe":{}}}`, ""},
	{"subscribe", `{"user":"bob","channel":"c4","expire_at":5}`,
		`{"error":{"code":100,"message":"internal server error"}}`, "", "expire_at is not in the next hundred years"},
	{"subscribe", `{"user":"bob","channel":"c5","override":{"presence":{"value":false}}}`, `{"result":{}}`,
		`BOB {"push":{"channel":"c5","subscribe":{"recoverable":true,"epoch":"E","positioned":true}}}`, ""},
	{"presence", `{"channel":"c5"}`, `{"result":{"presence":{}}}`, "", ""},
	{"subscribe", `{"user":"bob","channel":"c6","override":{"force_recovery":{"value":false},` +
		`"force_positioning":{"value":false}}}`, `{"result":{}}`, `BOB {"push":{"channel":"c6","subscribe":{}}}`, ""},
	{"subscribe", `{"user":"bob","channel":"bare:7","override":{"join_leave":{"value":true},` +
		`"force_push_join_leave":{"value":true}}}`, `{"result":{}}`,
		`BOB {"push":{"channel":"bare:7","subscribe":{}}}` + "\n" +
			`BOB {"push":{"channel":"bare:7","join":{"info":{"user":"bob","client":"BOB"}}}}`, ""},
	{"subscribe", `{"user":"bob","channel":"c8","override":{"force_push_join_leave":{"value":true}}}`,
		`{"result":{}}`,
		`BOB {"push":{"channel":"c8","subscribe":{"recoverable":true,"epoch":"E","positioned":true}}}` + "\n" +
			`BOB {"push":{"channel":"c8","join":{"info":{"user":"bob","client":"BOB"}}}}`, ""},
	{"subscribe", `{"user":"ann","channel":"c8","override":{"join_leave":{"value":false}}}`, `{"result":{}}`,
		`ANN {"push":{"channel":"c8","subscribe":{"recoverable":true,"epoch":"E","positioned":true}}}`, ""},
	{"subscribe", `{"user":"bob","channel":"bare:9","session":"other"}`, `{"result":{}}`, "", ""},
	{"subscribe", `{"user":"nobody","channel":"bare:9"}`, `{"result":{}}`, "", ""},
	{"subscribe", `{"user":"bob"}`, badRequestThere, "", ""},
	{"subscribe", `{"channel":"bare:9"}`, `{"result":{}}`, "", "user, client or session is missing"},

	{"channels", `{"pattern":"c*"}`, `{"result":{"channels":{"c1":{"num_clients":1},"c5":{"num_clients":1},` +
		`"c6":{"num_clients":1},"c8":{"num_clients":2},"chat":{"num_clients":1}}}}`, "", ""},
	{"channels", `{"pattern":"c?"}`, `{"result":{"channels":{"c1":{"num_clients":1},"c5":{"num_clients":1},` +
		`"c6":{"num_clients":1},"c8":{"num_clients":2}}}}`, "", ""},
	{"channels", `{"pattern":"{c[6-9],bare:2}"}`, `{"result":{"channels":{"bare:2":{"num_clients":1},` +
		`"c6":{"num_clients":1},"c8":{"num_clients":2}}}}`, "", ""},
	{"channels", `{"pattern":"["}`, `{"error":{"code":100,"message":"internal server error"}}`, "",
		"has [ without ]"},
	{"info", `{}`, `{"result":{"nodes":[{"uid":"U","name":"myriad","version":"v","num_clients":2,"num_users":2,` +
		`"num_channels":8,"uptime":0,"num_subs":9}]}}`, "", ""},
	{"info", ``, "Bad Request", "", ""},
	{"unsubscribe", `{"user":"bob","channel":"c1"}`, `{"result":{}}`,
		`BOB {"push":{"channel":"c1","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`, ""},
	{"unsubscribe", `{"user":"ann","channel":"chat","client":"BOB"}`, `{"result":{}}`, "", ""},
	{"unsubscribe", `{"user":"ann","channel":"chat","session":"other"}`, `{"result":{}}`, "", ""},
	{"unsubscribe", `{"user":"ann"}`, `{"result":{}}`, "", "channel is missing"},

	{"refresh", `{"user":"bob","expire_at":1800001000,"info":{"new":1}}`, `{"result":{}}`,
		`BOB {"push":{"refresh":{"expires":true,"ttl":1000}}}`, ""},
	{"subscribe", `{"user":"bob","channel":"c9"}`, `{"result":{}}`, `BOB {"push":{"channel":"c9","subscribe":` +
		`{"recoverable":true,"epoch":"E","positioned":true}}}`, ""},
	{"presence", `{"channel":"c9"}`, `{"result":{"presence":{"BOB":{"user":"bob","client":"BOB",` +
		`"conn_info":{"new":1}}}}}`, "", ""},
	{"refresh", `{"user":"bob"}`, `{"result":{}}`, `BOB {"push":{"refresh":{}}}`, ""},
	{"refresh", `{"user":"bob","session":"other","expired":true}`, `{"result":{}}`, "", ""},
	{"refresh", `{"user":"bob","client":"ANN","expired":true}`, `{"result":{}}`, "", ""},
	{"refresh", `{"user":"bob","expired":true,"expire_at":1900000000}`, `{"result":{}}`,
		"BOB closed 3005 connection expired", ""},
	{"disconnect", `{"user":"ann","whitelist":["ANN"]}`, `{"result":{}}`, "", ""},
	{"disconnect", `{"user":"ann","session":"other"}`, `{"result":{}}`, "", ""},
	{"disconnect", `{"user":"nobody","disconnect":{"code":1,"reason":"bye"}}`, `{"result":{}}`, "",
		"disconnect needs a code of 3000 to 4999"},
	{"disconnect", `{"user":"ann","disconnect":{"code":4001,"reason":"bye"}}`, `{"result":{}}`, "ANN closed 4001 bye",
		""},
	{"disconnect", `{}`, `{"result":{}}`, "", "user, client or session is missing"},

	{"rpc", `{"method":"m","params":{}}`, `{"error":{"code":104,"message":"not found"}}`, "", ""},
	{"rpc", `{}`, badRequestThere, "", ""},
	{"rpc", `{"method":""}`, badRequestThere, "", ""},
	{"map_publish", `{"channel":"chat","key":"k","data":1}`, badRequestThere, "",
		`the method \"map_publish\" is not`},
	{"batch", `{"commands":[{"publish":{"channel":"x","data":1}},{"presence":{"channel":"x"}},` +
		`{"publish":{"data":1}},{"rpc":{"method":"m"}},{"rpc":{}},{},{"nosuch":{}},null]}`,
		`{"replies":[{"publish":{"offset":1,"epoch":"E"}},{"presence":{"presence":{}}},` + badRequestThere + `,` +
			notFoundThere + `,` + badRequestThere + `,` + notFoundThere + `,` + notFoundThere + `,` +
			badRequestThere + `]}`, "", ""},
	{"batch", `{"parallel":true,"commands":[{"history_remove":{"channel":"x"}},{"channels":{"pattern":"none"}}]}`,
		`{"replies":[{"history_remove":{}},{"channels":{"channels":{}}}]}`, "", ""},
	{"batch", `{"commands":[]}`, `{}`, "", `{"replies":[]}`},
	{"batch", `{"commands":5}`, "Bad Request", "", ""},
	{"batch", ``, "Bad Request", "", ""},
	{"nosuch", `{}`, "Not Found", "", ""},
	{"block_user", `{"user":"x"}`, "Not Found", "", ""},
}

const (
	badRequestThere  = `{"error":{"code":107,"message":"bad request"}}`
	notFoundThere    = `{"error":{"code":104,"message":"not found"}}`
	unavailableThere = `{"error":{"code":108,"message":"not available"}}`
	unknownThere     = `{"error":{"code":102,"message":"unknown channel"}}`
)

// A replayServer has two clients, ANN and BOB.
type replayServer struct {
	*servertest.Server
	clients map[string]*servertest.Transport
	shown   *strings.Replacer // puts the names of clients and server in place of their ids
}

func newReplayServer(t *testing.T) *replayServer {
	t.Helper()
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Version: "v", Namespaces: []push.Namespace{
		{HistorySize: 10, Recovery: true, Presence: true, JoinLeave: true}, {Name: "bare"},
	}})
	clients := map[string]*servertest.Transport{
		"ANN": ts.Client(jwt.MapClaims{"sub": "ann", "info": map[string]int{"n": 1}}),
		"BOB": ts.Client(jwt.MapClaims{"sub": "bob"}),
	}
	ids := []string{ts.Hub.NodeID(), "U"}
	for name, c := range clients {
		ids = append(ids, c.Session.ID(), name)
	}
	return &replayServer{ts, clients, strings.NewReplacer(ids...)}
}

// body returns the body of the request, with the ids of this server's clients.
func (rs *replayServer) body(r replayed) string {
	body := r.body
	for name, c := range rs.clients {
		body = strings.ReplaceAll(body, `"`+name+`"`, `"`+c.Session.ID()+`"`)
	}
	return body
}

// told returns what the clients have got since the last call, a line for each message.
func (rs *replayServer) told() string {
	var told []string
	for _, name := range []string{"ANN", "BOB"} {
		for _, message := range rs.clients[name].Take() {
			told = append(told, name+" "+epochs.ReplaceAllString(rs.shown.Replace(message), `"epoch":"E"`))
		}
		if end := endOf(rs.clients[name]); end != "" {
			told = append(told, name+" closed "+end)
		}
	}
	return strings.Join(told, "\n")
}

// The API answers the requests of Centrifugo's documentation as Centrifugo does: status, results
// and codes of errors are the same. Two things differ: the texts of errors, and num_clients, which
// only this server returns.
func TestAPIReplaysCentrifugo(t *testing.T) {
	rs := newReplayServer(t)
	for _, r := range replay {
		w := rs.Do("POST", "/api/"+r.method, rs.body(r))
		got := rs.shown.Replace(w.Body.String())
		switch {
		case r.ours != "" && !strings.Contains(got, r.ours):
			t.Errorf("%s %s: %s, want %s", r.method, r.body, got, r.ours)
		case r.ours == "" && !strings.HasPrefix(r.theirs, "{") && r.theirs != statusTexts[w.Code]:
			t.Errorf("%s %s: %d %s, want %s", r.method, r.body, w.Code, got, r.theirs)
		case r.ours == "" && strings.HasPrefix(r.theirs, "{") && (w.Code != 200 || alike(t, got) != alike(t,
			r.theirs)):
			t.Errorf("%s %s: %d %s, want %s", r.method, r.body, w.Code, got, r.theirs)
		}
		if got := rs.told(); got != r.told {
			t.Errorf("%s %s: the clients get\n%s\nwant\n%s", r.method, r.body, got, r.told)
		}
	}
}

var (
	statusTexts = map[int]string{400: "Bad Request", 404: "Not Found"}
	epochs      = regexp.MustCompile(`"epoch":"[^"]+"`)
	countedOnly = regexp.MustCompile(`^{"result":{"num_clients":\d+}}$`)
	texts       = regexp.MustCompile(`"message":"(\\.|[^"\\])+"`)
)

// alike returns an answer without what differs between two servers that are alike.
func alike(t *testing.T, answer string) string {
	t.Helper()
	answer = epochs.ReplaceAllString(answer, `"epoch":"E"`)
	answer = texts.ReplaceAllString(answer, `"message":"M"`)
	if countedOnly.MatchString(answer) {
		answer = `{"result":{}}`
	}
	var value any
	if err := json.Unmarshal([]byte(answer), &value); err != nil {
		t.Errorf("%s: %v", answer, err)
	}
	sorted, _ := json.Marshal(value)
	return string(sorted)
}

// endOf hangs up when the server has closed the connection, and returns how.
func endOf(f *servertest.Transport) string {
	end, hung := f.End()
	if end == nil || hung {
		return ""
	}
	f.Leave()
	return fmt.Sprintf("%d %s", end.Code, end.Reason)
}
