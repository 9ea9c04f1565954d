package centrifuge

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, line string
		method     Method
		id         uint32
		check      func(c Command) bool
	}{
		{"connect", `{"id":1,"connect":{"token":"abc","name":"js","version":"5"}}`, Connect, 1, func(c Command) bool {
			return reflect.DeepEqual(*c.Connect, ConnectRequest{Token: "abc", Name: "js", Version: "5"})
		}},
		{"connect with fields that are ignored",
			`{"id":1,"connect":{"data":{"a":1},"headers":{"x":"y"},"subs":{"c":{}},"flag":1}}`, Connect, 1, nil},
		{"subscribe", `{"id":2,"subscribe":{"channel":"news","recover":true,"offset":3,"epoch":"e"}}`, Subscribe, 2,
			func(c Command) bool {
				want := SubscribeRequest{Channel: "news", Recover: true, Offset: 3, Epoch: "e"}
				return reflect.DeepEqual(*c.Subscribe, want)
			}},
		{"unsubscribe", `{"id":3,"unsubscribe":{"channel":"news"}}`, Unsubscribe, 3, func(c Command) bool {
			return c.Unsubscribe.Channel == "news"
		}},
		{"publish", `{"id":4,"publish":{"channel":"news","data":{"a": [1, null]}}}`, Publish, 4, func(c Command) bool {
			return c.Publish.Channel == "news" && string(c.Publish.Data) == `{"a": [1, null]}`
		}},
		{"publish null", `{"id":4,"publish":{"channel":"news","data":null}}`, Publish, 4, func(c Command) bool {
			return string(c.Publish.Data) == "null"
		}},
		{"publish without data", `{"id":4,"publish":{"channel":"news"}}`, Publish, 4,
			func(c Command) bool { return c.Publish.Data == nil }},
		{"presence", `{"id":5,"presence":{"channel":"news"}}`, Presence, 5, nil},
		{"presence_stats", `{"id":6,"presence_stats":{"channel":"news"}}`, PresenceStats, 6, nil},
		{"history", `{"id":7,"history":{"channel":"news","limit":5,"since":{"offset":18446744073709551615,` +
			`"epoch":"e"},"reverse":true}}`, History, 7, func(c Command) bool {
			h := c.History
			return h.Channel == "news" && h.Limit == 5 && *h.Since == Position{math.MaxUint64, "e"} && h.Reverse
		}},
		{"ping", `{"id":8,"ping":{}}`, Ping, 8, nil},
		{"send", `{"send":{"data":{}}}`, Send, 0, nil},
		{"rpc", `{"id":9,"rpc":{"method":"m","data":{}}}`, RPC, 9, nil},
		{"refresh", `{"id":10,"refresh":{"token":"t"}}`, Refresh, 10,
			func(c Command) bool { return c.Refresh.Token == "t" }},
		{"sub_refresh", `{"id":11,"sub_refresh":{"channel":"c","token":"t"}}`, SubRefresh, 11, nil},
		{"pong", `{}`, None, 0, func(c Command) bool { return c.IsPong() }},
		{"unknown method", `{"id":12,"frobnicate":{}}`, None, 12, func(c Command) bool { return !c.IsPong() }},
		{"the first of two", `{"id":13,"publish":{"channel":"a"},"subscribe":{"channel":"b"}}`, Subscribe, 13, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, c, err := JSON.Parse([]byte(tt.line))
			if err != nil || n != len(tt.line) {
				t.Fatalf("Parse = %d, %v; want %d, nil", n, err, len(tt.line))
			}
			if c.Method() != tt.method || c.ID != tt.id {
				t.Errorf("got %v with id %d, want %v with %d", c.Method(), c.ID, tt.method, tt.id)
			}
			if tt.check != nil && !tt.check(c) {
				t.Errorf("wrong command %+v", c)
			}
		})
	}
}

func TestParseSeveral(t *testing.T) {
	frame := []byte("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}\r\n{}\n")
	var got []string
	for len(frame) > 0 {
		n, c, err := JSON.Parse(frame)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Method().String())
		frame = frame[n:]
	}
	if s := strings.Join(got, " "); s != "connect subscribe none" {
		t.Errorf("commands %q", s)
	}
}

func TestParseErrors(t *testing.T) {
	for _, line := range []string{"", "\n", "\n{}", "{", "[]", "1", `"x"`, "{} {}", `{"id":-1}`, `{"id":"1"}`,
		`{"id":4294967296}`,
		`{"id":1,"connect":[]}`, `{"id":1,"subscribe":{"channel":5}}`, strings.Repeat("[", 20000)} {
		n, _, err := JSON.Parse([]byte(line))
		if err == nil || n != 0 {
			t.Errorf("Parse(%.40q) = %d, %v; want an error", line, n, err)
		}
		if (line == "" || line[0] == '\n') != errors.Is(err, ErrEmpty) {
			t.Errorf("Parse(%.40q): %v", line, err)
		}
	}
}

