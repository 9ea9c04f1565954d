package myriad_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/myriad-go/myriad"
)

// BenchmarkEcho is a round trip of 100 bytes over loopback, the peers on goroutines of this
// process.
func BenchmarkEcho(b *testing.B) {
	bare := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	for _, conns := range []int{1, 100} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			ln := bare.listen(b, start(b, myriad.Config{}), echo{})
			peers := make([]net.Conn, conns)
			for i := range peers {
				peers[i] = bare.dial(b, ln)
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
