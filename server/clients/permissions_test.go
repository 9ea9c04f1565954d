package clients

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signed makes a token with claims, which expires in an hour unless they say otherwise.
func signed(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	if claims["exp"] == nil {
		claims["exp"] = time.Now().Add(time.Hour).Unix()
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// publishTo publishes to a channel with the key "key".
func (s server) publishTo(channel, data string) {
	s.t.Helper()
	body := strings.NewReader(`{"channel": "` + channel + `", "data": ` + data + `}`)
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.addr+"/api/publish", body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", "key")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.HasPrefix(string(text), `{"result":`) {
		s.t.Errorf("%s, %v", text, err)
	}
}

// Libraries use channels of their user, get personal ones, and have what their capabilities say. A
// refused subscription is not tried again.
func TestLibrariesHavePermissions(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--token-secret", secret, "--api-key", "key", "--namespace", "name=dialog user-limited",
				"--namespace", "name=own personal publish=nobody", "--namespace",
				"name=team subscribe-token publish=nobody")
			ann := signed(t, jwt.MapClaims{"sub": "ann", "caps": []any{map[string]any{"match": "wildcard",
				"channels": []string{"team:r*"}, "allow": []string{"sub", "pub"}}}})
			bob := signed(t, jwt.MapClaims{"sub": "bob"})

			a := lib.run(t, s.websocket(), "dialog:1#ann,carol", ann)
			a.want(`^server-subscribed own:#ann$`)
			a.want(`^subscribed$`)
			a.say(`"hello"`)
			a.want(`^publication "hello"$`)
			s.publishTo("own:#ann", `"for ann"`)
			a.want(`^server-publication own:#ann "for ann"$`)
			b := lib.run(t, s.websocket(), "dialog:1#ann,carol", bob)
			b.want(`^server-subscribed own:#bob$`)
			b.want(`^unsubscribed 103 permission denied$`)

			team := lib.run(t, s.websocket(), "team:red", ann)
			team.want(`^subscribed$`)
			team.say(`1`)
			team.want(`^publication 1$`)
			lib.run(t, s.websocket(), "team:blue", ann).want(`^unsubscribed 103 permission denied$`)
			lib.run(t, s.websocket(), "team:red", bob).want(`^unsubscribed 103 permission denied$`)
		})
	}
}

// Above a rate libraries get error 111. They try a subscription again, and leave a publication to
// the application.
func TestLibrariesAboveRates(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--token-secret", secret, "--user-publication-rate", "1/1h", "--user-subscription-rate",
				"1/1h")
			token := signed(t, jwt.MapClaims{"sub": "ann"})
			a := lib.run(t, s.websocket(), "news", token)
			a.want(`^subscribed$`)
			a.say(`1`)
			a.want(`^publication 1$`)
			a.say(`2`)
			a.want(`^publish-error 111$`)
			b := lib.run(t, s.websocket(), "news", token)
			b.want(`^subscription-error .*111`)
			b.want(`^subscription-error .*111`) // it has tried again
		})
	}
}

// Libraries bring a new token before the one for a subscription expires.
func TestLibrariesRenewSubscriptions(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--token-secret", secret, "--api-key", "key", "--namespace", "subscribe-token")
			claims := func(expires time.Duration) jwt.MapClaims {
				return jwt.MapClaims{"sub": "ann", "channel": "news", "exp": time.Now().Add(expires).Unix()}
			}
			c := lib.run(t, s.websocket(), "news", signed(t, jwt.MapClaims{"sub": "ann"}),
				signed(t, claims(4*time.Second)), signed(t, claims(time.Hour)))
			// in this order, unless the first token has expired before the client could use it
			c.want(`^(subscribed|renewed)$`)
			c.want(`^(subscribed|renewed)$`)
			s.publishTo("news", `1`)
			c.want(`^publication 1$`)
		})
	}
}
