package sse

import (
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

func TestForms(t *testing.T) {
	list := []push.Publication{{Data: []byte(`{"a":1}`)}, {Data: []byte("2"), Position: push.Position{Offset: 7,
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