func reply(r Reply) []byte { return JSON.AppendReply(nil, &r) }

func push(p Push) []byte { return reply(Reply{Push: &p}) }

// The expected bytes are what a centrifuge server sends, member for member.
func TestAppendReplies(t *testing.T) {
	testAppend(t, []appendTest{
		{"connect", reply(Reply{ID: 1, Connect: &ConnectResult{Client: "c-1", Version: "v1", Ping: 25, Pong: true}}),
			`{"id":1,"connect":{"client":"c-1","version":"v1","ping":25,"pong":true}}`},
		{"connect that expires", reply(Reply{ID: 1, Connect: &ConnectResult{Client: "c", Expires: true, TTL: 60}}),
			`{"id":1,"connect":{"client":"c","expires":true,"ttl":60}}`},
		{"connect with all", reply(Reply{ID: 1, Connect: &ConnectResult{Client: "c", Data: []byte("1"), Session: "s",
			Node: "n", Subs: []ServerSubscription{{"a", SubscribeResult{}}, {"b", SubscribeResult{Delta: true}}}}}),
			`{"id":1,"connect":{"client":"c","data":1,"subs":{"a":{},"b":{"delta":true}},"session":"s","node":"n"}}`},
		{"refresh", reply(Reply{ID: 3, Refresh: &RefreshResult{Client: "c", Expires: true, TTL: 9}}),
			`{"id":3,"refresh":{"client":"c","expires":true,"ttl":9}}`},
		{"subscribe", reply(Reply{ID: 2, Subscribe: &SubscribeResult{}}), `{"id":2,"subscribe":{}}`},
		{"subscribe, recoverable",
			reply(Reply{ID: 2, Subscribe: &SubscribeResult{Recoverable: true, Position: Position{0, "e"}}}),
			`{"id":2,"subscribe":{"recoverable":true,"epoch":"e","positioned":true}}`},
		{"subscribe, recovered", reply(Reply{ID: 2, Subscribe: &SubscribeResult{Expires: true, TTL: 5,
			Recoverable: true, Position: Position{2, "e"}, WasRecovering: true, Recovered: true,
			Publications: []Publication{{Data: []byte("1"), Offset: 1},
				{Data: []byte("{}"), Client: "c", User: "u", Offset: 2}}}}),
			`{"id":2,"subscribe":{"expires":true,"ttl":5,"recoverable":true,"epoch":"e","publications":[{"data":1,` +
				`"offset":1},{"data":{},"info":{"user":"u","client":"c"},"offset":2}],"recovered":true,"offset":2,` +
				`"positioned":true,"was_recovering":true}}`},
		{"sub_refresh", reply(Reply{ID: 3, SubRefresh: &RefreshResult{Expires: true, TTL: 9}}),
			`{"id":3,"sub_refresh":{"expires":true,"ttl":9}}`},
		{"history", reply(Reply{ID: 3, History: &HistoryResult{Position: Position{7, "e"}}}),
			`{"id":3,"history":{"publications":[],"epoch":"e","offset":7}}`},
		{"presence", reply(Reply{ID: 3, Presence: &PresenceResult{[]ClientInfo{{Client: "c", User: "u"},
			{Client: "d", ConnInfo: []byte(`{"a":1}`), ChanInfo: []byte("2")}}}}),
			`{"id":3,"presence":{"presence":{"c":{"user":"u","client":"c"},"d":{"user":"","client":"d",` +
				`"conn_info":{"a":1},"chan_info":2}}}}`},
		{"presence_stats", reply(Reply{ID: 3, Stats: &PresenceStatsResult{2, 1}}),
			`{"id":3,"presence_stats":{"num_clients":2,"num_users":1}}`},
	})
}

