package push_test

import (
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// Every door says that a token whose key is not known yet may be tried again.
func TestDoorsForKeysThatAreNotKnownYet(t *testing.T) {
	keys, server := tokentest.NewSigners(), tokentest.NewKeyServer(t)
	server.Set(500)
	ts := servertest.New(t, push.Config{TokenKeysURL: server.URL})
	token := tokentest.SignNamed(t, jwt.SigningMethodES256, keys.P256, "e", jwt.MapClaims{"sub": "ann"})
	for _, path := range []string{"/events?channel=a&token=", mercurePath + "?topic=a&authorization="} {
		if w := ts.Do("GET", path+token, ""); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%.20s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ts.Do("POST", mercurePath, "topic=a", "Authorization", "Bearer "+token); w.Code != 503 {
		t.Errorf("publishing to Mercure: %d %s", w.Code, w.Body)
	}
	ts.Do("POST", "/connection/uni_http_stream", `{"token":"`+token+`"}`)
	if got := ts.Streams[len(ts.Streams)-1].Take(); !strings.Contains(got, `"disconnect":{"code":3004,`) {
		t.Errorf("a client that only receives: %s", got)
	}
	const again = `"error":{"code":100,"message":"internal server error","temporary":true}`
	ts.Do("POST", "/connection/http_stream", `{"id":1,"connect":{"token":"`+token+`"}}`)
	if got := ts.Streams[len(ts.Streams)-1].Take(); !strings.Contains(got, again) {
		t.Errorf("connect: %s", got)
	}
	if n := refusalCount(ts, "token_key"); n != 5 {
		t.Errorf("%d refusals are counted, want 5", n)
	}
}
