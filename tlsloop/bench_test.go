package tlsloop_test

import (
	"io"
	"testing"

	"github.com/myriad-go/myriad"
)

// What a record costs, there and back, with the client's part in it.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"100B", 100}, {"16KiB", 16 << 10}} {
		b.Run(size.name, func(b *testing.B) {
			addr := listen(b, start(b, myriad.Config{Loops: 1}), patient.Handler(serverConfig(), always(echo())))
			tc := dial(b, addr, clientConfig())
			p := []byte(pattern(size.n))
			b.ReportAllocs()
			b.SetBytes(int64(size.n))
			for b.Loop() {
				if _, err := tc.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(tc, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
