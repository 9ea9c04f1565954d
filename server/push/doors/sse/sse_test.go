package sse

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

func TestForms(t *testing.T) {
	list := []bus.Publication{{Data: []byte(`{"a":1}`)}, {Data: []byte("2"), Position: bus.Position{Offset: 7,
		Epoch: "e"}}}
	for f, want := range map[form]string{
		{}:                            "data: {\"a\":1}\n\ndata: 2\n\n",
		{named: true}:                 "event: news\ndata: {\"a\":1}\n\nevent: news\ndata: 2\n\n",
		{numbered: true}:              "data: {\"a\":1}\n\nid: e:7\ndata: 2\n\n",
		{named: true, numbered: true}: "event: news\ndata: {\"a\":1}\n\nid: e:7\nevent: news\ndata: 2\n\n",
	} {
		payload := f.Publications("news", list)
		if got := string(payload); got != want {
			t.Errorf("form %#v: %q, want %q", f, got, want)
		}
		f.Share(payload).Release()
	}
}

// A stream may not be kept by a proxy or a browser, nor taken for something else. The header is
// that of an answer whose head has not been sent.
func TestHeaderOfStreams(t *testing.T) {
	d := New()
	s, err := push.New(push.Config{Doors: []hub.Door{d}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown(context.Background())
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/events?channel=news", nil)) // fails: it is not served by web.Server
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no",
		"X-Content-Type-Options": "nosniff"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if w.Code != http.StatusInternalServerError {
		t.Errorf("without web.Server: %d", w.Code)
	}
}

// An id is epoch:offset. Any other is of another server, so that nothing can be recovered.
func TestResumption(t *testing.T) {
	for _, tt := range []struct {
		header, query string
		want          hub.SubscribeCommand
	}{
		{"", "", hub.SubscribeCommand{}},
		{"e:7", "", hub.SubscribeCommand{Recover: true, Since: bus.Position{Offset: 7, Epoch: "e"}}},
		{"", "?last_event_id=e:7", hub.SubscribeCommand{Recover: true, Since: bus.Position{Offset: 7, Epoch: "e"}}},
		{"f:8", "?last_event_id=e:7", hub.SubscribeCommand{Recover: true, Since: bus.Position{Offset: 8,
			Epoch: "f"}}},
		{"e", "", hub.SubscribeCommand{Recover: true, Since: bus.Position{Epoch: "?"}}},
		{"e:x", "", hub.SubscribeCommand{Recover: true, Since: bus.Position{Epoch: "?"}}},
		{":7", "", hub.SubscribeCommand{Recover: true, Since: bus.Position{Offset: 7, Epoch: "?"}}},
	} {
		r := httptest.NewRequest("GET", "/events"+tt.query, nil)
		if tt.header != "" {
			r.Header.Set("Last-Event-ID", tt.header)
		}
		if got := resumption(r); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q %q: %+v, want %+v", tt.header, tt.query, got, tt.want)
		}
	}
}
