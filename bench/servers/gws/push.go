package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"

	"github.com/lxzan/gws"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

// push is a push server on a WebSocket library: every client gets the data of everything that is
// published over HTTP. It has neither channels nor authentication.
func push(addr string) (net.Addr, error) {
	members := &broadcast{}
	upgrader := gws.NewUpgrader(members, &gws.ServerOption{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if socket, err := upgrader.Upgrade(w, r); err == nil {
			go socket.ReadLoop()
		}
	})
	mux.HandleFunc("POST /api/publish", func(w http.ResponseWriter, r *http.Request) {
		var p struct{ Data json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		members.send(gws.OpcodeText, p.Data)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"result":{}}`)
	})
	return harness.Listen(addr, (&http.Server{Handler: mux}).Serve)
}
