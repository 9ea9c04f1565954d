package tlsloop_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// A greeter says which protocol ALPN has chosen, and hangs up. It has nothing of its own, so one
// serves all conns.
type greeter struct{}

func (greeter) Opened(c *myriad.Conn) {
	state, _ := tlsloop.State(c)
	fmt.Fprintf(c, "%s, %s\n", state.ServerName, state.NegotiatedProtocol)
	c.Close()
}

func (greeter) Received(*myriad.Conn, []byte) {}
func (greeter) Closed(*myriad.Conn, error)    {}

// A server with a protocol of its own over TLS, and a client on the same engine.
func ExampleHandler() {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Shutdown(context.Background())
	certificate, authorities := exampleCertificate()
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"greeting"}}
	listener, err := engine.Listen("tcp", "127.0.0.1:0", tlsloop.Handler(config,
		func(state tls.ConnectionState) myriad.Handler {
			if state.NegotiatedProtocol != "greeting" {
				return nil // the connection is closed
			}
			return greeter{}
		}))
	if err != nil {
		log.Fatal(err)
	}

	handler, conn := myriad.Stream(0)
	defer conn.Close()
	client := &tls.Config{RootCAs: authorities, ServerName: "localhost", NextProtos: []string{"greeting"}}
	if _, err := tlsloop.Dial(context.Background(), engine, "tcp", listener.Addr().String(), client,
		handler); err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	fmt.Print(string(text))
	fmt.Println(err)
	// Output:
	// localhost, greeting
	// <nil>
}

// The connections of net/http are served by its goroutines; one that it gives away goes to the
// engine with its TLS, and costs no goroutine any more.
func ExampleNewListener() {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Shutdown(context.Background())
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	certificate, authorities := exampleCertificate()
	listener := tlsloop.NewListener(inner, &tls.Config{Certificates: []tls.Certificate{certificate}})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/greeting" {
			fmt.Fprintln(w, "over TLS:", r.TLS != nil)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			log.Print(err)
			return
		}
		if _, err := engine.Adopt(conn, nil, greeter{}); err != nil {
			log.Print(err)
		}
	})}
	go server.Serve(listener)
	defer server.Close()

	config := &tls.Config{RootCAs: authorities, ServerName: "localhost"}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	response, err := client.Get("https://" + listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	fmt.Print(string(text))

	conn, err := tls.Dial("tcp", listener.Addr().String(), config)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /greeting HTTP/1.1\r\nHost: localhost\r\n\r\n")
	text, _ = io.ReadAll(conn)
	fmt.Printf("%q\n", text)
	// Output:
	// over TLS: true
	// "localhost, \n"
}
