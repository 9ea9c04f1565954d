package client

import (
	"io"
	"net/http"
	"testing"

	"github.com/myriad-go/myriad"
)

// instant answers each head at once.
type instant struct{}

func (instant) Opened(*myriad.Conn)        {}
func (instant) Closed(*myriad.Conn, error) {}
func (instant) Received(c *myriad.Conn, p []byte) {
	c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"))
}

func instantServer(b *testing.B) string {
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Shutdown(b.Context()) })
	ln, err := e.Listen("tcp", "127.0.0.1:0", instant{})
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + ln.Addr().String() + "/plaintext"
}

func BenchmarkRoundTrip(b *testing.B) {
	url := instantServer(b)
	tr := fresh(b, &Transport{MaxIdleConnsPerHost: 64, DisableCompression: true})
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, _ := http.NewRequest("GET", url, nil)
			r, err := tr.RoundTrip(req)
			if err != nil {
				b.Error(err)
				return
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	})
}

func BenchmarkDo(b *testing.B) {
	url := instantServer(b)
	tr := fresh(b, &Transport{MaxIdleConnsPerHost: 64, DisableCompression: true})
	b.ReportAllocs()
	done := make(chan struct{})
	left := b.N
	var one func()
	one = func() {
		req, _ := http.NewRequest("GET", url, nil)
		tr.Do(req, func(r *http.Response, err error) {
			if err != nil {
				b.Error(err)
				return
			}
			OnBody(r, func(p []byte, err error) {
				if err != nil {
					r.Body.Close()
					if left--; left == 0 {
						close(done)
						return
					}
					one()
				}
			})
		})
	}
	one()
	<-done
}
