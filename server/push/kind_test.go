package push_test

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// Bytes that are JSON stay as they are, with their spaces; JSON in a request is compacted, and so
// are newlines, which end a message.
func TestBytesStayAsTheyAre(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 9}}})
	f := new(servertest.Transport)
	f.Session = ts.Hub.Start(f, servertest.ProtobufForm, nil)
	t.Cleanup(f.Leave)
	if _, err := f.Session.Connect(push.ConnectRequest{}); err != nil {
		t.Fatal(err)
	}
	// The command publish (7) with a channel (1) and data (2).
	for _, data := range []string{`{"a": 1}`, "{\"b\":\r\n 1}"} {
		body := "\x0a\x04news\x12" + string(rune(len(data))) + data
		command := "\x08\x02\x3a" + string(rune(len(body))) + body
		f.Frame([]byte(string(rune(len(command))) + command))
	}
	ts.Call("publish", `{"channel":"news","b64data":"eyJjIjogMX0="}`)
	ts.Call("publish", `{"channel":"news","data":{"d": 1}}`)
	h, err := ts.Config().Bus.History(t.Context(), ts.Hub.Topic("news"), push.Query{Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, p := range h.Publications {
		kept = append(kept, string(p.Data))
	}
	if got := strings.Join(kept, " | "); got != `{"a": 1} | {"b":1} | {"c": 1} | {"d":1}` {
		t.Errorf("kept %s; the client got %q", got, f.Take())
	}
}
