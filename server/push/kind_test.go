package push

import (
	"context"
	"testing"
)

// Data of each kind is checked when it is published, and is JSON for clients of a JSON protocol.
func TestKinds(t *testing.T) {
	n := newTestNode(t)
	c := n.dial()
	c.frame([]byte(connectAndSubscribe))
	c.take()
	for _, tt := range []struct {
		kind Kind
		data string
		want string // empty: it is refused
	}{
		{JSON, "{\"a\":\n 1}", `{"a":1}`},
		{JSON, "hello", ""},
		{JSON, "\"\xff\"", ""},
		{Text, "a \"b\"\n\u2028", `"a \"b\"\u000a` + "\u2028" + `"`},
		{Text, "\xff", ""},
		{Binary, "\xff\x00", `"/wA="`},
		{Binary, "", `""`},
	} {
		_, err := n.publish(context.Background(), "news", Publication{Data: []byte(tt.data), Kind: tt.kind})
		got := c.take()
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
