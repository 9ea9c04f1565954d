package websocket_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// say connects to an echo server, says something and prints what comes back.
func say(e *myriad.Engine, url, text string) {
	heard := make(chan string)
	o := &websocket.DialOptions{}
	o.Engine = e
	o.Dispatch = web.DispatchInline
	o.OnMessage = func(_ *websocket.Conn, _ websocket.Op, p []byte) { heard <- string(p) }
	c, _, err := websocket.Dial(context.Background(), url, o)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Write(websocket.OpText, []byte(text)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-heard)
	_ = c.Close(websocket.StatusNormalClosure, "")
}

// An echo server among ordinary handlers. The same handler works on a server of net/http.
func ExampleAccept() {
	echo := &websocket.Options{
		Dispatch: web.DispatchInline, // the callback does not block
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
			if err := c.Write(op, p); err != nil { // myriad.ErrFull: the peer sends, and does not read
				_ = c.Close(websocket.StatusTryAgainLater, "too slow")
			}
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		if _, err := websocket.Accept(w, r, echo); err != nil {
			log.Print(err) // the request has been answered
		}
	})

	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server := &web.Server{Engine: engine, Handler: mux}
	listener, err := server.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	say(engine, "ws://"+listener.Addr().String()+"/echo", "Hello from a handler")
	_ = server.Shutdown(context.Background())
	_ = engine.Shutdown(context.Background())
	// Output: Hello from a handler
}

// A server of nothing but WebSockets, on raw connections. State of the application goes with the
// connection.
func ExampleHandler() {
	type session struct{ messages int }
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := engine.Listen("tcp", "127.0.0.1:0", websocket.Handler(&websocket.Options{
		Dispatch: web.DispatchInline,
		OnOpen:   func(c *websocket.Conn) { c.SetValue(new(session)) },
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
			s := c.Value().(*session)
			s.messages++
			_ = c.Write(op, fmt.Appendf(nil, "%d: %s", s.messages, p))
		},
	}))
	if err != nil {
		log.Fatal(err)
	}
	say(engine, "ws://"+listener.Addr().String(), "Hello from a raw connection")
	_ = engine.Shutdown(context.Background())
	// Output: 1: Hello from a raw connection
}

// A message for many connections is encoded once.
func ExamplePrepare() {
	news, err := websocket.Prepare(websocket.OpText, []byte(`{"score":"2:1"}`))
	if err != nil {
		log.Fatal(err)
	}
	defer news.Release()
	var subscribers []*websocket.Conn
	for _, c := range subscribers {
		if err := c.WritePrepared(news); err != nil {
			c.Abort(nil) // it is too slow, or gone
		}
	}
}

// A room: each member gets what any other one says. A connection that has closed leaves by itself.
func ExampleGroup() {
	var room websocket.Group
	o := &websocket.Options{
		// each message is compressed once, for all members that want that
		Compression: websocket.Compression{Enabled: true},
		OnOpen: func(c *websocket.Conn) {
			if _, err := room.Join(c); err != nil {
				c.Abort(nil)
			}
		},
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
			if err := room.SendExcept(op, p, c); err != nil {
				log.Print(err)
			}
		},
	}
	http.HandleFunc("/room", func(w http.ResponseWriter, r *http.Request) {
		if _, err := websocket.Accept(w, r, o); err != nil {
			log.Print(err)
		}
	})
}

// What a program does on SIGTERM: the server takes no new requests, and the engine closes every
// WebSocket with 1001 and waits for the answers until the context ends. The server may be a
// web.Server, too.
func Example_shutdown() {
	engine, err := myriad.Start(myriad.Config{}) // myriad.Default, where Options.Engine is nil
	if err != nil {
		log.Fatal(err)
	}
	opened := make(chan bool, 3)
	o := &websocket.Options{Engine: engine, Dispatch: web.DispatchInline} // the callback does not block
	o.OnOpen = func(*websocket.Conn) { opened <- true }
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := websocket.Accept(w, r, o); err != nil {
			log.Print(err)
		}
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	visitors, err := myriad.Start(myriad.Config{}) // the other side: browsers
	if err != nil {
		log.Fatal(err)
	}
	closed := make(chan websocket.StatusCode, 3)
	for range cap(closed) {
		visit := &websocket.DialOptions{}
		visit.Engine = visitors
		visit.Dispatch = web.DispatchInline // nor does this one
		visit.OnClose = func(_ *websocket.Conn, err error) { closed <- websocket.CloseStatus(err) }
		if _, _, err := websocket.Dial(context.Background(), "ws://"+listener.Addr().String(), visit); err != nil {
			log.Fatal(err)
		}
		<-opened // http.Server.Shutdown does not wait for a handler that has hijacked
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("server:", server.Shutdown(ctx))
	fmt.Println("engine:", engine.Shutdown(ctx))
	for range cap(closed) {
		fmt.Println("a visitor was told:", <-closed)
	}
	_ = visitors.Shutdown(ctx)
	// Output:
	// server: <nil>
	// engine: <nil>
	// a visitor was told: 1001 (going away)
	// a visitor was told: 1001 (going away)
	// a visitor was told: 1001 (going away)
}

// A goroutine reads the connection and waits for messages: here, that of a handler.
func ExampleConn_Read() {
	o := &websocket.Options{Pull: true}
	http.HandleFunc("/calculator", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, o)
		if err != nil {
			log.Print(err)
			return
		}
		defer c.Abort(nil)
		for {
			op, p, err := c.Read(context.Background())
			if err != nil {
				return // websocket.CloseStatus(err) is the peer's code
			}
			if err := c.WriteContext(context.Background(), op, p); err != nil {
				return
			}
		}
	})
}

// A client with callbacks, and no goroutine while it waits.
func ExampleDial() {
	o := &websocket.DialOptions{Header: http.Header{"Authorization": {"Bearer token"}}}
	o.Subprotocols = []string{"chat.v1"}
	o.OnMessage = func(_ *websocket.Conn, _ websocket.Op, p []byte) { fmt.Printf("%s\n", p) }
	o.OnClose = func(_ *websocket.Conn, err error) { fmt.Println("closed:", websocket.CloseStatus(err)) }
	c, resp, err := websocket.Dial(context.Background(), "ws://chat.example/room", o)
	if err != nil {
		log.Print(resp, err)
		return
	}
	_ = c.Write(websocket.OpText, []byte("hello"))
}

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
