package hub

import (
	"context"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// Data of each kind is checked when it is published, and is JSON for clients of a JSON protocol.
func TestKinds(t *testing.T) {
	n := newTestNode(t)
	c := n.dial()
	c.frame([]byte(connectAndSubscribe))
	c.Take()
	for _, tt := range []struct {
		kind bus.Kind
		data string
		want string // empty: it is refused
	}{
		{bus.JSON, "{\"a\":\n 1}", `{"a":1}`},
		{bus.JSON, "hello", ""},
		{bus.JSON, "\"\xff\"", ""},
		{bus.Text, "a \"b\"\n\u2028", `"a \"b\"\u000a` + "\u2028" + `"`},
		{bus.Text, "\xff", ""},
		{bus.Binary, "\xff\x00", `"/wA="`},
		{bus.Binary, "", `""`},
	} {
		_, err := n.publish(context.Background(), "news", bus.Publication{Data: []byte(tt.data), Kind: tt.kind})
		got := c.Take()
		if tt.want == "" {
			if err == nil || len(got) > 0 {
				t.Errorf("%q of kind %d was accepted: %q", tt.data, tt.kind, got)
			}
			continue
		}
		if want := `{"push":{"channel":"news","pub":{"data":` + tt.want + `}}}`; err != nil || len(got) != 1 ||
			got[0] != want {
			t.Errorf("%q of kind %d was received as %q, %v, want %q", tt.data, tt.kind, got, err, want)
		}
	}
}

func TestTags(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{HistorySize: 3}))
	c := n.connected("news")
	p := bus.Publication{Data: []byte("1"), Tags: map[string]string{"b": "2", "a": "é\n"}}
	if _, err := n.publish(t.Context(), "news", p); err != nil {
		t.Fatal(err)
	}
	c.Want(t, "with tags", `{"push":{"channel":"news","pub":{"data":1,"offset":1,"tags":{"a":"é\u000a","b":"2"}}}}`)
}

// A pattern subscriber of the Redis door does not get what is dropped, either.
func TestVersionsOfPatterns(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{HistorySize: 5}))
	for _, number := range []uint64{2, 1} {
		at, err := n.publish(t.Context(), "news", bus.Publication{Data: []byte("1"),
			Version: &bus.Version{Number: number}})
		if at.Offset != 1 || (err != nil) != (number == 1) {
			t.Errorf("version %d: at %d, %v", number, at.Offset, err)
		}
	}
	if got := n.figures.publishes.Load(); got != 1 {
		t.Errorf("%d publications are counted", got)
	}
}
