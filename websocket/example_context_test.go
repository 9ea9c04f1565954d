package websocket_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/myriad-go/myriad/websocket"
)

type userKey struct{}

// fetch stands for work that a context ends, such as a query of a database.
func fetch(ctx context.Context, user any) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
	return "nothing new"
}

// The context of a connection has the values of its request and ends with the connection, where the
// request's ends with the handler.
func ExampleConn_Context() {
	o := &websocket.Options{OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
		ctx := c.Context()
		_ = c.Write(websocket.OpText, []byte(fetch(ctx, ctx.Value(userKey{})))) // if the peer leaves, fetch does
	}}
	http.HandleFunc("/news", func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, "ann")) // as middleware does
		if _, err := websocket.Accept(w, r, o); err != nil {
			log.Print(err)
		}
	})
}
