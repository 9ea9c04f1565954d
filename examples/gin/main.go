// Command gin runs a gin application on Myriad: an ordinary route, server-sent events that hold no
// goroutine, and WebSockets that hold none either.
//
//	go run ./examples/gin
//	curl localhost:8080/hello/Ann
//	curl -N localhost:8080/events &
//	curl -d 'it works' localhost:8080/events
package main

import (
	"flag"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	flag.Parse()
	log.Print("serving on http://", *addr)
	gin.SetMode(gin.ReleaseMode)
	log.Fatal(web.ListenAndServe(*addr, routes()))
}

func routes() http.Handler {
	r := gin.New()
	r.Use(gin.Recovery())
	r.GET("/hello/:name", func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"hello": c.Param("name")}) })

	echo := &websocket.Options{OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
		if c.Write(op, p) != nil {
			c.Abort(nil) // a client that sends, and has not read for Options.WriteTimeout
		}
	}}
	r.GET("/echo", func(c *gin.Context) {
		if _, err := websocket.Accept(c.Writer, c.Request, echo); err != nil {
			log.Print(err) // Accept has answered
		}
	})

	var f feed
	r.GET("/events", f.subscribe)
	r.POST("/events", f.publish)
	return r
}

// A feed sends posted events to all listeners. Its zero value is ready.
type feed struct {
	mu        sync.Mutex
	listeners map[*web.Stream]bool
}

// subscribe returns at once: the response lives on without its handler.
func (f *feed) subscribe(c *gin.Context) {
	c.Header("Content-Type", "text/event-stream")
	s, err := f.listen(c.Writer)
	if err != nil {
		_ = c.AbortWithError(http.StatusInternalServerError, err)
		return
	}
	s.OnClose(func(error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, s)
	})
}

// listen sends the head under the lock: a client that has the head gets every event from then on.
func (f *feed) listen(w http.ResponseWriter) (*web.Stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := web.Detached(w)
	if err != nil {
		return nil, err
	}
	if f.listeners == nil {
		f.listeners = map[*web.Stream]bool{}
	}
	f.listeners[s] = true
	return s, nil
}

// maxEvent is the size of an event in bytes.
const maxEvent = 4 << 10

func (f *feed) publish(c *gin.Context) {
	data, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxEvent))
	if err != nil {
		c.String(http.StatusRequestEntityTooLarge, "%v\n", err)
		return
	}
	lines := strings.ReplaceAll(string(data), "\n", "\ndata: ")
	event := web.NewChunk([]byte("data: " + lines + "\n\n")) // encoded once, however many listen
	defer event.Release()
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.listeners {
		if err := s.WriteChunk(event); err != nil {
			s.Abort(err) // it reads too slowly
		}
	}
	c.Status(http.StatusNoContent)
}
