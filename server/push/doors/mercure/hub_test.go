package mercure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	mercuredoor "github.com/myriad-go/myriad/server/push/doors/mercure"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// mercureTest is a server with a hub, whose subscribers are recorded.
type mercureTest struct{ *servertest.Server }

// rights signs a token with the claim mercure.
func rights(t *testing.T, publish, subscribe []string, more ...any) string {
	c := jwt.MapClaims{"mercure": map[string]any{"publish": publish, "subscribe": subscribe,
		"payload": map[string]any{"name": "ann"}}}
	for i := 0; i < len(more); i += 2 {
		c[more[i].(string)] = more[i+1]
	}
	return tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), c)
}

// subscribe opens a stream; fields are header names and values in turn.
func (m mercureTest) subscribe(query string, fields ...string) (*servertest.Stream, http.Header) {
	m.T.Helper()
	w := m.Do("GET", mercurePath+"?"+query, "", fields...)
	if w.Code != 200 {
		m.T.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	stream := m.lastStream()
	if first := stream.TakeEvent(); !strings.HasPrefix(first, "retry: ") {
		m.T.Errorf("%s: the stream begins with %q", query, first)
	}
	return stream, w.Header()
}

func (m mercureTest) lastStream() *servertest.Stream { return m.Streams[len(m.Streams)-1] }

// post publishes a form, and returns the answer.
func (m mercureTest) post(form string, fields ...string) *httptest.ResponseRecorder {
	return m.Do("POST", mercurePath, form,
		append([]string{"Content-Type", "application/x-www-form-urlencoded"}, fields...)...)
}

// publish publishes a form, and returns the id.
func (m mercureTest) publish(form string, fields ...string) string {
	m.T.Helper()
	w := m.post(form, fields...)
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		m.T.Fatalf("%s: %d %s", form, w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMercureUpdates(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{})}
	exact, header := m.subscribe("topic=news")
	if got := header.Get("Link"); got != `</.well-known/mercure>; rel="mercure"` {
		t.Errorf("Link is %q", got)
	}
	template, _ := m.subscribe("topic=https://example.com/books/%7Bid%7D&topic=https://example.com/books/1" +
		"&topic=other")
	all, _ := m.subscribe("topic=*")
	books := url.QueryEscape("https://example.com/books/1")
	id := m.publish("topic=" + books + "&topic=news&data=" + url.QueryEscape("one\ntwo\r\nthree") +
		"&type=added&retry=5")
	want := "event: added\nretry: 5\nid: " + id + "\ndata: one\ndata: two\ndata: three\n\n"
	for name, stream := range map[string]*servertest.Stream{"exact": exact, "template": template, "all": all} {
		if got := stream.Take(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(id, "urn:uuid:") {
		t.Errorf("the id is %q", id)
	}
	if got := m.publish("topic=other&data=x&id=chosen"); got != "chosen" {
		t.Errorf("the id is %q", got)
	}
	if got := exact.Take() + template.Take(); got != "id: chosen\ndata: x\n\n" {
		t.Errorf("after an update of another topic: %q", got)
	}
	exact.Close(push.Disconnect{})
	pushtest.WaitFor(t, "the subscriber to leave", func() bool { return m.Figures(0).Connections == 2 })
}

// Requests that are wrong are refused with a reason.
func TestMercureBadRequests(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{Limits: push.Limits{Channels: 3, Publication: 1000}})}
	for _, tt := range []struct {
		query, want string
	}{
		{"", "topic is missing"}, {"topic=", "empty"}, {"topic=a%0Ab", "control"}, {"topic=a&topic=b&topic=c&topic=d",
			"at most 3"},
		{"topic=" + strings.Repeat("%7B%2Ba%7D", 100), "too many variables"},
		{"topic=" + strings.Repeat("x", mercure.MaxTopic+1), "at most 1024"},
		{"topic=a&last_event_id=x", `\"last_event_id\" is not served: the parameters are topic, lastEventID`},
		{"topic=a&lastEventId=x", `\"lastEventId\" is not`}, {"topic=a&Topic=b", `\"Topic\" is not`},
		{"topic=a&matchURLPattern=/b", `\"matchURLPattern\" is of Mercure 1.0`},
		{"topic=a&MATCH=/b", `\"MATCH\" is of`}, {"topic=a&access_token=x", `\"access_token\" is of`},
		{"match=a", `\"match\" is of Mercure 1.0`}, {"topic=a&match_urlpattern=b", `\"match_urlpattern\" is of`},
	} {
		if w := m.Do("GET", mercurePath+"?"+tt.query, ""); w.Code != 400 || !strings.Contains(w.Body.String(),
			tt.want) {
			t.Errorf("GET %.40s: %d %s", tt.query, w.Code, w.Body)
		}
	}
	for _, tt := range []struct {
		form   string
		status int
		want   string
	}{
		{"topic=a&target=b", 400, `\"target\" is not served`}, {"topic=a&Private=on", 400, `\"Private\" is not`},
		{"topic=a&data=1&data=2", 400, "data is given twice"}, {"topic=a&id=earliest", 400, "earliest"},
		{"topic=a&id=" + mercure.EventID("x", 1), 200, ""},
		{"data=1", 400, "topic is missing"}, {"topic=a&id=a%0Ab", 400, "control"}, {"topic=a&retry=soon", 400,
			"retry"},
		{"topic=a&data=%ff", 400, "UTF-8"}, {"topic=%zz", 400, "urlencoded"},
		{"topic=a&data=" + strings.Repeat("x", 1001), 413, "larger than 1000"},
		{"topic=a&data=" + strings.Repeat("x", 998) + "&type=yes", 413, "larger"},
		{strings.Repeat("x", 8000), 413, "larger"},
	} {
		if w := m.post(tt.form); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("POST %.40s: %d %s", tt.form, w.Code, w.Body)
		}
	}
	if w := m.Do("PUT", mercurePath, ""); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("PUT: %d %v", w.Code, w.Header())
	}
	if w := m.Do("HEAD", mercurePath+"?topic=a", ""); w.Code != 200 || w.Header().Get("Content-Type") !=
		"text/event-stream" || len(m.Streams) > 0 {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	if w := m.Do("GET", subscriptionsPath, ""); w.Code != 404 {
		t.Errorf("subscriptions without the option: %d", w.Code)
	}
}

