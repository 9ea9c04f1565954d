package myriad_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/myriad-go/myriad"
)

// bounce sends back what it gets.
type bounce struct{}

func (bounce) Opened(*myriad.Conn)               {}
func (bounce) Received(c *myriad.Conn, p []byte) { _, _ = c.Write(p) }
func (bounce) Closed(*myriad.Conn, error)        {}

// BenchmarkEcho is a round trip of 100 bytes over loopback, the peers on goroutines of this
// process.
func BenchmarkEcho(b *testing.B) {
	for _, conns := range []int{1, 100} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			e, err := myriad.Start(myriad.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Shutdown(b.Context())
			ln, err := e.Listen("tcp", "127.0.0.1:0", bounce{})
			if err != nil {
				b.Fatal(err)
			}
			peers := make([]net.Conn, conns)
			for i := range peers {
				if peers[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
					b.Fatal(err)
				}
				defer peers[i].Close()
			}
			b.ReportAllocs()
			b.ResetTimer()
			var work sync.WaitGroup
			for i, nc := range peers {
				work.Go(func() {
					p := make([]byte, 100)
					for range (b.N + i) / conns {
						if _, err := nc.Write(p); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(nc, p); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			work.Wait()
		})
	}
}
