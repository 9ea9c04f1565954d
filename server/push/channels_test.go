package push_test

import (
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/servertest"

	"github.com/myriad-go/myriad/buf"
)

func TestForms(t *testing.T) {
	buf.CheckLeaks(t)
	list := []push.Publication{{Data: []byte(`{"a":1}`)}, {Data: []byte("2"), Position: push.Position{Offset: 7,
		Epoch: "e"}}}
	for f, want := range map[hub.Form]string{
		servertest.JSONForm: `{"push":{"channel":"news","pub":{"data":{"a":1}}}}` + "\n" +
			`{"push":{"channel":"news","pub":{"data":2,"offset":7}}}`,
	} {
		payload := f.Publications("news", list)
		if got := string(payload); got != want {
			t.Errorf("form %#v: %q, want %q", f, got, want)
		}
		f.Share(payload).Release()
	}
}
