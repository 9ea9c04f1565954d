package web

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/http1"
)

// fieldsOf is n bytes of field lines.
func fieldsOf(n int) string {
	const line = 8000
	var b strings.Builder
	for ; n >= 2*line; n -= line {
		b.WriteString("A: " + strings.Repeat("x", line-5) + "\r\n")
	}
	b.WriteString("A: " + strings.Repeat("x", n-5) + "\r\n")
	return b.String()
}

// A head may be 4,096 bytes longer than MaxHeaderBytes says, to the byte, in however many pieces it
// comes; what follows it at once is not lost.
func TestLongestHead(t *testing.T) {
	for _, limit := range []int{0, -1, 1, 1000, 100_000, 300_000} {
		f := serve(t, &Server{MaxHeaderBytes: limit,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(w, r.Body)
			})})
		if limit <= 0 {
			limit = http.DefaultMaxHeaderBytes
		}
		limit += 4096
		const body = 100_000
		begin, end := post+"Content-Length: 100000\r\n", "\r\n"
		request := begin + fieldsOf(limit-len(begin)-len(end)) + end + strings.Repeat("b", body)
		nc := dial(t, f)
		go io.WriteString(nc, request+post+"Content-Length: 4\r\n\r\nnext")
		r := bufio.NewReader(nc)
		for _, want := range []string{strings.Repeat("b", body), "next"} {
			answer, err := http.ReadResponse(r, nil)
			if got := mustBody(t, answer, err); answer.StatusCode != 200 || got != want {
				t.Fatalf("with a limit of %d a head of that length is answered %s, %d bytes; want the %d that were "+
					"sent", limit, answer.Status, len(got), len(want))
			}
		}
		nc.Close()
		got := raw(t, f, begin+fieldsOf(limit-len(begin)-len(end)+1)+end+strings.Repeat("b", body), false)
		if !strings.HasPrefix(got, "HTTP/1.1 431 ") {
			t.Errorf("with a limit of %d a head of one byte more is answered %.40q", limit, got)
		}
	}
}

// What is kept of a head that has no end yet takes no more than a head may have: beyond a megabyte
// there is no pool of blocks.
func TestRoomForAHead(t *testing.T) {
	h := &http1.Conn{Own: &http1.Lane{Protocol: &http1.Server{}}}
	h.Own.Protocol.Limits.HeadBytes = 1 << 20
	for n, want := range map[int]int{1000: 2000, 600_000: 1 << 20, 1 << 20: 1 << 20} {
		if got := h.RoomFor(n); got != want {
			t.Errorf("for %d bytes of a head %d are taken, want %d", n, got, want)
		}
	}
}

// However much a client pipelines, of what it has not been answered no more is kept than maxAhead
// and one read buffer: each answer lets the loop read again, which had gone on for as long as the
// client did.
func TestPipelinesAreNotReadAhead(t *testing.T) {
	const (
		answers = 60
		most    = http1.MaxAhead + 64<<10 // which is the read buffer
	)
	for name, request := range map[string]string{
		"without a body": get + "\r\n",
		"with a body":    post + "Content-Length: 4096\r\n\r\n" + strings.Repeat("b", 4096),
		"with a body of chunks": post + "Transfer-Encoding: chunked\r\n\r\n1000\r\n" + strings.Repeat("b", 4096) +
			"\r\n0\r\n\r\n",
		"without a body, 8 at once": get + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			served, over := make(chan *http1.Conn), make(chan struct{})
			defer close(over)
			s := &Server{Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					select {
					case served <- exchangeOf(w).Carrier.(*http1.Stream).H:
					case <-over:
					}
				})}
			if strings.HasSuffix(name, "8 at once") {
				s.PipelineDepth = 8
			}
			f := serve(t, s)
			c := dial(t, f)
			go io.WriteString(c, strings.Repeat(request, 8<<20/len(request)))
			kept := make(chan int)
			for range answers {
				var h *http1.Conn
				for range http1.MaxChain { // of which a turn of the loop begins no more
					select {
					case h = <-served:
					case <-time.After(hangs):
						t.Fatal("nothing more is served")
					}
				}
				for h.C.Loop().Do(func() {
					if h.Ahead == nil {
						kept <- 0
						return
					}
					kept <- h.Ahead.Block.Len() - h.Ahead.Used
				}) != nil {
				}
				if n := <-kept; n > most {
					t.Errorf("%d bytes are kept of what has not been answered, want %d at most", n, most)
					break
				}
			}
		})
	}
}
