package push_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/server/push/membus"
)

var movingNamespaces = []push.Namespace{{Name: "kept", HistorySize: 10, HistoryAge: time.Hour, Recovery: true,
	Presence: true}}

func movingConfig() push.Config {
	return push.Config{Namespaces: movingNamespaces, Doors: servertest.Doors(mercure.Config{Subscriptions: true})}
}

// moveServer moves what a server has, and its streams, to another one. It returns the streams
// there; nil: it has not moved.
func moveServer(t *testing.T, from, to *servertest.Server, streams ...*servertest.Stream) []*servertest.Stream {
	t.Helper()
	from.Hub.OfferStreams(true)
	if err := errors.Join(from.Freeze(t.Context()), to.Freeze(t.Context())); err != nil {
		t.Fatal(err)
	}
	var state bytes.Buffer
	if err := errors.Join(from.WriteState(&state), to.ReadState(&state)); err != nil {
		t.Fatal(err)
	}
	next := make([]*servertest.Stream, len(streams))
	for i, stream := range streams {
		frozen, ok := stream.Freeze()
		if !ok {
			continue
		}
		next[i] = new(servertest.Stream)
		if err := to.Hub.ThawStream(next[i], frozen); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		to.Streams = append(to.Streams, next[i])
	}
	for i, stream := range streams {
		if next[i] != nil {
			stream.Move()
		}
	}
	from.Leave()
	to.Thaw()
	return next
}

// Clients of all doors that read one long response go on in another process, and are told nothing.
func TestStreamsMove(t *testing.T) {
	from, to := servertest.New(t, movingConfig()), servertest.New(t, movingConfig())
	const connect = `{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"kept:a"}}`
	const hubPath = "/.well-known/mercure"
	streams := map[string]*servertest.Stream{
		"events":       from.Events("channel=kept:a"),
		"named events": from.Events("channel=kept:a&channel=b&named=1"),
		"http_stream":  from.Open("POST", "/connection/http_stream", connect),
		"sse":          from.Open("POST", "/connection/sse", connect),
		"uni_sse":      from.Open("POST", "/connection/uni_sse", `{"subs":{"kept:a":{}}}`),
		"mercure":      from.Open("GET", hubPath+"?topic=https://a/{id}", ""),
		"mercure text": from.Open("GET", hubPath+"?topic=https://a/1", ""),
	}
	names := []string{"events", "named events", "http_stream", "sse", "uni_sse", "mercure", "mercure text"}
	if got := from.Call("publish", `{"channel":"kept:a","data":1}`); !strings.Contains(got, `"offset":1`) {
		t.Fatal(got)
	}
	list := func(s *servertest.Server) string { return s.Do("GET", hubPath+"/subscriptions", "").Body.String() }
	var before []*servertest.Stream
	secret := ""
	for _, name := range names {
		before = append(before, streams[name])
		got := streams[name].Take()
		if name == "http_stream" {
			_, rest, _ := strings.Cut(got, `"session":"`)
			secret, _, _ = strings.Cut(rest, `"`)
		}
	}
	presence, subscriptions := from.Call("presence_stats", `{"channel":"kept:a"}`), list(from)
	after := moveServer(t, from, to, before...)
	for i, name := range names {
		if after[i] == nil {
			t.Fatalf("%s has not moved", name)
		}
		streams[name] = after[i]
	}
	if got := to.Call("presence_stats", `{"channel":"kept:a"}`); got != presence || !strings.Contains(got, "5") {
		t.Errorf("present are %s, were %s", got, presence)
	}
	if got := list(to); got != subscriptions || strings.Count(got, `"active":true`) != 2 {
		t.Errorf("the subscriptions are\n%s\nwere\n%s", got, subscriptions)
	}
	if got := to.Call("publish", `{"channel":"kept:a","data":2}`); !strings.Contains(got, `"offset":2`) {
		t.Error(got)
	}
	if w := to.Do("POST", hubPath, "topic=https://a/1&data=3"); w.Code != 200 {
		t.Error(w.Body)
	}
	w := to.Do("POST", "/emulation", `{"session":"`+secret+`","node":"","data":"{\"id\":3,\"ping\":{}}"}`)
	if w.Code != http.StatusNoContent {
		t.Errorf("emulation: %d %s", w.Code, w.Body)
	}
	for name, want := range map[string][]string{
		"events":       {":2\ndata: 2\n\n"},
		"named events": {"event: kept:a\ndata: 2\n\n"},
		"http_stream":  {`"pub":{"data":2,"offset":2}`, `{"id":3,"ping":{}}`},
		"sse":          {`data: {"push":{"channel":"kept:a","pub":{"data":2,"offset":2}}}`},
		"uni_sse":      {`data: {"channel":"kept:a","pub":{"data":2,"offset":2}}`},
		"mercure":      {"data: 3\n\n"},
		"mercure text": {"data: 3\n\n"},
	} {
		got := streams[name].Take()
		for _, part := range want {
			if strings.Count(got, part) != 1 || strings.Contains(got, "data: 1") || streams[name].IsClosed() {
				t.Errorf("%s: received %q, want once %q", name, got, part)
			}
		}
	}
	for _, stream := range before {
		if got := stream.Take(); got != "" {
			t.Errorf("the old server has sent %q", got)
		}
	}
	if w := from.Do("GET", "/events?channel=a", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the old server answers %d", w.Code)
	}
	if got := from.Hub.Counts().Connections; got != 0 {
		t.Errorf("the old server has %d clients", got)
	}
}