// Who may have and who may send what.
func TestMercureRights(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{TokenSecret: tokentest.Secret, APIKey: "key",
		Doors: servertest.Doors(mercuredoor.Config{Anonymous: true})})}
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	mine := rights(t, nil, []string{"https://example.com/users/7/{?topic}"})
	anonymous, _ := m.subscribe("topic=*")
	ann, _ := m.subscribe("topic=*", bearer(mine)...)
	byQuery, _ := m.subscribe("topic=*&authorization=" + mine)
	byCookie, _ := m.subscribe("topic=*", "Cookie", mercureCookie+"="+mine)
	bob, _ := m.subscribe("topic=*", bearer(rights(t, nil, []string{"https://example.com/users/8/{?topic}"}))...)
	none, _ := m.subscribe("topic=*", bearer(tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret),
		jwt.MapClaims{}))...)
	all := rights(t, []string{"*"}, nil)
	private := "private=on&data=secret&topic=" + url.QueryEscape("https://example.com/books/1") + "&topic=" +
		url.QueryEscape("https://example.com/users/7/?topic=https%3A%2F%2Fexample.com%2Fbooks%2F1")
	want := "id: " + m.publish(private, bearer(all)...) + "\ndata: secret\n\n"
	for name, stream := range map[string]*servertest.Stream{"header": ann, "query": byQuery, "cookie": byCookie} {
		if got := stream.Take(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := anonymous.Take() + bob.Take() + none.Take(); got != "" {
		t.Errorf("others got the private update: %q", got)
	}
	m.publish("topic=open&data=1", "X-API-Key", "key")
	if got := anonymous.Take(); !strings.HasSuffix(got, "data: 1\n\n") {
		t.Errorf("the public update: %q", got)
	}
	some := rights(t, []string{"https://example.com/books/{id}", "news"}, nil)
	m.publish("topic=news&topic=https://example.com/books/3", bearer(some)...)
	for _, tt := range []struct {
		name   string
		status int
		fields []string
	}{
		{"no token", 401, nil},
		{"a key that is wrong", 401, []string{"X-API-Key", "wrong"}},
		{"a token that is none", 401, bearer("x.y.z")},
		{"expired", 401, bearer(rights(t, []string{"*"}, nil, "exp", m.Clock.Now().Add(-time.Second).Unix()))},
		{"another secret", 401, bearer(tokentest.Sign(t, jwt.SigningMethodHS256, []byte("another secret"),
			jwt.MapClaims{"mercure": map[string]any{"publish": []string{"*"}}}))},
		{"the token of a subscription", 401, bearer(rights(t, []string{"*"}, nil, "channel", "x"))},
		{"a malformed claim", 401, bearer(tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret),
			jwt.MapClaims{"mercure": map[string]any{"publish": "*"}}))},
		{"too many selectors", 401, bearer(rights(t, slices.Repeat([]string{"a"}, 129), nil))},
		{"without the claim", 403, bearer(mine)},
		{"with another topic", 403, bearer(some)},
		{"a cookie without an origin", 403, []string{"Cookie", mercureCookie + "=" + all}},
		{"a cookie from a page that is no site's", 403, []string{"Cookie", mercureCookie + "=" + all, "Origin",
			"null"}},
		{"a cookie from another site's page", 403, []string{"Cookie", mercureCookie + "=" + all, "Referer",
			"https://evil.example/page"}},
	} {
		if w := m.post("topic=news&topic=elsewhere&data=1", tt.fields...); w.Code != tt.status {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
	for _, fields := range [][]string{{"Origin", "http://example.com"}, {"Referer", "http://example.com/page"}} {
		if w := m.post("topic=a", append(fields, "Cookie", mercureCookie+"="+all)...); w.Code != 200 {
			t.Errorf("a cookie with %v: %d %s", fields, w.Code, w.Body)
		}
	}
	namespaced := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret),
		jwt.MapClaims{"https://mercure.rocks/": map[string]any{
			"publish": []string{"a"}}})
	m.publish("topic=a", bearer(namespaced)...)
}

