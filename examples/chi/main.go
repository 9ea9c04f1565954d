// Command chi runs a chi router on Myriad, with the middleware that wraps the ResponseWriter, and
// an upgrade that finds its way through it.
//
//	go run ./examples/chi
//	curl localhost:8080/articles/7
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	flag.Parse()
	log.Print("serving on http://", *addr)
	log.Fatal(web.ListenAndServe(*addr, routes()))
}

func routes() http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.RequestID, middleware.Recoverer, middleware.Compress(5), counted)
	r.Route("/articles/{id}", func(r chi.Router) {
		r.Get("/", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "article %s", chi.URLParam(r, "id"))
		})
		r.With(middleware.Timeout(50*time.Millisecond)).Get("/slow", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			http.Error(w, r.Context().Err().Error(), http.StatusGatewayTimeout)
		})
	})
	echo := &websocket.Options{OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
		if c.Write(op, p) != nil {
			c.Abort(nil) // a client that sends, and has not read for Options.WriteTimeout
		}
	}}
	r.Get("/echo", func(w http.ResponseWriter, r *http.Request) {
		if _, err := websocket.Accept(w, r, echo); err != nil {
			log.Print(err) // Accept has answered
		}
	})
	return r
}

// counted tells the size of each answer in a trailer, through chi's own wrapper.
func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(ww, r)
		w.Header().Set(http.TrailerPrefix+"X-Bytes", fmt.Sprint(ww.BytesWritten()))
	})
}
