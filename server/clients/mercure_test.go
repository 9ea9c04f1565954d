package clients

import (
	"net/url"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// mercureToken signs a token with the claim mercure.
func mercureToken(t *testing.T, publish, subscribe []string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"mercure": map[string]any{
		"publish": publish, "subscribe": subscribe}}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// An EventSource subscribes to a Mercure hub, with a cookie and without, gets private updates if
// its token allows them, and continues after an event that it names. curl publishes.
func TestMercure(t *testing.T) {
	t.Parallel()
	s := serve(t, "--token-secret", secret, "--api-key", "key", "--mercure-anonymous")
	hub := "http://" + s.addr + "/.well-known/mercure"
	books := "?topic=" + url.QueryEscape("https://example.com/books/{id}")
	publish := func(id string, fields ...string) {
		t.Helper()
		args := []string{hub, "-H", "Authorization: Bearer " + mercureToken(t, []string{"*"}, nil),
			"--data-urlencode", "topic=https://example.com/books/1", "-d", "id=" + id}
		for _, field := range fields {
			args = append(args, "--data-urlencode", field)
		}
		p := curl(t, args...)
		p.want(`^` + id + `$`)
		if err := p.wait(); err != nil {
			t.Error(err)
		}
	}
	subscribe := func(query, token string) *process {
		t.Helper()
		c := node(t, "eventsource", "testdata/mercure.mjs", hub+query, token)
		c.want(`^open$`)
		return c
	}
	anonymous := subscribe(books, "")
	ann := subscribe(books, mercureToken(t, nil, []string{"https://example.com/books/{id}"}))
	publish("one", "data=a line\nand another")
	publish("two", "data=secret", "private=on")
	publish("three", "data=x", "type=added")
	for _, c := range []*process{anonymous, ann} {
		c.want(`^update one "a line\\nand another"$`)
	}
	ann.want(`^update two "secret"$`)
	ann.want(`^added "x"$`)
	anonymous.want(`^added "x"$`)
	anonymous.never(`secret`)
	again := subscribe(books+"&lastEventID=one", "")
	again.want(`^added "x"$`)
	again.never(`secret|line`)
	curl(t, "-o", "/dev/null", "-w", "%{http_code}\n", hub, "-d", "topic=a").want(`^401$`)
	curl(t, "-sD", "-", "-o", "/dev/null", "--max-time", "10", "-I",
		hub+books).want(`(?i)^content-type: text/event-stream`)
	s.stop()
	ann.want(`^error`)
}