// A token whose only rights are those of Mercure 1.0 is refused by name, not taken for one without
// rights.
func TestMercureRightsOfVersionOne(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{TokenSecret: tokentest.Secret})}
	details := func(of string, more jwt.MapClaims) []string {
		more["authorization_details"] = []map[string]any{{"type": "payment"}, {"type": of}}
		return []string{"Authorization", "Bearer " + tokentest.Sign(t, jwt.SigningMethodHS256,
			[]byte(tokentest.Secret), more)}
	}
	for _, tt := range []struct {
		name   string
		fields []string
		status int
	}{
		{"of Mercure 1.0", details(mercureDetail, jwt.MapClaims{}), 401},
		{"of the last draft", details(mercureLastDetail, jwt.MapClaims{}), 401},
		{"of tomorrow", details("other", jwt.MapClaims{"mercure": map[string]any{"until": "noon"}}), 401},
		{"of another service", details("other", jwt.MapClaims{}), 200},
		{"of both versions", details(mercureDetail, jwt.MapClaims{"mercure": map[string]any{}}), 200},
	} {
		w := m.Do("HEAD", mercurePath+"?topic=a", "", tt.fields...)
		if w.Code != tt.status {
			t.Errorf("rights %s: %d, want %d", tt.name, w.Code, tt.status)
		}
	}
	if w := m.post("topic=a", details(mercureDetail, jwt.MapClaims{})...); !strings.Contains(w.Body.String(),
		"authorization_details is of Mercure 1.0") {
		t.Errorf("publishing with rights of Mercure 1.0: %d %s", w.Code, w.Body)
	}
}

