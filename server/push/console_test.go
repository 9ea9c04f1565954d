package push_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// The page and everything that it loads come from the server.
func TestConsoleFiles(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", TokenSecret: "secret"})
	types := map[string]string{"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
	files, err := fs.ReadDir(consoleFiles, ".")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		path := "/console/" + file.Name()
		if file.Name() == "index.html" {
			path = "/"
		}
		_, ending, _ := strings.Cut(file.Name(), ".")
		w := ts.Do("GET", path, "")
		if w.Code != 200 || types[ending] == "" || !strings.HasPrefix(w.Header().Get("Content-Type"), types[ending]) {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		if !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
			t.Errorf("%s has no policy", path)
		}
		// namespace URLs of SVG and HTML, which browsers do not fetch
		text := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/", "")
		if strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, `"//`) {
			t.Errorf("%s names another server", path)
		}
		if again := ts.Do("GET", path, "", "If-None-Match", w.Header().Get("ETag")); again.Code != 304 ||
			again.Body.Len() > 0 {
			t.Errorf("%s again: %d with %d bytes", path, again.Code, again.Body.Len())
		}
	}
	for _, path := range []string{"/nothing", "/console/", "/console/nothing.js", "/console/index.html"} {
		if got := ts.Do("GET", path, "").Code; got != 404 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// The console's data is for requests with the operator's key, or for all if neither keys nor tokens
// are set.
func TestConsoleIsForOperators(t *testing.T) {
	for _, tt := range []struct {
		about  string
		config push.Config
		key    string
		status int
	}{
		{"nothing is set", push.Config{}, "", 200},
		{"an API key", push.Config{APIKey: "key"}, "", 401},
		{"an API key", push.Config{APIKey: "key"}, "wrong", 401},
		{"an API key", push.Config{APIKey: "key"}, "key", 200},
		{"a token secret only", push.Config{TokenSecret: "secret"}, "", 403},
		{"a token secret only", push.Config{TokenSecret: "secret"}, "secret", 403},
		{"key and secret", push.Config{APIKey: "key", TokenSecret: "secret"}, "", 401},
		{"key and secret", push.Config{APIKey: "key", TokenSecret: "secret"}, "key", 200},
		{"a console key", push.Config{ConsoleKey: "view"}, "", 401},
		{"a console key", push.Config{ConsoleKey: "view"}, "view", 200},
		{"both keys", push.Config{APIKey: "key", ConsoleKey: "view", TokenSecret: "secret"}, "key", 401},
		{"both keys", push.Config{APIKey: "key", ConsoleKey: "view", TokenSecret: "secret"}, "view", 200},
		{"no console", push.Config{DisableConsole: true}, "", 404},
	} {
		ts := servertest.New(t, tt.config)
		for _, path := range []string{"/console/stats", "/console/channels", "/console/channel?name=news",
			"/console/events?channel=news"} {
			w := ts.Do("GET", path, "", "X-API-Key", tt.key)
			if w.Code != tt.status {
				t.Errorf("%s, %s with key %q: %d, want %d: %s", tt.about, path, tt.key, w.Code, tt.status, w.Body)
			}
			if tt.status != 200 && tt.status != 404 && strings.Contains(w.Body.String(), "connections") {
				t.Errorf("%s, %s with key %q reveals %s", tt.about, path, tt.key, w.Body)
			}
		}
		if w := ts.Do("GET", "/", ""); (w.Code == 200) == tt.config.DisableConsole {
			t.Errorf("%s: the page: %d", tt.about, w.Code)
		}
	}
}

// The console's key does not allow publishing.
func TestConsoleKeyDoesNotPublish(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", ConsoleKey: "view"})
	for key, status := range map[string]int{"view": 401, "key": 200} {
		if w := ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`, "X-API-Key", key); w.Code != status {
			t.Errorf("publish with key %q: %d", key, w.Code)
		}
	}
}

func statsOf(ts *servertest.Server, t *testing.T, query string) (s consoleStats) {
	t.Helper()
	if err := json.Unmarshal(ts.Do("GET", "/console/stats"+query, "").Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConsoleSamples(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	ts.Events("channel=a&channel=b")
	value := func(sample []int64, field string) int64 { return sample[slices.Index(push.SampleFields, field)] }
	if s := statsOf(ts, t, ""); len(s.Samples) != 0 || !slices.Equal(s.Fields, push.SampleFields) {
		t.Errorf("at first: %+v", s)
	}
	for range 30 {
		ts.Do("POST", "/api/publish", `{"channel":"a","data":1}`)
	}
	ts.Clock.Advance(3 * time.Second)
	s := statsOf(ts, t, "")
	if len(s.Samples) != 3 || s.UptimeSeconds != 3 {
		t.Fatalf("after three seconds: %d samples, %d s", len(s.Samples), s.UptimeSeconds)
	}
	first := s.Samples[0]
	for field, want := range map[string]int64{"connections": 1, "channels": 2, "publishes": 30, "messages": 30,
		"slow": 0, "busy": 0} {
		if got := value(first, field); got != want {
			t.Errorf("%s: %d, want %d", field, got, want)
		}
	}
	for _, field := range []string{"rss", "heap", "goroutines"} {
		if value(first, field) <= 0 {
			t.Errorf("%s: %d", field, value(first, field))
		}
	}
	if value(s.Samples[1], "publishes") != 0 {
		t.Errorf("the second sample has %d publishes", value(s.Samples[1], "publishes"))
	}
	if newer := statsOf(ts, t, fmt.Sprintf("?after=%d", s.Samples[1][0])).Samples; len(newer) != 1 ||
		newer[0][0] != s.Samples[2][0] {
		t.Errorf("after the second sample come %v", newer)
	}
	ts.Clock.Advance(push.KeptSamples * push.SampleEvery)
	kept := statsOf(ts, t, "").Samples
	if len(kept) != push.KeptSamples || !slices.IsSortedFunc(kept, func(a, b []int64) int { return int(a[0] - b[0]) }) {
		t.Errorf("%d samples are kept", len(kept))
	}
}

// The rates of a server that goes on with the counters of another one are its own.
func TestConsoleSamplesAfterAMove(t *testing.T) {
	from, to := servertest.New(t, movingConfig()), servertest.New(t, movingConfig())
	for range 1000 {
		from.Do("POST", "/api/publish", `{"channel":"a","data":1}`)
	}
	moveServer(t, from, to)
	for range 3 {
		to.Do("POST", "/api/publish", `{"channel":"a","data":1}`)
	}
	to.Clock.Advance(push.SampleEvery)
	samples := statsOf(to, t, "").Samples
	if len(samples) != 1 {
		t.Fatalf("%d samples", len(samples))
	}
	if got := samples[0][slices.Index(push.SampleFields, "publishes")]; got != 3 {
		t.Errorf("a rate of %d publications, want 3", got)
	}
	if got := to.Hub.Counts().Publishes; got != 1003 {
		t.Errorf("%d publications in all, want 1003", got)
	}
}

func TestConsoleShowsLoops(t *testing.T) {
	engine, err := myriad.Start(myriad.Config{Loops: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Shutdown(t.Context()) })
	ts := servertest.New(t, push.Config{Engine: engine})
	if got := len(statsOf(ts, t, "").Loops); got != 3 {
		t.Errorf("%d loops", got)
	}
}

func TestConsoleListsChannels(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	for i := range listedChannels + 50 {
		ts.Events(fmt.Sprintf("channel=room-%03d", i))
	}
	ts.Events("channel=room-100&channel=lobby")
	ts.Events("channel=lobby")
	list := func(query string) (l push.ChannelList) {
		t.Helper()
		if err := json.Unmarshal(ts.Do("GET", "/console/channels"+query, "").Body.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	all := list("")
	if all.Total != listedChannels+51 || len(all.Channels) != listedChannels {
		t.Errorf("%d channels, %d of them listed", all.Total, len(all.Channels))
	}
	if want := []push.ChannelInfo{{Name: "lobby", Subscribers: 2}, {Name: "room-100", Subscribers: 2},
		{Name: "room-000",
			Subscribers: 1}}; !slices.Equal(all.Channels[:3], want) {
		t.Errorf("the list begins with %v, want %v", all.Channels[:3], want)
	}
	if some := list("?match=om-10"); some.Total != 10 || some.Channels[0].Name != "room-100" {
		t.Errorf("matching: %+v", some)
	}
	if none := list("?match=%3Cnone"); none.Total != 0 || none.Channels == nil {
		t.Errorf("matching nothing: %+v", none)
	}
}

// A channel is described with what its namespace keeps, and null for what it does not keep.
func TestConsoleShowsAChannel(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{Name: "kept", HistorySize: 30, Presence: true,
		Publish: push.PublishNobody}}})
	ts.Events("channel=kept:1")
	for i := range 25 {
		ts.Do("POST", "/api/publish", fmt.Sprintf(`{"channel":"kept:1","data":%d}`, i))
	}
	type shown struct {
		Namespace, Publish, Slow string
		History                  *struct{ Publications []struct{ Data int } }
		Presence                 *struct{ Presence map[string]any }
	}
	look := func(name string) (s shown) {
		t.Helper()
		if err := json.Unmarshal(ts.Do("GET", "/console/channel?name="+name, "").Body.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	kept := look("kept:1")
	if kept.Namespace != "kept" || kept.Publish != "nobody" || kept.History == nil || kept.Presence == nil {
		t.Fatalf("%+v", kept)
	}
	if list := kept.History.Publications; len(list) != shownHistory || list[0].Data != 24 ||
		len(kept.Presence.Presence) != 1 {
		t.Errorf("%d publications from %+v, %d clients", len(list), list[0], len(kept.Presence.Presence))
	}
	if other := look("other"); other.Namespace != "" || other.Slow != "disconnect" || other.History != nil ||
		other.Presence != nil {
		t.Errorf("%+v", other)
	}
	if w := ts.Do("GET", "/console/channel?name=", ""); w.Code != 400 {
		t.Errorf("no name: %d", w.Code)
	}
}

// An operator's subscription names events after their channels, and has the limits of any
// subscription.
func TestConsoleSubscribes(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", TokenSecret: "secret"})
	if w := ts.Do("GET", "/console/events?channel=a&channel=b", "", "X-API-Key", "key"); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	stream := ts.Streams[0]
	stream.Take()
	ts.Do("POST", "/api/publish", `{"channel":"b","data":{"n":1}}`, "X-API-Key", "key")
	if got := stream.Take(); got != "event: b\ndata: {\"n\":1}\n\n" {
		t.Errorf("received %q", got)
	}
	if w := ts.Do("GET", "/console/events", "", "X-API-Key", "key"); w.Code != 400 {
		t.Errorf("no channel: %d", w.Code)
	}
}

// What the tests of the console name of it.
const (
	listedChannels   = 200
	shownHistory     = 20
	shownConnections = 50

	tokenBytes        = 64 << 10
	explainedChannels = 20
)

// An explainedToken is what the console says of a token.
type explainedToken struct {
	Error    string            `json:"error"`
	User     string            `json:"user"`
	Ends     *time.Time        `json:"ends"`
	Claims   []json.RawMessage `json:"claims"`
	Channels []struct {
		Subscribe string `json:"subscribe"`
		Publish   string `json:"publish"`
	} `json:"channels"`
}

// A consoleStats is what the console shows of figures.
type consoleStats struct {
	Version         string            `json:"version"`
	Development     bool              `json:"development"`
	Connections     int64             `json:"connections"`
	Channels        int               `json:"channels"`
	Publishes       uint64            `json:"publishes"`
	Messages        uint64            `json:"messages"`
	SlowDisconnects uint64            `json:"slow_disconnects"`
	UptimeSeconds   int64             `json:"uptime_seconds"`
	QueueLimit      int               `json:"queue_limit"`
	Loops           []loopStats       `json:"loops"`
	Slow            []push.SlowClient `json:"slow"`
	Fields          []string          `json:"fields"`
	Samples         [][]int64         `json:"samples"`
}

type loopStats struct {
	Conns         int    `json:"conns"`
	Turns         uint64 `json:"turns"`
	BusyMicros    int64  `json:"busy_us"`
	LongTurns     uint64 `json:"long_turns"`
	LongestMicros int64  `json:"longest_us"`
	Queued        int64  `json:"queued"`
	BytesIn       uint64 `json:"bytes_in"`
	BytesOut      uint64 `json:"bytes_out"`
}

// A shownNamespace is the rules of a namespace in the console.
type shownNamespace struct {
	Name  string `json:"name"`
	Rules []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"rules"`
}

// consoleFiles are the files of the console's page.
var consoleFiles = os.DirFS("console/page").(fs.ReadFileFS)