// A client for which a command runs stays, and so does one that was not offered.
func TestBusyStreamsStay(t *testing.T) {
	c := movingConfig()
	begun, goOn := make(chan struct{}), make(chan struct{})
	c.RPC = func(context.Context, push.Caller, string, []byte) ([]byte, error) {
		close(begun)
		<-goOn
		return nil, nil
	}
	from, to := servertest.New(t, c), servertest.New(t, movingConfig())
	stream := from.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`)
	_, rest, _ := strings.Cut(stream.Take(), `"session":"`)
	secret, _, _ := strings.Cut(rest, `"`)
	done := make(chan int)
	emulate := func(command string) {
		done <- from.Do("POST", "/emulation", fmt.Sprintf(`{"session":%q,"data":%q}`, secret, command)).Code
	}
	go emulate(`{"id":2,"rpc":{"method":"m"}}`)
	<-begun
	command := fmt.Sprintf(`{"session":%q,"data":"{\"id\":4,\"ping\":{}}"}`, secret)
	body, sent := io.Pipe()
	late, served := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(served)
		from.ServeHTTP(late, httptest.NewRequest("POST", "/emulation", body))
	}()
	io.WriteString(sent, command[:1]) // returns when the server, which has not frozen yet, reads it
	if _, ok := stream.Freeze(); ok {
		t.Error("a stream that was not offered moves")
	}
	next := moveServer(t, from, to, stream)
	if next[0] != nil {
		t.Error("a client moves while a command runs")
	}
	close(goOn)
	if code := <-done; code != http.StatusNoContent {
		t.Errorf("the command is answered %d", code)
	}
	if got := stream.Take(); !strings.Contains(got, `"id":2`) {
		t.Errorf("the answer to the command is %q", got)
	}
	go emulate(`{"id":3,"ping":{}}`)
	if code := <-done; code != http.StatusServiceUnavailable {
		t.Errorf("a command behind the move is answered %d", code)
	}
	io.WriteString(sent, command[1:])
	sent.Close()
	<-served
	if code, when := late.Code, late.Header().Get("Retry-After"); code != http.StatusServiceUnavailable || when == "" {
		t.Errorf("a command that began before the move is answered %d, to come back after %q s", code, when)
	}
}

// What cannot change while clients are connected is refused, and the old server goes on.
func TestServersThatCannotTakeOver(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*push.Config)
		want   string
	}{
		"another history": {func(c *push.Config) {
			c.Namespaces = []push.Namespace{{Name: "kept", HistorySize: 11, HistoryAge: time.Hour, Recovery: true}}
		}, `namespace "kept"`},
		"a longer silence": {func(c *push.Config) { c.Timing.Ping = time.Minute }, "1m0s, and was 25s"},
	} {
		t.Run(name, func(t *testing.T) {
			c := movingConfig()
			tt.change(&c)
			from, to := servertest.New(t, movingConfig()), servertest.New(t, c)
			stream := from.Events("channel=kept:a")
			stream.Take()
			if err := errors.Join(from.Freeze(t.Context()), to.Freeze(t.Context())); err != nil {
				t.Fatal(err)
			}
			var state bytes.Buffer
			if err := from.WriteState(&state); err != nil {
				t.Fatal(err)
			}
			if err := to.ReadState(&state); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			to.Leave()
			from.Thaw()
			from.Call("publish", `{"channel":"kept:a","data":1}`)
			if got := stream.Take(); !strings.HasSuffix(got, "data: 1\n\n") {
				t.Errorf("the old server sends %q", got)
			}
		})
	}
	c := movingConfig()
	c.Bus = membus.New(membus.Config{})
	if err := servertest.New(t, c).Freeze(t.Context()); err != push.ErrCannotMove {
		t.Errorf("a server with a bus of others: %v", err)
	}
	s := servertest.New(t, movingConfig())
	if err := s.ReadState(strings.NewReader("")); err == nil {
		t.Error("an empty state is read")
	}
	if err := s.WriteState(io.Discard); err == nil {
		t.Error("a server that is not frozen writes its state")
	}
}