// A stream ends when its token expires, and the hub can be closed to clients without tokens.
func TestMercureTokenEnds(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{TokenSecret: tokentest.Secret,
		Doors: servertest.Doors(mercuredoor.Config{PublisherSecret: "publisher's"})})}
	if w := m.Do("GET", mercurePath+"?topic=a", ""); w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	stream, _ := m.subscribe("topic=a", "Authorization", "Bearer "+rights(t, nil, nil, "exp",
		m.Clock.Now().Add(time.Minute).Unix()))
	if w := m.post("topic=a", "Authorization", "Bearer "+rights(t, []string{"*"}, nil)); w.Code != 401 {
		t.Errorf("a publisher with the subscribers' secret: %d", w.Code)
	}
	m.publish("topic=a&data=1", "Authorization", "Bearer "+tokentest.Sign(t, jwt.SigningMethodHS256,
		[]byte("publisher's"),
		jwt.MapClaims{"mercure": map[string]any{"publish": []string{"a"}}}))
	if got := stream.Take(); !strings.HasSuffix(got, "data: 1\n\n") {
		t.Errorf("received %q", got)
	}
	m.Clock.Advance(62 * time.Second)
	if !stream.IsClosed() {
		t.Error("the stream has outlived its token")
	}
}

// A subscriber that comes back gets what it has missed, once, and is told where that begins.
func TestMercureHistory(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{Limits: push.Limits{Recovered: 3},
		Doors: servertest.Doors(mercuredoor.Config{HistorySize: 6})})}
	data := func(stream *servertest.Stream) (list []string) {
		for line := range strings.SplitSeq(stream.Take(), "\n") {
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				list = append(list, text)
			}
		}
		return list
	}
	empty, header := m.subscribe("topic=a&lastEventID=urn:uuid:unknown")
	if got := header.Get("Last-Event-ID"); got != "earliest" || len(data(empty)) > 0 {
		t.Errorf("before all updates: %q", got)
	}
	ids := []string{""}
	for i := 1; i <= 5; i++ {
		form := fmt.Sprintf("topic=a&data=%d", i)
		if i == 4 {
			form += "&id=chosen"
		}
		ids = append(ids, m.publish(form))
		m.publish("topic=hidden&private=on&data=secret")
	}
	// the history has 3, 4, 5, each followed by a private one
	for _, tt := range []struct {
		id, found string
		want      []string
	}{
		{ids[5], ids[5], nil},
		{ids[4], "chosen", []string{"5"}},
		{ids[3], ids[3], []string{"4", "5"}},
		{ids[1], "earliest", []string{"3", "4", "5"}},
		{"earliest", "earliest", []string{"3", "4", "5"}},
		{"never heard of", "earliest", []string{"3", "4", "5"}},
	} {
		stream, header := m.subscribe("topic=*", "Last-Event-ID", tt.id)
		if got := data(stream); header.Get("Last-Event-ID") != tt.found || !slices.Equal(got, tt.want) {
			t.Errorf("after %s: %q from %s, want %q from %s", tt.id, got, header.Get("Last-Event-ID"), tt.want,
				tt.found)
		}
	}
	m.publish("topic=a&data=6")
	m.publish("topic=a&data=7")
	last := m.publish("topic=a&data=8")
	if got := data(m.lastStream()); !slices.Equal(got, []string{"6", "7", "8"}) {
		t.Errorf("after the history: %q", got)
	}
	stream, header := m.subscribe("topic=a&lastEventID=" + ids[5])
	if got := data(stream); header.Get("Last-Event-ID") != ids[5] || !slices.Equal(got, []string{"6", "7", "8"}) {
		t.Errorf("after 5: %q from %s", got, header.Get("Last-Event-ID"))
	}
	m.publish("topic=a&data=9")
	stream, header = m.subscribe("topic=a&lastEventID=" + ids[5])
	if got := data(stream); header.Get("Last-Event-ID") == ids[5] || !slices.Equal(got, []string{"7", "8", "9"}) {
		t.Errorf("more than Limits.Recovered: %q from %s", got, header.Get("Last-Event-ID"))
	}
	if _, header := m.subscribe("topic=a&lastEventID=" + last); header.Get("Last-Event-ID") != last {
		t.Errorf("after 8: from %s, want %s", header.Get("Last-Event-ID"), last)
	}
	if got := m.Hub.IsChannelName(mercureLog); got {
		t.Error("the log of updates is a channel that clients can subscribe to")
	}
}

