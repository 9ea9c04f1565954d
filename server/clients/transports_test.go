package clients

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Each transport of the client library, in each codec, subscribes, publishes, receives deltas, and
// is told why it is disconnected.
func TestTransports(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ transport, codec string }{
		{"websocket", "json"}, {"websocket", "protobuf"},
		{"http_stream", "json"}, {"http_stream", "protobuf"},
		{"sse", "json"},
	} {
		t.Run(tt.transport+" "+tt.codec, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			c := node(t, "centrifuge", "testdata/transports.mjs", tt.transport, tt.codec, s.addr, "news")
			c.want(`^subscribed$`)
			text := strings.Repeat("what does not change, ", 20) + "é"
			for i := range 3 {
				data := fmt.Sprintf(`{"n":%d,"text":%q}`, i, text)
				s.publish(data)
				c.want(`^publication ` + data + `$`)
			}
			c.say("deltas")
			c.want(`^deltas 2$`)
			c.say(`{"from":"client"}`)
			c.want(`^publication {"from":"client"}$`)
			c.say("rpc")
			c.want(`^rpc-error 108$`)
			c.never(`^(disconnected|error)|^connecting [^0]`)
			s.stop()
			c.want(`^connecting 3001 shutdown$`)
		})
	}
}

// A token with the claim channels subscribes its bearer.
func TestServerSideSubscriptions(t *testing.T) {
	t.Parallel()
	s := serve(t, "--api-key", "key", "--token-secret", secret)
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann", "channels": []string{"news"},
		"exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"websocket", "http_stream", "sse"} {
		c := node(t, "centrifuge", "testdata/transports.mjs", transport, "json", s.addr, "other", signed)
		c.want(`^server-side news$`)
		s.publish(`{"a":1}`, "-H", "X-API-Key: key")
		c.want(`^server-side-publication news {"a":1}$`)
	}
}

// curl reads the unidirectional transports, without any library.
func TestUnidirectionalByCurl(t *testing.T) {
	t.Parallel()
	s := serve(t, "--ping-interval", "1s")
	base := "http://" + s.addr + "/connection/"
	for _, tt := range []struct{ args, before string }{
		{base + "uni_http_stream -d {\"subs\":{\"news\":{}}}", ""},
		{"-G " + base + "uni_sse --data-urlencode cf_connect={\"subs\":{\"news\":{}}}", "data: "},
	} {
		c := curl(t, strings.Split(tt.args, " ")...)
		c.want(`^` + tt.before + `{"connect":{"client":"[-0-9a-f]{36}",.*"subs":{"news":{}}`)
		s.publish(`1`)
		c.want(`^` + tt.before + `{"channel":"news","pub":{"data":1}}$`)
		c.want(`^` + tt.before + `{}$`)
	}
}

// The library for Go speaks Protobuf.
func TestCentrifugeGo(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"json", "protobuf"} {
		s := serve(t, "--namespace", "presence history-size=10 recovery")
		c := goProgram(t, "centrifugego", codec, s.websocket(), "news")
		c.want(`^subscribed$`)
		s.number("news", 1)
		c.want(`^publication 1$`)
		c.say(`{"from":"client"}`)
		c.want(`^publication {"from":"client"}$`)
		c.want(`^present 1, history 2$`)
		s.stop()
		c.want(`^connecting 3001 shutdown$`)
	}
}
