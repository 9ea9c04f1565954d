// Command rooms is a chat of many rooms. A newcomer gets the last lines, GET /rooms lists the
// guests of each room, and POST /kick removes a guest. It shows how to keep state beside a
// websocket.Group.
//
//	go run ./examples/rooms         guests connect to ws://localhost:8080/rooms/go?name=Ann
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	flag.Parse()
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening on ", ln.Addr())
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := serve(stop, ln); err != nil {
		log.Fatal(err)
	}
}

// serve serves until stop is done. Then every guest gets a close frame with 1001.
func serve(stop context.Context, ln net.Listener) error {
	server := &web.Server{Handler: routes(newHouse())}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-stop.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ctx) // no new requests, so no new guests
	if engine, failed := myriad.Default(); failed == nil {
		err = errors.Join(err, engine.Shutdown(ctx))
	}
	return err
}

func routes(h *house) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rooms/{room}", func(w http.ResponseWriter, r *http.Request) {
		g := &guest{room: r.PathValue("room"), name: r.FormValue("name")}
		if g.name == "" {
			http.Error(w, "say who you are: ?name=", http.StatusBadRequest)
			return
		}
		if _, err := websocket.AcceptWith(w, r, h.options, g); err != nil {
			log.Print(err) // the client has been answered already
		}
	})
	mux.HandleFunc("GET /rooms", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(h.guests())
	})
	mux.HandleFunc("POST /kick", func(w http.ResponseWriter, r *http.Request) {
		if !h.kick(r.FormValue("room"), r.FormValue("name")) {
			http.Error(w, "no guest of this name is in that room", http.StatusNotFound)
		}
	})
	return mux
}