// A publisher that may publish to one topic cannot take the history of others from their
// subscribers, by an id that they know: the hub's word for the whole history, one that the hub has
// made or will make, or one that an update of another topic has.
func TestAttackMercureIDs(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{TokenSecret: tokentest.Secret,
		Doors: servertest.Doors(mercuredoor.Config{HistorySize: 6})})}
	all := []string{"Authorization", "Bearer " + rights(t, []string{"*"}, []string{"*"})}
	eve := []string{"Authorization", "Bearer " + rights(t, []string{"mine/x"}, nil)}
	data := func(query string) (list []string, from string) {
		stream, header := m.subscribe(query, all...)
		for line := range strings.SplitSeq(stream.Take(), "\n") {
			if text, ok := strings.CutPrefix(line, "data: "); ok && !strings.HasPrefix(text, "{") {
				list = append(list, text)
			}
		}
		stream.Close(push.Disconnect{})
		return list, header.Get("Last-Event-ID")
	}
	want := func(query, from string, want ...string) {
		t.Helper()
		if got, begin := data(query); begin != from || !slices.Equal(got, want) {
			t.Errorf("%s: %q from %q, want %q from %q", query, got, begin, want, from)
		}
	}
	first := m.publish("topic=theirs/1&data=1&id=A", all...)
	second := m.publish("topic=theirs/1&data=2", all...)
	epoch := m.topEpoch(t)
	for _, id := range []string{"earliest", second, strings.ToUpper(second), mercure.EventID(epoch, 3),
		mercure.EventID(epoch, 99)} {
		if w := m.post("topic=mine/x&data=evil&id="+id, eve...); w.Code != 400 {
			t.Errorf("the id %s: %d %s", id, w.Code, w.Body)
		}
	}
	m.publish("topic=mine/x&data=evil&id="+first, eve...)
	m.publish("topic=theirs/1&data=3", all...)
	want("topic=theirs/1&lastEventID=A", "A", "2", "3")
	want("topic=*&lastEventID=A", "A", "2", "evil", "3") // rather twice than not at all
	want("topic=theirs/1&lastEventID=earliest", "earliest", "1", "2", "3")
	want("topic=theirs/1&lastEventID="+second, second, "3")
	for i := 4; i <= 7; i++ { // the first A is dropped, that of another topic is not
		m.publish(fmt.Sprintf("topic=theirs/1&data=%d", i), all...)
	}
	want("topic=theirs/1&lastEventID=A", "earliest", "3", "4", "5", "6", "7")
	// nor can the list of subscriptions be made to name an update of another topic
	m = mercureTest{servertest.New(t, push.Config{TokenSecret: tokentest.Secret,
		Doors: servertest.Doors(mercuredoor.Config{Subscriptions: true})})}
	m.publish("topic=theirs/1&data=1&id=A", all...)
	m.publish("topic=mine/x&data=evil&id=A", eve...)
	var list struct{ LastEventID string }
	w := m.Do("GET", subscriptionsPath, "", all...)
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || list.LastEventID == "A" {
		t.Errorf("the list of subscriptions: %s", w.Body)
	}
	want("topic=theirs/1&lastEventID="+list.LastEventID, list.LastEventID)
}

