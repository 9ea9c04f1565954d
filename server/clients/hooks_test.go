package clients

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A backend decides what unmodified clients may do.
func TestProxyHooks(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ User, Channel, Method string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		answer := `{"result":{}}`
		switch {
		case r.URL.Path == "/connect":
			answer = `{"result":{"user":"ann"}}`
		case asked.User != "ann":
			t.Errorf("%s for %q", r.URL.Path, asked.User)
		case r.URL.Path == "/publish":
			answer = `{"result":{"data":{"by":"the backend"}}}`
		case asked.Channel == "closed":
			answer = `{"error":{"code":1000,"message":"closed","temporary":true}}`
		}
		io.WriteString(w, answer)
	}))
	defer backend.Close()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			s := serve(t, "--api-key", "key", "--proxy-connect", backend.URL+"/connect", "--proxy-subscribe",
				backend.URL+"/subscribe", "--proxy-publish", backend.URL+"/publish", "--proxy-timeout", "1m",
				"--namespace", "subscribe-proxy publish-proxy")
			c := lib.run(t, s.websocket(), "news")
			c.want(`^subscribed$`)
			c.say(`{"from":"client"}`)
			c.want(`^publication {"by":"the backend"}$`)
			lib.run(t, s.websocket(), "closed").want(`^subscription-error .*1000`)
		})
	}
}
