package web

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// A client that pipelines and does not read costs its limits, and little besides: what waits for it
// lies in few blocks, which are full, also when the answers are small and leave one by one. They
// had a block of 512 bytes each.
func TestPipeliningWithoutReadingFillsBlocks(t *testing.T) {
	const (
		// blocks: those of the output queue, the small ones it begins with, what is kept ahead and
		// what is being written
		most = 256/16 + 16
	)
	clients := attackers(20)
	echo := "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\n\r\n" + strings.Repeat("x", 4096)
	for name, request := range map[string]string{"small answers": get + "\r\n", "echoes": echo} {
		flood := []byte(strings.Repeat(request, 20<<20/len(request)))
		for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
			t.Run(fmt.Sprint(name, ", ", d), func(t *testing.T) {
				f := prepare(t, &Server{Handler: hostileHandler(), Dispatch: d}, myriad.Config{Loops: 2})
				serveNarrowly(t, f)
				before := buf.InUse()
				for range clients {
					c := dial(t, f)
					c.(*net.TCPConn).SetReadBuffer(4096)
					c.SetWriteDeadline(time.Now().Add(time.Minute))
					go c.Write(flood) // until the server reads no more, and the test ends
				}
				awaitFullQueues(t, f, uint64(clients))
				if n := (buf.InUse() - before) / clients; n > most {
					t.Errorf("what waits for a client lies in %d blocks, want %d at most", n, most)
				}
			})
		}
	}
}

// narrow is a listener whose connections have a small buffer for what they send: then few answers
// fill it, and those behind them the queue of the server.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return c, err
}

func serveNarrowly(t *testing.T, f *fixture) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- f.Serve(narrow{ln}) }()
	t.Cleanup(func() {
		f.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
}

// awaitFullQueues waits until so many writes have found their queue full, for as long as the server
// goes on answering: when the kernel takes no more, the queues still grow.
func awaitFullQueues(t *testing.T, f *fixture, n uint64) {
	t.Helper()
	var answered uint64
	for end := time.Now().Add(hangs); ; time.Sleep(time.Millisecond) {
		st := f.Engine.Stats()
		if st.Full >= n {
			return
		}
		if now := st.BytesOut + uint64(st.Queued); now != answered {
			answered, end = now, time.Now().Add(hangs)
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d queues are full, and nothing more is answered", st.Full, n)
		}
	}
}