func TestAppendPushes(t *testing.T) {
	testAppend(t, []appendTest{
		{"rpc", reply(Reply{ID: 3, RPC: &RPCResult{[]byte("[1]")}}), `{"id":3,"rpc":{"data":[1]}}`},
		{"rpc without data", reply(Reply{ID: 3, RPC: &RPCResult{}}), `{"id":3,"rpc":{}}`},
		{"join", push(Push{Channel: "news", Join: &ClientInfo{Client: "c", User: "u"}}),
			`{"push":{"channel":"news","join":{"info":{"user":"u","client":"c"}}}}`},
		{"leave", push(Push{Channel: "news", Leave: &ClientInfo{Client: "c", User: "u"}}),
			`{"push":{"channel":"news","leave":{"info":{"user":"u","client":"c"}}}}`},
		{"publication with offset",
			push(Push{Channel: "news", Publication: &Publication{Data: []byte("1"), Offset: math.MaxUint64}}),
			`{"push":{"channel":"news","pub":{"data":1,"offset":18446744073709551615}}}`},
		{"delta", push(Push{Channel: "news", Publication: &Publication{Data: []byte(`"1"`), Delta: true}}),
			`{"push":{"channel":"news","pub":{"data":"1","delta":true}}}`},
		{"unsubscribe", reply(Reply{ID: 2, Method: Unsubscribe}), `{"id":2,"unsubscribe":{}}`},
		{"publish", reply(Reply{ID: 4294967295, Method: Publish}), `{"id":4294967295,"publish":{}}`},
		{"error", reply(Reply{ID: 5, Error: &Error{103, "permission denied", false}}),
			`{"id":5,"error":{"code":103,"message":"permission denied"}}`},
		{"temporary error", reply(Reply{ID: 5, Error: &Error{100, "internal server error", true}}),
			`{"id":5,"error":{"code":100,"message":"internal server error","temporary":true}}`},
		{"publication", push(Push{Channel: "news", Publication: &Publication{Data: []byte(`{"a":1}`)}}),
			`{"push":{"channel":"news","pub":{"data":{"a":1}}}}`},
		{"publication of a client",
			push(Push{Channel: `n"ews`, Publication: &Publication{Data: []byte(`1`), Client: "c", User: "u"}}),
			`{"push":{"channel":"n\"ews","pub":{"data":1,"info":{"user":"u","client":"c"}}}}`},
		{"unsubscribe push", push(Push{Channel: "news", Unsubscribe: &Unsubscribed{2000, "server unsubscribe"}}),
			`{"push":{"channel":"news","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`},
		{"subscribe push", push(Push{Channel: "news", Subscribe: &SubscribeResult{}}),
			`{"push":{"channel":"news","subscribe":{}}}`},
		{"message", push(Push{Message: []byte("[]")}), `{"push":{"message":{"data":[]}}}`},
		{"disconnect push", push(Push{Disconnect: &Disconnect{3503, "force disconnect"}}),
			`{"push":{"disconnect":{"code":3503,"reason":"force disconnect"}}}`},
		{"bare push", JSON.AppendPush(nil, &Push{Disconnect: &Disconnect{3008, "slow"}}),
			`{"disconnect":{"code":3008,"reason":"slow","reconnect":true}}`},
		{"ping", []byte(JSON.Ping()), string(reply(Reply{}))},
	})
}

type appendTest struct {
	name string
	got  []byte
	want string
}

func testAppend(t *testing.T, tests []appendTest) {
	t.Helper()
	for _, tt := range tests {
		if string(tt.got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, tt.got, tt.want)
		}
		if !json.Valid(tt.got) {
			t.Errorf("%s: not JSON: %s", tt.name, tt.got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"connect\":{\"token\":\"t\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}"))
	f.Add([]byte("{}\n{}\n"))
	f.Add([]byte("{\"id\":1,\"publish\":{\"channel\":\"a\",\"data\":[1,\"\\n\"]}}"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		rest := frame
		for len(rest) > 0 {
			n, c, err := JSON.Parse(rest)
			if err != nil {
				if n != 0 {
					t.Fatalf("an error consumed %d bytes", n)
				}
				return
			}
			if n <= 0 || n > len(rest) {
				t.Fatalf("consumed %d of %d bytes", n, len(rest))
			}
			if c.Publish != nil && c.Publish.Data != nil && !json.Valid(c.Publish.Data) {
				t.Fatalf("data is not JSON: %q", c.Publish.Data)
			}
			rest = rest[n:]
		}
	})
}

// For any strings, a push is one line of valid JSON that decodes to the input.
func FuzzPublication(f *testing.F) {
	f.Add("news", "user", "client")
	f.Add("a\"\\\n\x00\x7f", "\u2028é", "\xff\xfe")
	f.Fuzz(func(t *testing.T, channel, user, client string) {
		p := push(Push{Channel: channel, Publication: &Publication{Data: []byte("1"), User: user, Client: client}})
		var got struct {
			Push struct {
				Channel string
				Pub     struct {
					Data int
					Info struct{ User, Client string }
				}
			}
		}
		if err := json.Unmarshal(p, &got); err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		if strings.ContainsRune(string(p), '\n') {
			t.Fatalf("newline in %q", p)
		}
		if channel != "" && got.Push.Channel != strings.ToValidUTF8(channel, "\ufffd") &&
			!strings.ContainsRune(got.Push.Channel, '\ufffd') {
			t.Fatalf("channel %q came back as %q", channel, got.Push.Channel)
		}
	})
}
