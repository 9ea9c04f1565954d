package web

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// mustBeRefused sends a request, of an EventSource or another client, and returns after how many
// seconds the client may come back. An EventSource would give up after status 503, and no cache may
// keep the status 200 that it gets instead.
func mustBeRefused(t *testing.T, client *http.Client, url string, events bool) (wait int) {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	cache, status, kind := "", 503, "text/plain; charset=utf-8"
	text := regexp.MustCompile(`^503 Service Unavailable: .+$`)
	if events {
		r.Header.Set("Accept", "text/event-stream")
		cache, status, kind = "no-store", 200, "text/event-stream"
		text = regexp.MustCompile(`^: 503 Service Unavailable: [^\n]+\nretry: (\d+)\n\n$`)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 1
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	wait, wrong := strconv.Atoi(resp.Header.Get("Retry-After"))
	found := text.FindSubmatch(body)
	if err = errors.Join(err, wrong); err != nil || resp.StatusCode != status || wait < 1 || wait > 60 ||
		resp.Header.Get("Content-Type") != kind || resp.Header.Get("Cache-Control") != cache || found == nil {
		t.Errorf("HTTP/%d: status %d, %v, %q, %v", resp.ProtoMajor, resp.StatusCode, resp.Header, body, err)
		return 1
	}
	if events {
		if millis, _ := strconv.Atoi(string(found[1])); millis <= 1000*(wait-1) || millis > 1000*wait {
			t.Errorf("HTTP/%d: told %d ms, and by Retry-After %d s", resp.ProtoMajor, millis, wait)
		}
	}
	return wait
}

// A server has one list of times for clients that it refuses: those of HTTP/1.1, those of HTTP/2,
// and EventSources. So clients that are refused at the same time come back at different times.
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
				wait := mustBeRefused(t, client, "http://"+f.addr+"/slow", i%4 > 1)
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
	// the server takes itself to serve a thousand in a second, until it has measured how many it
	// does
	if len(back) < 3 || most > 2000 {
		t.Errorf("clients by the second in which they come back: %v", back)
	}
}
