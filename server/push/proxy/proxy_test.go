package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/web"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// A backend answers as a test says, and keeps the last request.
type backend struct {
	*httptest.Server
	status  int
	answer  string
	asked   map[string]any
	header  http.Header
	waiting chan struct{} // if set, requests wait until it is closed
}

func newBackend(t *testing.T) *backend {
	b := &backend{status: 200}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.waiting != nil {
			<-b.waiting
			return
		}
		body, _ := io.ReadAll(r.Body)
		b.asked, b.header = nil, r.Header
		if err := json.Unmarshal(body, &b.asked); err != nil || r.Method != "POST" ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", r.Method, body, err)
		}
		w.WriteHeader(b.status)
		io.WriteString(w, b.answer)
	}))
	t.Cleanup(b.Close)
	return b
}

// hooks returns hooks that ask the backend.
func (b *backend) hooks(t *testing.T, c Config) push.Config {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c.Connect, c.Refresh, c.Subscribe, c.Publish, c.RPC, c.Transport = b.URL+"/c", b.URL+"/r", b.URL+"/s", b.URL+"/p",
		b.URL+"/rpc", transport
	c.SubRefresh = b.URL + "/sr"
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	var to push.Config
	if err := c.Apply(&to); err != nil {
		t.Fatal(err)
	}
	return to
}

var ann = push.Caller{ClientInfo: push.ClientInfo{Client: "id", User: "ann"}, Transport: "websocket",
	Protocol: "json",
	Encoding: "json", Header: http.Header{"Cookie": {"session=1"}}, Meta: []byte(`{"m":1}`)}

func wantAsked(t *testing.T, b *backend, want string) {
	t.Helper()
	got, _ := json.Marshal(b.asked)
	if string(got) != want {
		t.Errorf("the backend was asked %s, want %s", got, want)
	}
}

func TestHooks(t *testing.T) {
	b, ctx := newBackend(t), t.Context()
	c := b.hooks(t, Config{})
	h := c.Hooks
	b.answer = `{"result":{"user":"ann","expire_at":7,"info":{"a":1},"b64data":"AQI=","channels":["x"],` +
		`"subs":{"y":{"info":2}},"meta":{"m":1},"caps":[{"channels":["z*"],"match":"wildcard","allow":["sub"]}]}}`
	hello, err := h.Connect(ctx, push.Caller{ClientInfo: push.ClientInfo{Client: "id"}, Transport: "sse",
		Protocol: "json",
		Encoding: "json", Header: http.Header{"Cookie": {"session=1"}}}, push.ConnectRequest{Data: []byte(`{"x":1}`),
		Name: "js", Version: "5", Channels: []string{"old"}})
	if err != nil || hello.User != "ann" || hello.ExpireAt != 7 || string(hello.Info) != `{"a":1}` ||
		string(hello.Data) != "\x01\x02" || strings.Join(hello.Channels, " ") != "x y" ||
		len(hello.Caps) != 1 || hello.Caps[0].Match != "wildcard" || string(hello.Infos["y"]) != "2" ||
		string(hello.Meta) != `{"m":1}` {
		t.Errorf("connect: %+v, %v", hello, err)
	}
	wantAsked(t, b,
		`{"channels":["old"],"client":"id","data":{"x":1},"encoding":"json","name":"js","protocol":"json",`+
			`"transport":"sse","version":"5"}`)
	if b.header.Get("Cookie") != "session=1" {
		t.Error("the backend did not get the header")
	}
	const who = `"client":"id","data":1,"encoding":"json","meta":{"m":1},"protocol":"json",` +
		`"transport":"websocket","user":"ann"}`
	b.answer = `{"result":{"info":{"i":1},"data":"d","expire_at":9,"allow":["pub"]}}`
	sub, err := h.Subscribe(ctx, ann, push.SubscribeRequest{Channel: "x", Data: []byte(`1`)})
	if err != nil || string(sub.Info) != `{"i":1}` || string(sub.Data) != `"d"` || sub.ExpireAt != 9 || !sub.Publish {
		t.Errorf("subscribe: %+v, %v", sub, err)
	}
	wantAsked(t, b, `{"channel":"x",`+who)
	b.answer = `{"result":{"data":{"changed":true},"skip_history":true}}`
	pub, err := h.Publish(ctx, ann, push.PublishRequest{Channel: "x", Data: []byte(`1`)})
	if err != nil || string(pub.Data) != `{"changed":true}` || !pub.SkipHistory {
		t.Errorf("publish: %+v, %v", pub, err)
	}
	wantAsked(t, b, `{"channel":"x",`+who)
	b.answer = `{"result":{"expired":true,"info":{"a":2},"meta":{"m":2}}}`
	if again, err := h.Refresh(ctx, ann); err != nil || !again.Expired || string(again.Info) != `{"a":2}` ||
		string(again.Meta) != `{"m":2}` {
		t.Errorf("refresh: %+v, %v", again, err)
	}
	b.answer = `{"result":{"expire_at":9}}`
	if again, err := h.SubRefresh(ctx, ann, "x"); err != nil || again.Expired || again.ExpireAt != 9 {
		t.Errorf("sub_refresh: %+v, %v", again, err)
	}
	wantAsked(t, b, `{"channel":"x",`+strings.Replace(who, `"data":1,`, "", 1))
	b.answer = `{"result":{"data":[1]}}`
	if data, err := c.RPC(ctx, ann, "sum", []byte(`1`)); err != nil || string(data) != `[1]` {
		t.Errorf("rpc: %s, %v", data, err)
	}
	wantAsked(t, b, `{`+strings.Replace(who, `"protocol"`, `"method":"sum","protocol"`, 1))
	binary := ann
	binary.Encoding = "binary"
	if _, err := c.RPC(ctx, binary, "sum", []byte{1, 2}); err != nil || b.asked["b64data"] != "AQI=" {
		t.Errorf("rpc in bytes: %v, %v", b.asked, err)
	}
}

