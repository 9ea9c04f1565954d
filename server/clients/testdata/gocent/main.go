// Command gocent calls the API with Centrifugo's client for Go. It is a module of its own, so that
// the server module does not require the client. For each call it prints what the client library
// returned.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/centrifugal/gocent/v3"
)

func main() {
	client := func(key string) *gocent.Client {
		return gocent.New(gocent.Config{Addr: os.Args[1], Key: key, HTTPClient: &http.Client{Timeout: time.Minute}})
	}
	calls(client(os.Args[2]))
	_, err := client("wrong").Info(context.Background())
	say("wrong key", err)
}

func calls(c *gocent.Client) {
	ctx := context.Background()
	at, err := c.Publish(ctx, "kept:1", []byte(`{"n":1}`))
	say("publish", err, at.Offset, at.Epoch != "")
	at, err = c.Publish(ctx, "kept:1", []byte("2"), gocent.WithSkipHistory(true))
	say("skip_history", err, at.Offset)
	_, err = c.Publish(ctx, "", []byte("1"))
	say("publish to none", err)
	all, err := c.Broadcast(ctx, []string{"kept:1", "news", "\n"}, []byte("3"))
	say("broadcast", err, len(all.Responses))
	for _, one := range all.Responses {
		if one.Error != nil {
			say("broadcast to one", one.Error)
		}
	}
	h, err := c.History(ctx, "kept:1", gocent.WithLimit(gocent.NoLimit))
	say("history", err, len(h.Publications), h.Offset)
	_, err = c.History(ctx, "news")
	say("history of none", err)
	say("history_remove", c.HistoryRemove(ctx, "kept:1"))
	present, err := c.Presence(ctx, "kept:1")
	say("presence", err, len(present.Presence))
	stats, err := c.PresenceStats(ctx, "kept:1")
	say("presence_stats", err, stats.NumClients)
	channels, err := c.Channels(ctx, gocent.WithPattern("kept:*"))
	say("channels", err, len(channels.Channels))
	info, err := c.Info(ctx)
	say("info", err, len(info.Nodes), info.Nodes[0].Name)
	say("subscribe", c.Subscribe(ctx, "news", "ann"))
	say("unsubscribe", c.Unsubscribe(ctx, "kept:1", "nobody"))
	say("disconnect", c.Disconnect(ctx, "nobody",
		gocent.WithDisconnect(&gocent.Disconnect{Code: 4000, Reason: "enough"})))
	say("whitelist", c.Disconnect(ctx, "nobody", gocent.WithDisconnectClientWhitelist([]string{"a"})))
	pipe := c.Pipe()
	_, _ = pipe.AddPublish("news", []byte("1")), pipe.AddInfo()
	replies, err := c.SendPipe(ctx, pipe)
	say("pipe", err, len(replies))
}

// say prints the outcome of a call. It prints the fields of an error.
func say(call string, err error, values ...any) {
	var api *gocent.Error
	var asValue gocent.Error
	var status gocent.ErrStatusCode
	switch {
	case errors.As(err, &api):
		fmt.Printf("%s: error %d %s\n", call, api.Code, api.Message)
	case errors.As(err, &asValue):
		fmt.Printf("%s: error %d %s\n", call, asValue.Code, asValue.Message)
	case errors.As(err, &status):
		fmt.Printf("%s: status %d\n", call, status.Code)
	case err != nil:
		fmt.Printf("%s: failed: %v\n", call, err)
	default:
		fmt.Println(append([]any{call + ":", "ok"}, values...)...)
	}
}
