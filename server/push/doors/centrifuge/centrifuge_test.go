package centrifuge

import (
	"net/http/httptest"
	"testing"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// A client by WebSocket asks for Protobuf by its subprotocol, which may be one of several, or in
// the query.
func TestCodecOf(t *testing.T) {
	for _, tt := range []struct {
		query, protocols string
		want             centrifuge.Codec
	}{
		{"", "", centrifuge.JSON},
		{"", "centrifuge-json", centrifuge.JSON},
		{"", "centrifuge-protobuf", centrifuge.Protobuf},
		{"", "chat, centrifuge-protobuf", centrifuge.Protobuf},
		{"?format=protobuf", "", centrifuge.Protobuf},
		{"?cf_protocol=protobuf", "", centrifuge.Protobuf},
		{"?format=json", "", centrifuge.JSON},
	} {
		r := httptest.NewRequest("GET", "/connection/websocket"+tt.query, nil)
		if tt.protocols != "" {
			r.Header.Set("Sec-WebSocket-Protocol", tt.protocols)
		}
		if got := codecOf(r); got != tt.want {
			t.Errorf("%q with %q: %v, want %v", tt.query, tt.protocols, got, tt.want)
		}
	}
}

// Messages stand in a connection as its transport needs: Server-Sent Events have no line breaks in
// an event, lines end with one, and a WebSocket has messages of its own.
func TestFrame(t *testing.T) {
	const replies = "{\"id\":1}\n{\"id\":2}"
	for f, want := range map[form]string{
		{centrifuge.JSON, inSocket, false}:       replies,
		{centrifuge.JSON, inResponse, false}:     replies + "\n",
		{centrifuge.JSON, inEvents, false}:       "data: {\"id\":1}\n\ndata: {\"id\":2}\n\n",
		{centrifuge.Protobuf, inResponse, false}: replies,
	} {
		if got := f.frame([]byte(replies)); string(got) != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

// Every form has a message by which a client learns why its response ends, and one that says that
// the server has ended a subscription.
func TestFormsTellEnds(t *testing.T) {
	for _, one := range New().Forms() {
		f := one.(form)
		for name, payload := range map[string][]byte{
			"the last message": f.lastMessage(answer.DisconnectShutdown),
			"an unsubscription": f.Unsubscribed("news", answer.Unsubscription{Code: 2500,
				Reason: "insufficient state"}),
		} {
			if len(payload) == 0 {
				t.Errorf("%+v has nothing for %s", f, name)
			}
		}
		if _, answered := f.Ping(); answered == f.uni {
			t.Errorf("%+v: its clients answer pings: %t", f, answered)
		}
	}
}
