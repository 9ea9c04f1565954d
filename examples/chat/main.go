// Command chat keeps net/http and gin for everything but its WebSockets, which an engine holds
// without a goroutine for each.
//
//	go run ./examples/chat                                 two clients at ws://localhost:8080/chat?name=Ann
//	go run ./examples/chat --cert cert.pem --key key.pem   the same over HTTPS and wss
//
// The connection of an upgraded request is hijacked, and adopted by the engine with what has been
// read ahead. Over TLS that costs no goroutine either, because the listener is tlsloop's.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"

	"github.com/gin-gonic/gin"

	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/websocket"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	cert := flag.String("cert", "", "PEM file with the certificate, for HTTPS")
	key := flag.String("key", "", "PEM file with its key")
	flag.Parse()
	gin.SetMode(gin.ReleaseMode)
	ln, err := listen(*addr, *cert, *key)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("serving on ", ln.Addr())
	log.Fatal(http.Serve(ln, routes(newRoom())))
}

func listen(addr, cert, key string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil || cert == "" {
		return ln, err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate for HTTPS: %w", err)
	}
	return secured(ln, pair), nil
}

// secured is what http.Server.ServeTLS does, with connections that the engine can look into.
func secured(ln net.Listener, pair tls.Certificate) net.Listener {
	return tlsloop.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
}

func routes(r *room) http.Handler {
	g := gin.New()
	g.Use(gin.Recovery())
	g.GET("/stats", func(c *gin.Context) {
		c.JSON(http.StatusOK, gin.H{"connected": r.group.Len(), "goroutines": runtime.NumGoroutine()})
	})
	g.GET("/chat", func(c *gin.Context) {
		name := c.DefaultQuery("name", "somebody")
		if _, err := websocket.AcceptWith(c.Writer, c.Request, r.options, &guest{name: name}); err != nil {
			log.Print(err) // it has answered
		}
	})
	return g
}

// A room sends each guest's messages to all guests.
type room struct {
	group   websocket.Group
	options *websocket.Options
}

// guest is the Value of a connection; only its callbacks use it.
type guest struct {
	name   string
	member *websocket.Member
}

// maxLine is the largest message in bytes.
const maxLine = 4 << 10

func newRoom() *room {
	r := &room{}
	r.options = &websocket.Options{
		MaxMessage:  maxLine,
		Compression: websocket.Compression{Enabled: true},
		OnOpen: func(c *websocket.Conn) {
			member, err := r.group.Join(c)
			if err != nil {
				c.Abort(nil)
				return
			}
			c.Value().(*guest).member = member
		},
		OnMessage: func(c *websocket.Conn, _ websocket.Op, p []byte) {
			line := fmt.Appendf(nil, "%s: %s", c.Value().(*guest).name, p)
			if err := r.group.Send(websocket.OpText, line); err != nil {
				log.Print(err)
			}
		},
		OnClose: func(c *websocket.Conn, _ error) {
			if m := c.Value().(*guest).member; m != nil {
				m.Leave()
			}
		},
	}
	return r
}