// topEpoch returns the epoch of the hub's log.
func (m mercureTest) topEpoch(t *testing.T) string {
	t.Helper()
	keep := bus.Retention{Size: 6, Age: mercureHistoryAge} // the size is that of the tests
	h, err := m.Config().Bus.History(t.Context(), bus.Topic{Name: mercureLog, Keep: keep}, push.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return h.Top.Epoch
}

// Subscribers that come back under a continuous load get every update once and in order.
func TestMercureResumesUnderLoad(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{Doors: servertest.Doors(mercuredoor.Config{HistorySize: 10_000}),
		Limits: push.Limits{Recovered: 10_000}})}
	const updates = 1000
	first := m.publish("topic=a&data=0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range updates {
			m.publish(fmt.Sprintf("topic=a&data=%d", i+1))
		}
	}()
	var streams []*servertest.Stream
	for range 40 {
		stream, _ := m.subscribe("topic=a", "Last-Event-ID", first)
		streams = append(streams, stream)
	}
	<-done
	for _, stream := range streams {
		next := 1
		for line := range strings.SplitSeq(stream.Take(), "\n") {
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				if text != fmt.Sprint(next) {
					t.Fatalf("received %s, want %d", text, next)
				}
				next++
			}
		}
		if next != updates+1 {
			t.Fatalf("received %d updates, want %d", next-1, updates)
		}
	}
}

func TestMercureSubscriptions(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{TokenSecret: tokentest.Secret,
		Doors: servertest.Doors(mercuredoor.Config{Subscriptions: true,
			Anonymous: true})})}
	watch := rights(t, nil, []string{subscriptionsPath + "{/topic}{/subscriber}", subscriptionsPath})
	watcher, _ := m.subscribe("topic="+url.QueryEscape(subscriptionsPath+"/books%2F%7Bid%7D{/subscriber}"),
		"Authorization",
		"Bearer "+watch)
	watcher.Take()
	books, _ := m.subscribe("topic=books/%7Bid%7D&topic=news", "Authorization", "Bearer "+rights(t, nil, nil))
	event := func() (about toldSubscription) {
		t.Helper()
		pushtest.WaitFor(t, "an event", func() bool {
			m.Clock.Advance(0) // the end of a subscription is announced by a timer
			_, text, found := strings.Cut(watcher.Take(), "data: ")
			return found && json.Unmarshal([]byte(strings.TrimSpace(text)), &about) == nil
		})
		return about
	}
	began := event()
	if !began.Active || began.Topic != "books/{id}" || began.Type != "Subscription" || string(began.Payload) !=
		`{"name":"ann"}` || began.ID != subscriptionsPath+"/books%2F%7Bid%7D/"+url.QueryEscape(began.Subscriber) {
		t.Errorf("the subscription is %+v", began)
	}
	list := func(path string, fields ...string) (*httptest.ResponseRecorder, map[string]any) {
		w := m.Do("GET", path, "", append(fields, "Authorization", "Bearer "+watch)...)
		var document map[string]any
		if w.Code == 200 && json.Unmarshal(w.Body.Bytes(), &document) != nil {
			t.Errorf("%s: %s", path, w.Body)
		}
		return w, document
	}
	w, all := list(subscriptionsPath)
	if w.Header().Get("Content-Type") != "application/ld+json" || all["type"] != "Subscriptions" ||
		len(all["subscriptions"].([]any)) != 3 || all["@context"] != mercureContext ||
		all["id"] != subscriptionsPath {
		t.Errorf("all: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w, _ := list(subscriptionsPath, "If-None-Match", w.Header().Get("ETag")); w.Code != 304 {
		t.Errorf("if nothing has changed: %d", w.Code)
	}
	if w, some := list(subscriptionsPath + "/news"); len(some["subscriptions"].([]any)) != 1 {
		t.Errorf("of a topic: %s", w.Body)
	}
	if w, one := list(began.ID); one["subscriber"] != began.Subscriber || one["active"] != true ||
		one["lastEventID"] != all["lastEventID"] {
		t.Errorf("one: %d %s", w.Code, w.Body)
	}
	if w, _ := list(subscriptionsPath + "/news/nobody"); w.Code != 404 {
		t.Errorf("none: %d", w.Code)
	}
	for token, status := range map[string]int{"": 401, rights(t, nil, []string{"news"}): 403} {
		if w := m.Do("GET", subscriptionsPath, "", "Authorization", "Bearer "+token); w.Code != status {
			t.Errorf("with the token %q: %d %s", token, w.Code, w.Body)
		}
	}
	books.Close(push.Disconnect{})
	if event().Active {
		t.Error("the end of the subscription is active")
	}
	if w, _ := list(began.ID); w.Code != 404 {
		t.Errorf("after its end: %d", w.Code)
	}
}

