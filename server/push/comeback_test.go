package push_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A request is one to a server with all doors.
type request struct {
	method, target, body string
	fields               []string
}

const eventStream = "text/event-stream"

// rpcPublish is a call of gRPC without a message, which no test lets come so far.
const rpcPublish = "/centrifugal.centrifugo.api.CentrifugoApi/Publish"

// calls returns the answer to a request, by HTTP/2 if it is a call of gRPC.
func (r request) ask(ts *servertest.Server) *http.Response {
	made := httptest.NewRequest(r.method, r.target, strings.NewReader(r.body))
	for i := 0; i < len(r.fields); i += 2 {
		made.Header.Set(r.fields[i], r.fields[i+1])
	}
	if r.target == rpcPublish {
		made.Proto, made.ProtoMajor, made.ProtoMinor = "HTTP/2.0", 2, 0
		made.Header.Set("Content-Type", "application/grpc")
	}
	w := httptest.NewRecorder()
	ts.ServeHTTP(w, made)
	return w.Result()
}

// mustComeBack checks that an answer says when to come back, from 1 to 60 s, and returns when.
func mustComeBack(t *testing.T, answer *http.Response) (wait int) {
	t.Helper()
	wait, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 60 {
		t.Errorf("status %d, Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
	return wait
}

var retryField = regexp.MustCompile(`^: [^\n]+\nretry: (\d+)\n\n$`)

// mustStreamRetry checks that an EventSource comes back: it is answered with a stream that says
// when, and ends. It gives up after any other status.
func mustStreamRetry(t *testing.T, answer *http.Response) {
	t.Helper()
	body, _ := io.ReadAll(answer.Body)
	told := retryField.FindSubmatch(body)
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != eventStream || told == nil {
		t.Errorf("an EventSource is answered %d, %q, %q", answer.StatusCode, answer.Header.Get("Content-Type"), body)
		return
	}
	millis, _ := strconv.Atoi(string(told[1]))
	if seconds := mustComeBack(t, answer); millis < 1000 || millis > 60_000 || millis > 1000*seconds {
		t.Errorf("an EventSource is told %d ms, and the field Retry-After has %d s", millis, seconds)
	}
}

// A server that drains tells every client when to come back, in the words of its protocol.
func TestDrainingServerSaysWhenToComeBack(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	ts.Drain()
	const publication = `{"channel":"news","data":1}`
	for _, r := range []request{
		{"GET", "/events?channel=news", "", nil},
		{"GET", "/.well-known/mercure?topic=a", "", nil},
		{"POST", "/.well-known/mercure", "topic=a&data=b", []string{"Content-Type",
			"application/x-www-form-urlencoded"}},
		{"GET", "/connection/websocket", "", nil},
		{"GET", "/connection/uni_websocket", "", nil},
		{"POST", "/connection/http_stream", "{}", nil},
		{"POST", "/connection/sse", "{}", []string{"Accept", eventStream}},
		{"GET", "/connection/uni_sse?cf_connect={}", "", nil},
		{"POST", "/emulation", "{}", nil},
		{"GET", "/console/events?channel=news", "", nil},
		{"POST", "/api/publish", publication, nil},
		{"POST", "/api/publish", publication, []string{"X-Centrifugo-Error-Mode", "transport"}},
		{"POST", "/api/broadcast", `{"channels":["a","b"],"data":1}`, nil},
	} {
		answer := r.ask(ts)
		if answer.StatusCode != 503 {
			t.Errorf("%s %s: status %d", r.method, r.target, answer.StatusCode)
		}
		mustComeBack(t, answer)
	}
	for _, target := range []string{"/events?channel=news", "/.well-known/mercure?topic=a",
		"/connection/uni_sse?cf_connect={}", "/connection/sse?cf_connect={}", "/console/events?channel=news"} {
		mustStreamRetry(t, request{"GET", target, "", []string{"Accept", eventStream}}.ask(ts))
	}
	if got := metricOf(ts, `myriad_refusals_total{reason="draining"}`); got != 18 {
		t.Errorf("%d refusals are counted as draining, want 18", got)
	}
}

// metricOf returns the value of a line of the metrics.
func metricOf(ts *servertest.Server, name string) int {
	_, rest, _ := strings.Cut(ts.Do("GET", "/metrics", "").Body.String(), "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(value)
	if err != nil {
		ts.T.Errorf("the metric %s is %q", name, value)
	}
	return n
}

// What is refused for good has no time to come back.
func TestRefusedForGood(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, APIKey: "key"})
	for _, r := range []request{
		{"GET", "/events?channel=news", "", []string{"Accept", eventStream}},
		{"GET", "/events?channel=news&token=forged", "", []string{"Accept", eventStream}},
		{"GET", "/.well-known/mercure?topic=a", "", []string{"Accept", eventStream, "Authorization", "Bearer forged"}},
		{"GET", "/connection/websocket", "", []string{"Origin", "https://other.example"}},
		{"GET", "/events?channel=news", "", []string{"Accept", eventStream, "Origin", "https://other.example"}},
		{"POST", "/api/publish", `{"channel":"news","data":1}`, nil},
		{"POST", "/api/publish", `{"channel":""}`, []string{"X-API-Key", "key"}},
		{"POST", rpcPublish, "\x00\x00\x00\x00\x00", nil},
		{"GET", "/nowhere", "", nil},
	} {
		answer := r.ask(ts)
		for _, name := range []string{"Retry-After", "Grpc-Retry-Pushback-Ms"} {
			if told := answer.Header.Get(name); told != "" {
				t.Errorf("%s %s: status %d with %s: %s", r.method, r.target, answer.StatusCode, name, told)
			}
		}
		if body, _ := io.ReadAll(answer.Body); strings.Contains(string(body), "retry:") {
			t.Errorf("%s %s: %s", r.method, r.target, body)
		}
	}
}

// While publications are refused because of overload, a program learns it before it has published,
// and when to publish again; a client's command gets the temporary error of its protocol.
func TestPublishersOfAFullServer(t *testing.T) {
	ts := servertest.New(t, push.Config{Bus: pushtest.FullBus{Local: membus.New(membus.Config{})}})
	const publication, text = `{"channel":"news","data":1}`,
		"more is published than can be delivered: publish again later"
	for _, r := range []request{
		{"POST", "/api/publish", publication, nil},
		{"POST", "/api/publish", publication, []string{"X-Centrifugo-Error-Mode", "transport"}},
		{"POST", "/.well-known/mercure", "topic=a&data=b", []string{"Content-Type",
			"application/x-www-form-urlencoded"}},
	} {
		answer := r.ask(ts)
		body, _ := io.ReadAll(answer.Body)
		if want := `{"error":{"code":111,"message":"` + text + `"}}`; answer.StatusCode != 503 || string(body) != want {
			t.Errorf("%s: %d %s, want %s", r.target, answer.StatusCode, body, want)
		}
		mustComeBack(t, answer)
	}

	message := "\x0a\x04news\x12\x011"
	answer := request{"POST", rpcPublish, "\x00\x00\x00\x00" + string(rune(len(message))) + message, nil}.ask(ts)
	if answer.Header.Get("Grpc-Status") != "14" || answer.Header.Get("Grpc-Message") != text {
		t.Errorf("by gRPC: %v", answer.Header)
	}
	millis, err := strconv.Atoi(answer.Header.Get("Grpc-Retry-Pushback-Ms"))
	if err != nil || millis < 1000 || millis > 60_000 {
		t.Errorf("by gRPC: pushed back by %d ms, %v", millis, err)
	}
	details, err := base64.RawStdEncoding.DecodeString(answer.Header.Get("Grpc-Status-Details-Bin"))
	if err != nil || !strings.Contains(string(details), "google.rpc.RetryInfo") {
		t.Errorf("by gRPC: details %q, %v", details, err)
	}

	if got := ts.Call("broadcast", `{"channels":["a"],"data":1}`); got != `{"result":{"responses":[{"error":`+
		`{"code":111,"message":"`+text+`"}}]}}` {
		t.Errorf("a channel of a broadcast: %s", got)
	}
	if got := ts.Call("batch", `{"commands":[{"publish":`+publication+`}]}`); got != `{"replies":[{"error":`+
		`{"code":111,"message":"`+text+`"}}]}` {
		t.Errorf("a command of a batch: %s", got)
	}
	c := new(servertest.Transport)
	c.Session = ts.Hub.Start(c, servertest.JSONForm, nil)
	t.Cleanup(c.Leave)
	c.Frame([]byte(`{"id":1,"connect":{}}`))
	c.Take()
	c.Asks(t, "a client publishes", `{"id":2,"publish":{"channel":"news","data":1}}`,
		`{"id":2,"error":{"code":111,"message":"too many requests","temporary":true}}`)
	if err := ts.Publish(t.Context(), "news", []byte("1")); err == nil || !strings.Contains(err.Error(), "again") {
		t.Errorf("a program is told %v", err)
	}
}

// Clients at a limit of connections are spread by how many were refused: each is told a time at
// which there is room for it.
func TestClientsAtARateAreSpread(t *testing.T) {
	ts := servertest.New(t, push.Config{Rates: push.Rates{AddressConnections: push.Rate{Count: 2,
		Per: 4 * time.Second}}})
	stream := request{"GET", "/events?channel=news", "", []string{"Accept", eventStream}}
	for range 2 {
		if answer := stream.ask(ts); answer.StatusCode != 200 || answer.Header.Get("Retry-After") != "" {
			t.Fatalf("a stream within the rate: %d", answer.StatusCode)
		}
	}
	for i := range 20 {
		answer := request{"GET", "/events?channel=news", "", nil}.ask(ts)
		if wait := mustComeBack(t, answer); answer.StatusCode != 429 || wait != 2*(i+1) {
			t.Errorf("client %d: %d, Retry-After %d, want %d", i, answer.StatusCode, wait, 2*(i+1))
		}
	}
	mustStreamRetry(t, stream.ask(ts))
}

// A crowd of EventSources that a node has when it shuts down is told to come back spread.
func TestEventSourcesOfANodeThatShutsDown(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	const clients = 10_000
	for range clients {
		ts.Events("channel=news").Take()
	}
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := map[int]int{}
	for _, s := range ts.Streams {
		told := regexp.MustCompile(`^retry: (\d+)\n\n$`).FindStringSubmatch(s.Take())
		if told == nil {
			t.Fatal("a stream ends without a time to come back")
		}
		millis, _ := strconv.Atoi(told[1])
		back[millis/1000]++
	}
	most := 0
	for _, n := range back {
		most = max(most, n)
	}
	if len(back) < 5 || most > 3*clients/len(back) {
		t.Errorf("clients by the second in which they come back: %v", back)
	}
}

// A client is told when its token's key is not known yet, or a hook wants it to come later.
func TestHooksThatRefuseForNow(t *testing.T) {
	for _, err := range []error{push.ErrInternal, push.ErrTooManyRequests, push.Disconnect{Code: 3005, Reason: "later"},
		push.Disconnect{Code: 4000, Reason: "later"}} {
		ts := servertest.New(t, push.Config{Hooks: push.Hooks{
			Connect: func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
				return push.ConnectAnswer{}, err
			}}})
		mustComeBack(t, request{"GET", "/events?channel=news", "", nil}.ask(ts))
		mustStreamRetry(t, request{"GET", "/events?channel=news", "", []string{"Accept", eventStream}}.ask(ts))
	}
	ts := servertest.New(t, push.Config{Hooks: push.Hooks{
		Connect: func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
			return push.ConnectAnswer{}, push.Disconnect{Code: 4500, Reason: "never"}
		}}})
	answer := request{"GET", "/events?channel=news", "", []string{"Accept", eventStream}}.ask(ts)
	if answer.StatusCode != 403 || answer.Header.Get("Retry-After") != "" {
		t.Errorf("refused for good: %d, Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
}

// A node that shuts down disconnects its clients a part at a time, over Timing.Spread.
func TestShutdownSpreads(t *testing.T) {
	const clients, spread = 300, 3 * time.Second
	ts := servertest.New(t, push.Config{Timing: push.Timing{Spread: spread}})
	var all []*servertest.Transport
	for range clients {
		c := new(servertest.Transport)
		c.Session = ts.Hub.Start(c, servertest.JSONForm, nil)
		t.Cleanup(c.Leave)
		all = append(all, c)
	}
	closed := func() (n int) {
		for _, c := range all {
			if why, _ := c.End(); why != nil {
				n++
			}
		}
		return n
	}
	ended := make(chan error, 1)
	go func() { ended <- ts.Shutdown(context.Background()) }()
	began := ts.Clock.Now()
	for before := 0; before < clients; {
		now := 0
		pushtest.WaitFor(t, "another part to be disconnected", func() bool {
			ts.Clock.Advance(50 * time.Millisecond)
			now = closed()
			return now > before
		})
		if now-before > clients/10 {
			t.Errorf("%d clients are disconnected at once, of %d", now-before, clients)
		}
		before = max(now, before+1)
	}
	if took := ts.Clock.Now().Sub(began); took < spread*9/10 {
		t.Errorf("all are disconnected after %v, want %v", took, spread)
	}
	for _, c := range all {
		if why, _ := c.End(); why == nil || *why != (push.Disconnect{Code: 3001, Reason: "shutdown"}) {
			t.Errorf("a client is told %v", why)
		}
		c.Leave()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
