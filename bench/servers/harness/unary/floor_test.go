package unary_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/bench/servers/harness/unary"
)

// A nowhere is a ResponseWriter without a connection.
type nowhere struct {
	header http.Header
	body   int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Flush()                      {}
func (n *nowhere) Write(p []byte) (int, error) { n.body += len(p); return len(p), nil }

// BenchmarkServeHTTP is what a unary call costs in grpc-go's ServeHTTP alone, with a request that
// is there and an answer that goes nowhere: the floor of bench h2-grpc. The goroutine of the
// handler is warm, as a server's with a pool is.
func BenchmarkServeHTTP(b *testing.B) {
	service := unary.Server()
	message := []byte("\x00\x00\x00\x00\x0f\x0a\x0dHello, World!")
	b.ReportAllocs()
	b.SetParallelism(500)
	before := spent(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequest("POST", "http://localhost/bench.Echo/Say", nil)
			if err != nil {
				b.Error(err)
				return
			}
			r.ProtoMajor, r.Body = 2, io.NopCloser(bytes.NewReader(message))
			r.Header["Content-Type"] = []string{"application/grpc"}
			r.Header["Te"] = []string{"trailers"}
			r.Header["User-Agent"] = []string{"grpc-bench"}
			w := &nowhere{header: http.Header{}}
			if service.ServeHTTP(w, r); w.body != len(message) || w.header.Get("Grpc-Status") != "0" {
				b.Errorf("answered %d bytes, %v", w.body, w.header)
			}
		}
	})
	b.ReportMetric(float64(spent(b)-before)/float64(b.N), "cpu-ns/op")
}

// spent is the CPU time of this process in nanoseconds.
func spent(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
