package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push"

	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A server has the door.
type server struct {
	*push.Server
	t *testing.T
}

func newServer(t *testing.T, c push.Config) server {
	t.Helper()
	c.Doors = []hub.Door{New()}
	s, err := push.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server{s, t}
}

// do sends a request; fields are header names and values in turn.
func (s server) do(method, target, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// Each method of the table has one name in the gRPC API, which leads to it.
func TestRPCNames(t *testing.T) {
	for _, m := range methods {
		if got := rpcMethods()[rpcName(m.name)]; got != m.name {
			t.Errorf("%s leads to %q", rpcName(m.name), got)
		}
	}
}

func TestParseTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second,
		"4m": 4 * time.Millisecond, "5u": 5 * time.Microsecond, "6n": 6, "0n": 0, "99999999H": 1<<63 - 1,
		"99999999S": 99999999 * time.Second} {
		if got, ok := parseTimeout(text); got != want || !ok {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "S", "1", "1s", "-1S", "+1S", "1.5S", "123456789S", "S1", "1 S", "_1S"} {
		if got, ok := parseTimeout(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestPercentEncoded(t *testing.T) {
	if got := percentEncoded("a b%\n\"é~"); got != `a b%25%0A"%C3%A9~` {
		t.Error(got)
	}
}

// A message is either refused or within the limit, and one that is not compressed is what comes
// after its prefix.
func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x03abc"), "")
	f.Add([]byte("\x01\x00\x00\x00\x03abc"), "gzip")
	f.Add([]byte("\x00\x00\x00\x00\x00\x00"), "identity")
	f.Fuzz(func(t *testing.T, body []byte, encoding string) {
		const limit = 1000
		p, failed := readMessage(bytes.NewReader(body), encoding, limit)
		switch {
		case failed != nil && (failed.code == rpcOK || p != nil):
			t.Fatalf("%x: %x with %v", body, p, failed)
		case failed == nil && len(p) > limit:
			t.Fatalf("%x: %d bytes", body, len(p))
		case failed == nil && body[0] == 0 && !bytes.Equal(rpcFrame(p), body):
			t.Fatalf("%x is read as %x", body, p)
		}
	})
}

func TestCommandList(t *testing.T) {
	for text, want := range map[string]string{
		`null`:        "0 false <nil>",
		`[]`:          "0 false <nil>",
		`[{},null,1]`: "3 false <nil>",
		`[1,2,3,4]`:   "3 true <nil>",
		`{"info":{}}`: "0 false commands is not an array",
	} {
		c := commandList{most: 3}
		if err := c.UnmarshalJSON([]byte(text)); fmt.Sprint(len(c.list), c.full, err) != want {
			t.Errorf("%s: %d commands, full %t, %v; want %s", text, len(c.list), c.full, err, want)
		}
	}
}

// If plainPublish accepts a body, encoding/json parses it to the same request.
func FuzzPlainPublish(f *testing.F) {
	plain := 0
	for _, body := range []string{
		`{"channel":"news","data":1}`, `{"channel": "news", "data": {"a": [1, "}"]}}`,
		`{"channel":"a b~","data":null }`, `{"channel":"","data":"x"}`,
	} {
		if _, ok := plainPublish([]byte(body)); ok {
			plain++
		}
		f.Add([]byte(body))
	}
	if plain != 4 {
		f.Errorf("only %d of 4 are plain", plain)
	}
	for _, body := range []string{
		`{"channel":"n\u0065ws","data":1}`, `{"channel":"n\"","data":1}`, `{"channel":"a","data":1,"data":2}`,
		`{"channel":"a","data":}`,
		`{"channel":"a","data":{}`, `{"channel":"a","data":1}}`, `{"channel":"a","data":1,"channel":"b"}`,
		`{"channel":"\xff","data":1}`,
		`{"data":1,"channel":"a"}`, `{"channel":"a"}`, `{"channel":"a" ,"data":1}`, `{"channel":"\n","data":1}`,
		`{"channel":"a","data":1} x`,
	} {
		if req, ok := plainPublish([]byte(body)); ok {
			f.Errorf("plainPublish accepts %s: %q, %s", body, req.Channel, req.Data)
		}
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := plainPublish(body)
		if !ok {
			return
		}
		var want request
		if err := json.Unmarshal(body, &want); err != nil || got.Channel != want.Channel ||
			!bytes.Equal(got.Data, want.Data) {
			t.Errorf("%q is %q and %q, and for encoding/json %q and %q, %v", body, got.Channel, got.Data, want.Channel,
				want.Data, err)
		}
	})
}

// docs/guides/api.md has a line for each method, with the fields and the result in the table of the
// API.
func TestGuideListsTheAPI(t *testing.T) {
	text, err := os.ReadFile("../../../docs/guides/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range methods {
		if !strings.Contains(string(text), m.row()) {
			t.Errorf("docs/guides/api.md has no line\n%s", m.row())
		}
	}
	for name, instead := range unservedMethods {
		if !strings.Contains(string(text), "| `"+name+"` | "+instead+" |") {
			t.Errorf("docs/guides/api.md does not say of the method %q: %s", name, instead)
		}
	}
	for name, instead := range unservedFields {
		if !strings.Contains(string(text), "| `"+name+"` | "+instead+" |") {
			t.Errorf("docs/guides/api.md does not say of the field %q: %s", name, instead)
		}
	}
}