// Pages of allowed origins may send the cookie, those that only * allows may not.
func TestMercureCORS(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{AllowedOrigins: []string{"https://app.example.org", "*"}})}
	for origin, credentials := range map[string]string{"https://app.example.org": "true",
		"https://other.example.org": ""} {
		_, header := m.subscribe("topic=a", "Origin", origin)
		if header.Get("Access-Control-Allow-Origin") != origin || header.Get("Access-Control-Allow-Credentials") !=
			credentials || !strings.Contains(header.Get("Access-Control-Expose-Headers"), "Last-Event-ID") {
			t.Errorf("%s: %v", origin, header)
		}
	}
	if w := m.Do("OPTIONS", mercurePath, "", "Origin", "https://app.example.org", "Access-Control-Request-Method",
		"GET"); w.Code != 204 || w.Header().Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("preflight: %d %v", w.Code, w.Header())
	}
}

// A subscriber that does not read is disconnected; templates that begin alike are bounded.
func TestAttackMercure(t *testing.T) {
	m := mercureTest{servertest.New(t, push.Config{Limits: push.Limits{Queue: 1000}})}
	slow, _ := m.subscribe("topic=a")
	other, _ := m.subscribe("topic=a")
	slow.SetQueued(999)
	m.publish("topic=a&data=123")
	if !slow.IsClosed() || other.IsClosed() || m.Figures(0).SlowDisconnects != 1 {
		t.Errorf("slow: closed %v, other: closed %v", slow.IsClosed(), other.IsClosed())
	}
	refused := 0
	for i := range mercure.MaxAlike + 10 {
		if w := m.Do("GET", mercurePath+"?topic="+url.QueryEscape(fmt.Sprintf("{+a*}%d", i)), ""); w.Code == 429 {
			refused++
		}
	}
	if refused != 10 {
		t.Errorf("%d templates were refused", refused)
	}
	pushtest.WaitFor(t, "the refused sessions to end", func() bool {
		return m.Figures(0).Connections == mercure.MaxAlike+1
	})
	m.publish("topic=" + strings.Repeat("a", mercure.MaxTopic))
}

// When the bus has lost updates, streams end: their clients come back and continue.
func TestMercureLost(t *testing.T) {
	bus := &lossyBus{Bus: membus.New(membus.Config{})}
	m := mercureTest{servertest.New(t, push.Config{Bus: bus})}
	stream, _ := m.subscribe("topic=a")
	bus.receiver.Lost(mercureLog)
	if !stream.IsClosed() {
		t.Error("the stream goes on")
	}
}

// A lossyBus keeps the last receiver.
type lossyBus struct {
	bus.Bus
	receiver bus.Receiver
}

func (b *lossyBus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	b.receiver = r
	return b.Bus.Subscribe(ctx, t, r)
}

// A toldSubscription is what an update says of a subscription.
type toldSubscription struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Subscriber string          `json:"subscriber"`
	Topic      string          `json:"topic"`
	Active     bool            `json:"active"`
	Payload    json.RawMessage `json:"payload"`
}

// What the tests of the Mercure hub name of it.
const (
	mercurePath       = "/.well-known/mercure"
	subscriptionsPath = mercurePath + "/subscriptions"
	mercureCookie     = "mercureAuthorization"
	mercureContext    = "https://mercure.rocks/"
	mercureDetail     = "https://mercure.rocks/authorization-detail"
	mercureLastDetail = "mercure"
	mercureLog        = "\x00mercure"
	mercureHistoryAge = time.Hour
)