// What a backend refuses reaches the client; what goes wrong is an error with the address.
func TestRefusals(t *testing.T) {
	b := newBackend(t)
	h := b.hooks(t, Config{Answer: 100}).Hooks
	for _, tt := range []struct {
		status       int
		answer, want string
	}{
		{200, `{"error":{"code":1000,"message":"no","temporary":true}}`, "error 1000: no"},
		{200, `{"disconnect":{"code":4501,"reason":"banned"}}`, "disconnect 4501: banned"},
		{200, `{"disconnect":{"code":1,"reason":"banned"}}`, "use 4000 to 4999"},
		{200, `{"result":{"override":{}}}`, "override is not served"},
		{200, `[]`, "the answer of http://"},
		{200, strings.Repeat(" ", 101), "more than 100 bytes"},
		{200, `{"result":{"override":null,"expired":true},"error":null}`, ""},
		{302, `{}`, "has answered 302"},
		{500, `{"result":{}}`, "has answered 500"},
	} {
		b.status, b.answer = tt.status, tt.answer
		if _, err := h.Refresh(t.Context(), ann); (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d %.40s: %v, want %q", tt.status, tt.answer, err, tt.want)
		}
	}
	b.Close()
	if _, err := h.Refresh(t.Context(), ann); err == nil || !strings.Contains(err.Error(), b.URL) {
		t.Errorf("a backend that is down: %v", err)
	}
}

// A backend that does not answer holds AtOnce requests, for Timeout.
// everyHook calls all hooks with the answer of b.
func everyHook(t *testing.T, b *backend) map[string]error {
	c := b.hooks(t, Config{})
	ctx, errs := t.Context(), map[string]error{}
	_, errs["connect"] = c.Hooks.Connect(ctx, ann, push.ConnectRequest{})
	_, errs["refresh"] = c.Hooks.Refresh(ctx, ann)
	_, errs["subscribe"] = c.Hooks.Subscribe(ctx, ann, push.SubscribeRequest{Channel: "x"})
	_, errs["sub_refresh"] = c.Hooks.SubRefresh(ctx, ann, "x")
	_, errs["publish"] = c.Hooks.Publish(ctx, ann, push.PublishRequest{Channel: "x"})
	_, errs["rpc"] = c.RPC(ctx, ann, "sum", nil)
	return errs
}

// Only a result that is an object allows anything, whichever hook it answers.
func TestWhatIsNotUnderstoodAllowsNothing(t *testing.T) {
	b := newBackend(t)
	for _, answer := range []string{`{}`, `null`, ``, `[]`, `true`, `"ok"`, `{"result":null}`, `{"result":[]}`,
		`{"result":true}`, `{"result":"ok"}`, `{"results":{}}`, `{"error":null,"disconnect":null}`, `{"error":{}}`,
		`{"result":{},"error":{"message":"no"}}`, `{"result":{},"disconnect":{}}`, `{"result":{},"allow":["pub"]}`,
		`{"data":{}}`, `{"result":{}}{"result":{}}`, `<html>`} {
		b.answer = answer
		for hook, err := range everyHook(t, b) {
			if err == nil || errors.As(err, new(push.Error)) || errors.As(err, new(push.Disconnect)) {
				t.Errorf("%s answered with %s: %v", hook, answer, err)
			}
		}
	}
	b.answer = `{"result":{}}`
	for hook, err := range everyHook(t, b) {
		if err != nil {
			t.Errorf("%s answered with %s: %v", hook, b.answer, err)
		}
	}
}

