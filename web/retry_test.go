package web

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// Clients that are refused at the same time are told to come back at different times, by HTTP/1.1
// and HTTP/2 alike: a server has one list of times.
func TestRefusedClientsAreSpread(t *testing.T) {
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	b := newBlocker()
	f := serveOn(t, &Server{Handler: b, Workers: 1, Queue: 1, Dispatch: DispatchPool, Protocols: both},
		myriad.Config{Loops: 1})
	send(t, f, "/slow")
	b.await(t, 1)
	waiting := send(t, f, "/slow")
	within(t, "the second request waits", func() bool { return poolOf(f.state).Stats().Queued > 0 })
	defer func() {
		close(b.release)
		waiting.answer()
	}()

	const goroutines, each = 16, 200
	began := time.Now()
	var mu sync.Mutex
	back := map[int]int{} // clients by the second in which they come back
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			only := new(http.Protocols)
			only.SetHTTP1(i%2 == 0)
			only.SetUnencryptedHTTP2(i%2 == 1)
			client := &http.Client{Transport: &http.Transport{Protocols: only}}
			defer client.CloseIdleConnections()
			for range each {
				resp, err := client.Get("http://" + f.addr + "/slow")
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
				if resp.StatusCode != 503 || err != nil || wait < 1 || wait > 60 {
					t.Errorf("HTTP/%d: status %d, Retry-After %q", resp.ProtoMajor, resp.StatusCode,
						resp.Header.Get("Retry-After"))
				}
				mu.Lock()
				back[int((time.Since(began)+time.Duration(wait)*time.Second)/time.Second)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	most := 0
	for _, n := range back {
		most = max(most, n)
	}
	if mean := goroutines * each / len(back); len(back) < 3 || most > 3*mean {
		t.Errorf("clients by the second in which they come back: %v", back)
	}
}
