// Command frames is the program of docs/guides/protocol.md: its own protocol over TCP and TLS. A
// message is a frame: a length of four bytes and a payload. The answer to "count 3" is the frames
// "1", "2" and "3". The answer to any other text is the text in capitals.
//
//	go run ./examples/frames
//	go run ./examples/frames --ask hello
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/proxyproto"
	"github.com/myriad-go/myriad/tlsloop"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:7000", "host:port to listen on, or to ask")
	ask := flag.String("ask", "", "be a client: ask this, and print the first answer")
	cert := flag.String("cert", "", "PEM file of a certificate, for TLS")
	key := flag.String("key", "", "PEM file of its key")
	balancer := flag.String("balancer", "", "network of load balancers that send PROXY headers, such as 10.0.0.0/8")
	flag.Parse()
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if *ask != "" {
		err = question(engine, *addr, *ask)
	} else {
		err = serve(engine, *addr, *cert, *key, *balancer)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// handler returns the handlers of a connection in order: a PROXY header, TLS, the protocol.
func handler(s server, config *tls.Config, balancers []netip.Prefix) myriad.Handler {
	var h myriad.Handler = s
	if config != nil {
		h = tlsloop.Handler(config, func(tls.ConnectionState) myriad.Handler { return s.session() })
	}
	if balancers != nil {
		h = proxyproto.Options{Trusted: balancers}.Handler(h)
	}
	return h
}

// serve serves until the program is interrupted, and then shuts down cleanly.
func serve(engine *myriad.Engine, addr, cert, key, balancer string) error {
	var config *tls.Config
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return err
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	var balancers []netip.Prefix
	if balancer != "" {
		network, err := netip.ParsePrefix(balancer)
		if err != nil {
			return err
		}
		balancers = append(balancers, network)
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ln, err := engine.Listen("tcp", addr, handler(server{idle: idleTimeout}, config, balancers))
	if err != nil {
		return err
	}
	log.Print("listening on ", ln.Addr())
	<-interrupted.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return engine.Shutdown(ctx)
}

func question(engine *myriad.Engine, addr, ask string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := dial(ctx, engine, addr, nil)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	if err := c.send(ask); err != nil {
		return err
	}
	answer, err := c.receive()
	fmt.Println(answer)
	return err
}