// A member of a result that has no effect is refused by its name.
func TestWhatIsNotServedIsRefusedByName(t *testing.T) {
	b := newBackend(t)
	for hook, results := range map[string][]string{
		"connect": {`{"subs":{"x":{"override":{}}}}`, `{"subs":{"x":{"data":{}}}}`, `{"subs":{"x":{"b64data":"AQ=="}}}`,
			`{"subs":{"x":{"recover":true}}}`, `{"subs":{"x":{"expire_at":7}}}`, `{"labels":{}}`,
			`{"caps":[{"channels":["x"],"allow":["sub"],"deny":["pub"]}]}`},
		"refresh":     {`{"labels":{}}`, `{"ttl":5}`},
		"subscribe":   {`{"override":{}}`, `{"server_tags_filter":{}}`, `{"allow":["all"]}`},
		"sub_refresh": {`{"info":{}}`, `{"override":{}}`},
		"publish":     {`{"tags":{"a":"b"}}`, `{"idempotency_key":"x"}`, `{"version":1}`, `{"delta":true}`},
		"rpc":         {`{"error":{}}`},
	} {
		for _, result := range results {
			b.answer = `{"result":` + result + `}`
			name := regexp.MustCompile(`"(\w+)":[^:]*$`).FindStringSubmatch(strings.Replace(result, `{"a":"b"}`, "{}",
				1))[1]
			if err := everyHook(t, b)[hook]; err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s answered with %s: %v, want %q in it", hook, result, err, name)
			}
		}
	}
	for _, result := range []string{`{"expire_at":-1}`, `{"expire_at":1800000000000}`, `{"expire_at":"soon"}`} {
		b.answer = `{"result":` + result + `}`
		for _, hook := range []string{"connect", "refresh", "subscribe", "sub_refresh"} {
			if err := everyHook(t, b)[hook]; err == nil || !strings.Contains(err.Error(), "the answer of") {
				t.Errorf("%s answered with %s: %v", hook, result, err)
			}
		}
	}
}

// Whatever door a client comes by, an answer that is not understood does not let it in.
func TestNoDoorTakesAnEmptyAnswerForConsent(t *testing.T) {
	b := newBackend(t)
	c := b.hooks(t, Config{})
	c.Doors = doors.All(doors.Config{})
	s, err := push.New(c)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	h := &web.Server{Handler: s, Engine: engine}
	ln, err := h.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), h.Shutdown(ctx), engine.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	first := func(path, body string) string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://"+ln.Addr().String()+path, strings.NewReader(body))
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		for lines := bufio.NewReader(answer.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %q, %v", path, line, err)
			}
			if line != "\n" && !strings.HasPrefix(line, "retry: ") { // a stream of events may begin with that
				return line
			}
		}
	}
	for path, body := range map[string]string{
		"/connection/http_stream": `{"id":1,"connect":{}}`, "/connection/sse": `{"id":1,"connect":{}}`,
		"/connection/uni_http_stream": `{}`, "/connection/uni_sse": `{}`,
	} {
		b.answer = `{}`
		if line := first(path, body); !strings.Contains(line, "error") && !strings.Contains(line, "disconnect") {
			t.Errorf("%s after {}: %s", path, line)
		}
		b.answer = `{"result":{}}`
		if line := first(path, body); !strings.Contains(line, `"client"`) {
			t.Errorf("%s after a result: %s", path, line)
		}
	}
}

func TestBackendThatHangs(t *testing.T) {
	b := newBackend(t)
	b.waiting = make(chan struct{})
	defer close(b.waiting)
	h := b.hooks(t, Config{AtOnce: 2, Timeout: 100 * time.Millisecond}).Hooks
	if _, err := h.Refresh(t.Context(), ann); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("the first: %v", err)
	}
	slow := b.hooks(t, Config{AtOnce: 1, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	ended := make(chan error, 2)
	go func() {
		close(began)
		for range 2 { // the second cannot begin before the first has ended
			_, err := slow.Hooks.Refresh(ctx, ann)
			ended <- err
		}
	}()
	<-began
	cancel()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a request to a backend that hangs has no error")
		}
	}
	busy := &proxy{Config: Config{Timeout: time.Nanosecond}, slots: make(chan struct{})}
	if err := busy.call(t.Context(), b.URL, ann, nil, nil); err != errBusy {
		t.Errorf("without a free slot: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"backend", "ftp://x/", "http://", "://"} {
		if err := (Config{Connect: address}).Apply(new(push.Config)); err == nil {
			t.Errorf("%q was accepted", address)
		}
	}
	var to push.Config
	if err := (Config{RPC: "http://x/"}).Apply(&to); err != nil || to.Hooks.Connect != nil || to.RPC == nil {
		t.Errorf("rpc alone: %v", err)
	}
}
