package main

import (
	"net/http"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// passWebSockets opens a WebSocket to the backend for each one that is opened here, and passes
// their messages on to each other. Neither has a goroutine while it is silent.
func passWebSockets(backend string) http.Handler {
	far := &websocket.DialOptions{Options: websocket.Options{OnMessage: passMessage, OnClose: passEnd}}
	near := &websocket.Options{
		Dispatch: web.DispatchPool, // OnOpen waits for the backend, and the first message for OnOpen
		OnOpen: func(c *websocket.Conn) {
			other, _, err := websocket.DialWith(c.Context(), backend, far, c)
			if err != nil {
				_ = c.Close(websocket.StatusBadGateway, "")
				return
			}
			c.SetValue(other)
		},
		OnMessage: passMessage,
		OnClose:   passEnd,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = websocket.Accept(w, r, near) // it has answered what it refuses
	})
}

// passMessage waits while the other side reads slowly: no more is read from c meanwhile.
func passMessage(c *websocket.Conn, op websocket.Op, p []byte) {
	if other, ok := c.Value().(*websocket.Conn); ok && other.Write(op, p) != nil {
		c.Abort(nil)
	}
}

// passEnd ends the other side as this one has ended.
func passEnd(c *websocket.Conn, err error) {
	other, ok := c.Value().(*websocket.Conn)
	if !ok {
		return // the backend was not reached
	}
	if other.Close(websocket.CloseStatus(err), "") != nil {
		other.Abort(nil)
	}
}