// What the console shows goes on in another process: its charts have no gap and no leap, and a page
// that is open gets the refusals that are newer than those that it has.
func TestConsoleMoves(t *testing.T) {
	from, to := servertest.New(t, movingConfig()), servertest.New(t, movingConfig())
	for i := range 5 {
		from.Call("publish", `{"channel":"kept:a","data":1}`)
		from.Hub.CountRefusal(hub.RefusedToken, fmt.Sprint("192.0.2.", i), "error", "it is old")
		from.Clock.Advance(push.SampleEvery)
		to.Clock.Advance(push.SampleEvery)
	}
	before := from.Figures(0).Samples
	counts, refused, last := from.Refusals(0)
	if len(before) != 5 || len(refused) != 5 || last != 5 {
		t.Fatalf("%d samples and %d refusals, of which the last is number %d", len(before), len(refused), last)
	}
	moveServer(t, from, to)
	to.Clock.Advance(push.SampleEvery)
	after := to.Figures(0).Samples
	if len(after) != 6 || !reflect.DeepEqual(after[:5], before) {
		t.Errorf("samples\n%v, and before\n%v", after, before)
	}
	publishes := slices.Index(push.SampleFields, "publishes")
	if n := after[5][publishes]; n != 0 {
		t.Errorf("the first sample has %d publications a second, and there was none", n)
	}
	if step := after[5][0] - after[4][0]; step != push.SampleEvery.Milliseconds() {
		t.Errorf("%d ms lie between the samples of two processes", step)
	}
	newCounts, moved, newLast := to.Refusals(0)
	if !reflect.DeepEqual(moved, refused) || newLast != last || !reflect.DeepEqual(newCounts, counts) {
		t.Errorf("refusals\n%+v, number %d, and before\n%+v", moved, newLast, refused)
	}
	to.Hub.CountRefusal(hub.RefusedToken, "192.0.2.9")
	if _, newer, _ := to.Refusals(last); len(newer) != 1 || newer[0].Remote != "192.0.2.9" {
		t.Errorf("after number %d there are %+v", last, newer)
	}
}

// Samples of a version with other values are put into their places. Those without a place are left
// out, and those that the other version does not have are 0.
func TestSamplesOfAnotherVersion(t *testing.T) {
	from, to := servertest.New(t, movingConfig()), servertest.New(t, movingConfig())
	if err := errors.Join(from.Freeze(t.Context()), to.Freeze(t.Context())); err != nil {
		t.Fatal(err)
	}
	var whole, state bytes.Buffer
	if err := from.WriteState(&whole); err != nil {
		t.Fatal(err)
	}
	from.Thaw()
	r, err := snapshot.NewReader(&whole, from.StateParts())
	w := snapshot.NewWriter(&state, from.StateParts())
	for err == nil {
		var part string
		var body []byte
		if part, body, err = r.Next(); err == nil {
			err = w.Record(part, body)
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	fields := snapshot.AppendTexts(nil, []string{"heap", "gone", "time"})
	one := snapshot.AppendInt(snapshot.AppendInt(snapshot.AppendInt(nil, 11), 12), 13)
	if err := errors.Join(w.Record("push.samples.1", fields), w.Record("push.sample.1", one), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := to.ReadState(&state); err != nil {
		t.Fatal(err)
	}
	to.Thaw()
	want := make([]int64, len(push.SampleFields))
	want[slices.Index(push.SampleFields, "heap")], want[slices.Index(push.SampleFields, "time")] = 11, 13
	if got := to.Figures(0).Samples; len(got) != 1 || !slices.Equal(got[0], want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A door refuses what is not its own.
func TestWrongStreamsAreRefused(t *testing.T) {
	from, to := servertest.New(t, movingConfig()), servertest.New(t, movingConfig())
	streams := []*servertest.Stream{from.Events("channel=kept:a"),
		from.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`),
		from.Open("GET", "/.well-known/mercure?topic=https://a/{id}", "")}
	from.Hub.OfferStreams(true)
	if err := errors.Join(from.Freeze(t.Context()), to.Freeze(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, stream := range streams {
		state, ok := stream.Freeze()
		if !ok {
			t.Fatal("it does not move")
		}
		for n := range state {
			if err := to.Hub.ThawStream(new(servertest.Stream), state[:n]); err == nil {
				t.Errorf("stream %d: the first %d bytes of a state are taken", i, n)
			}
		}
		if err := to.Hub.ThawStream(new(servertest.Stream), bytes.Replace(state, []byte("e"), []byte("x"),
			1)); err == nil {
			t.Errorf("stream %d: the state of another door is taken", i)
		}
	}
	if n := to.Hub.Counts().Connections; n != 0 {
		t.Errorf("%d clients are left", n)
	}
	from.Thaw()
	from.Hub.OfferStreams(false)
	if _, ok := streams[0].Freeze(); ok {
		t.Error("a stream that is offered no more moves")
	}
	to.Thaw()
}

// A response that begins when the others have been offered moves with them. It begins alike through
// each door.
func TestStreamsThatBeginBesideAMoveAreOffered(t *testing.T) {
	s := servertest.New(t, movingConfig())
	begin := func() []*servertest.Stream {
		return []*servertest.Stream{s.Events("channel=kept:a"),
			s.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`),
			s.Open("GET", "/.well-known/mercure?topic=https://a/{id}", "")}
	}
	for _, offered := range []bool{true, false} {
		s.Hub.OfferStreams(offered)
		streams := begin()
		if err := s.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, stream := range streams {
			if _, ok := stream.Freeze(); ok != offered {
				t.Errorf("stream %d, offered %v: it can move: %v", i, offered, ok)
			}
		}
		s.Thaw()
	}
}

var _ hub.MovingStream = (*servertest.Stream)(nil)
