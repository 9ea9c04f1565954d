package resp

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// What the server refuses ends the subscription that asked for it, and no other one: neither one
// that is asked for at the same time, nor one that comes back on a new connection.
func TestSubscriptionIsRefusedAlone(t *testing.T) {
	socket := redis(t)
	ctx := ctxOf(t)
	admin := clientOf(t, &Client{Network: "unix", Addr: socket})
	if _, err := admin.Do(ctx, "ACL", "SETUSER", "me", "on", ">pw", "+@all", "&a*"); err != nil {
		t.Fatal(err)
	}
	warned := make(chan string, 100)
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) { warned <- string(p) }), nil))
	c := clientOf(t, &Client{Network: "unix", Addr: socket, Username: "me", Password: "pw", Logger: logger})
	got := make(chan string, 100)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := c.Subscribe(ctx, func(string, []byte) {}, fmt.Sprint("a", i)); err != nil {
				t.Errorf("a channel that is allowed: %v", err)
			}
		})
		wg.Go(func() {
			_, err := c.Subscribe(ctx, func(string, []byte) {}, fmt.Sprint("b", i), fmt.Sprint("a", i))
			if !strings.HasPrefix(fmt.Sprint(err), "NOPERM") {
				t.Errorf("one that is not: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := c.Subscribe(ctx, func(ch string, m []byte) { got <- ch + string(m) }, "az"); err != nil {
		t.Fatal(err)
	}
	// Redis ends the connections of a user who may not have a channel any more.
	if _, err := admin.Do(ctx, "ACL", "SETUSER", "me", "resetchannels", "&az"); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		if v, err := admin.Do(ctx, "PUBLISH", "az", "!"); err != nil || v.Int == 1 {
			break
		}
	}
	if m := <-got; m != "az!" {
		t.Errorf("got %q", m)
	}
	if w := <-warned; !strings.Contains(w, "refuses a subscription") || !strings.Contains(w, "NOPERM") {
		t.Errorf("logged %q", w)
	}
}

// A writerFunc is a function as an io.Writer.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
