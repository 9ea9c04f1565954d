package proxyproto_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/proxyproto"
)

// A greeter tells its client's address, and hangs up.
type greeter struct{}

func (greeter) Opened(c *myriad.Conn) {
	fmt.Fprintf(c, "hello, %v\n", c.RemoteAddr())
	c.Close()
}

func (greeter) Received(*myriad.Conn, []byte) {}
func (greeter) Closed(*myriad.Conn, error)    {}

// A server behind a load balancer on the same machine. The client stands for the balancer.
func ExampleOptions_Handler() {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Shutdown(context.Background())
	balancers := proxyproto.Options{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	listener, err := engine.Listen("tcp", "127.0.0.1:0", balancers.Handler(greeter{}))
	if err != nil {
		log.Fatal(err)
	}

	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	header := proxyproto.Header{
		Source:      netip.MustParseAddrPort("203.0.113.9:51234"),
		Destination: netip.MustParseAddrPort("198.51.100.1:443"),
	}
	conn.Write(header.AppendV2(nil))
	text, _ := io.ReadAll(conn)
	fmt.Print(string(text))
	// Output:
	// hello, 203.0.113.9:51234
}
