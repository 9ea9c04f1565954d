package resp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
)

// A server with two commands, asked by a client that types.
func ExampleServer() {
	var store sync.Map
	mux := resp.NewMux()
	mux.Handle("SET", 3, func(w *resp.Reply, c *resp.Command) {
		store.Store(string(c.Args[1]), string(c.Args[2]))
		w.OK()
	}, "Set a key.")
	mux.Handle("GET", 2, func(w *resp.Reply, c *resp.Command) {
		if v, ok := store.Load(string(c.Args[1])); ok {
			w.Text(v.(string))
			return
		}
		w.Null()
	}, "Get a key.")
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Shutdown(context.Background())
	server := &resp.Server{Handler: mux, Engine: engine}
	ln, err := server.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	io.WriteString(conn, "SET greeting \"hello there\"\r\nGET greeting\r\nGET\r\nQUIT\r\n")
	answers, _ := io.ReadAll(conn)
	for line := range strings.Lines(string(answers)) {
		fmt.Printf("%q\n", line)
	}
	// Output:
	// "+OK\r\n"
	// "$11\r\n"
	// "hello there\r\n"
	// "-ERR wrong number of arguments for 'get' command\r\n"
	// "+OK\r\n"
}
