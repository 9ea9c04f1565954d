// Command hello is an ordinary net/http program on Myriad: it says web.Server where it would say
// http.Server.
//
//	go run ./examples/hello
//	curl 'localhost:8080/hello?name=Ann'
//	curl --data-binary @go.work localhost:8080/count
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/myriad-go/myriad/web"
)

// drainTimeout is how long requests that have begun may take once the program is told to end.
const drainTimeout = 10 * time.Second

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	flag.Parse()
	log.Print("serving on http://", *addr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, &web.Server{Addr: *addr, Handler: routes()}); err != nil {
		log.Fatal(err)
	}
}

// serve ends with ctx, in order. It is what it would be with an http.Server.
func serve(ctx context.Context, s *web.Server) error {
	drained := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		drained <- s.Shutdown(ctx)
	})
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("POST /count", count)
	return mux
}

func hello(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("name")
	if name == "" {
		name = "world"
	}
	fmt.Fprintf(w, "Hello, %s!\n", name)
}

// count waits for the body as it comes: a handler may block, because it does not run on an event
// loop.
func count(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<30))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, n)
}
