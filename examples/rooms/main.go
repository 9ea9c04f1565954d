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
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	pidFile := flag.String("pid-file", "", "where to write the process number; SIGUSR2 upgrades the program")
	flag.Parse()
	if err := run(*addr, *pidFile); err != nil {
		log.Fatal(err)
	}
}

// run serves until SIGTERM, or until a new process has taken over.
func run(addr, pidFile string) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, os.Interrupt)
	handover.Notify(asked)
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		return err
	}
	h := newHouse()
	server := &web.Server{Engine: engine, Handler: routes(h)}
	program, err := h.program(engine, server)
	if err != nil {
		return err
	}
	nc, err := handover.Inherited()
	if err != nil {
		return err
	}
	var taken *handover.Taken
	if nc != nil {
		if taken, err = handover.Take(nc, program); err != nil {
			return err
		}
	}
	ln, err := server.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if taken != nil {
		if err := taken.GoOn(); err != nil {
			return err
		}
	}
	log.Print("listening on ", ln.Addr())
	if pidFile != "" {
		if err := os.WriteFile(pidFile, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
			return err
		}
	}
	for sig := range asked {
		if sig == syscall.SIGTERM || sig == os.Interrupt {
			break
		}
		if err := upgrade(program); err == nil {
			break
		} else {
			log.Print("this process goes on: ", err)
		}
	}
	return end(engine, server)
}

// end ends what is here: every guest gets a close frame with 1001.
func end(engine *myriad.Engine, server *web.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ctx) // no new requests, so no new guests
	return errors.Join(err, engine.Shutdown(ctx))
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
