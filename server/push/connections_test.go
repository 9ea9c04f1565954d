package push_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// The API lists a user's connections with their subscriptions, as Centrifugo PRO does. Clients
// that have not connected are left out.
func TestAPIConnections(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	ann, bob := ts.Client(jwt.MapClaims{"sub": "ann"}), ts.Client(jwt.MapClaims{"sub": "bob"})
	ann.Frame([]byte(`{"id":2,"subscribe":{"channel":"b"}}` + "\n" + `{"id":3,"subscribe":{"channel":"a"}}`))
	waiting := new(servertest.Transport)
	waiting.Session = ts.Hub.Start(waiting, servertest.JSONForm, nil)
	t.Cleanup(waiting.Leave)
	one := func(f *servertest.Transport, user, channels string) string {
		return fmt.Sprintf(`"%s":{"transport":"websocket","protocol":"json","user":"%s","state":{"channels":{%s}}}`,
			f.Session.ID(), user, channels)
	}
	if got, want := ts.Call("connections", `{"user":"ann"}`),
		`{"result":{"connections":{`+one(ann, "ann", `"a":{},"b":{}`)+`}}}`; got != want {
		t.Errorf("of ann: %s, want %s", got, want)
	}
	if got := ts.Call("connections", `{}`); !strings.Contains(got, one(ann, "ann", `"a":{},"b":{}`)) ||
		!strings.Contains(got, one(bob, "bob", "")) || strings.Contains(got, waiting.Session.ID()) {
		t.Errorf("of all: %s", got)
	}
	if got := ts.Call("connections", `{"user":"nobody"}`); got != `{"result":{"connections":{}}}` {
		t.Errorf("of nobody: %s", got)
	}
	if got := ts.Call("connections", `{"expression":"true"}`); !strings.Contains(got, `"code":107`) {
		t.Errorf("with an expression: %s", got)
	}
}

// An answer holds push.MostConnections, and says so for more.
func TestAPIConnectionsAreBounded(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	for range push.MostConnections + 1 {
		ts.Client(jwt.MapClaims{"sub": "ann"})
	}
	if got := ts.ConnectionsHere(1 << 30); got.Total != push.MostConnections+1 ||
		len(got.Connections) != push.MostConnections {
		t.Errorf("%d of %d connections", len(got.Connections), got.Total)
	}
	var why push.Error
	if _, err := ts.Connections(t.Context(), ""); !errors.As(err, &why) || why.Code != push.ErrLimitExceeded.Code {
		t.Errorf("%v", err)
	}
}

// The descriptions of a node's connections have push.ConnectionBytes.
func TestConnectionsHaveABoundInBytes(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	limits := ts.Config().Limits
	for i := range 100 {
		c := ts.Client(jwt.MapClaims{"sub": "ann"})
		for j := range limits.Channels {
			name := fmt.Sprintf("%d-%d-", i, j)
			c.Frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"%s"}}`,
				name+strings.Repeat("x", limits.ChannelName-len(name))))
		}
	}
	got := ts.ConnectionsHere(push.MostConnections)
	body, err := json.Marshal(got)
	if err != nil || got.Total != 100 || len(got.Connections) == 100 || len(body) > push.ConnectionBytes ||
		len(body) < push.ConnectionBytes/2 {
		t.Errorf("%d of %d connections in %d bytes, %v", len(got.Connections), got.Total, len(body), err)
	}
}

// The console finds connections by a part of the user or the beginning of the id.
func TestConsoleFindsClients(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, APIKey: "key", Node: "n1"})
	ann := ts.Client(jwt.MapClaims{"sub": "ann <b>"})
	for i := range shownConnections + 5 {
		ts.Client(jwt.MapClaims{"sub": fmt.Sprintf("bob-%02d", i)})
	}
	ann.Frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	find := func(match string) (l push.ConnectionList) {
		t.Helper()
		w := ts.Do("GET", "/console/connections?match="+match, "", "X-API-Key", "key")
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
			t.Fatal(err, w.Body)
		}
		return l
	}
	for _, match := range []string{"%3Cb", ann.Session.ID()[:13]} {
		l := find(match)
		if l.Total != 1 || len(l.Connections) != 1 {
			t.Fatalf("%s: %+v", match, l)
		}
		if c := l.Connections[0]; c.User != "ann <b>" || c.Client != ann.Session.ID() || c.Node != "n1" ||
			c.Remote != "192.0.2.1:1234" || fmt.Sprint(c.Channels) != "[news]" || c.Transport != "websocket" {
			t.Errorf("%s: %+v", match, c)
		}
	}
	if l := find("bob"); l.Total != shownConnections+5 || len(l.Connections) != shownConnections ||
		l.Connections[0].User != "bob-00" {
		t.Errorf("%d of %d: %+v", len(l.Connections), l.Total, l.Connections[0])
	}
	if l := find("none"); l.Total != 0 || l.Connections == nil {
		t.Errorf("none: %+v", l)
	}
}
