package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

// waiting is how many events may wait for a subscriber. Then the publisher waits, too.
const waiting = 64

type subscriber struct {
	events chan []byte
	gone   <-chan struct{}
}

// events is how Server-Sent Events are pushed from the standard library's server: a goroutine and a
// channel for each subscriber.
func events(addr string) (net.Addr, error) {
	var rooms sync.Map // *harness.Room[subscriber], by channel
	room := func(channel string) *harness.Room[subscriber] {
		found, ok := rooms.Load(channel)
		if !ok {
			found, _ = rooms.LoadOrStore(channel, new(harness.Room[subscriber]))
		}
		return found.(*harness.Room[subscriber])
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		subscribe(w, r, room(r.URL.Query().Get("channel")))
	})
	mux.HandleFunc("POST /api/publish", func(w http.ResponseWriter, r *http.Request) { publish(w, r, room) })
	return harness.Listen(addr, (&http.Server{Handler: mux}).Serve)
}

func subscribe(w http.ResponseWriter, r *http.Request, room *harness.Room[subscriber]) {
	mine := subscriber{make(chan []byte, waiting), r.Context().Done()}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	room.Join(mine)
	defer room.Leave(mine)
	_, _ = io.WriteString(w, ":\n\n")
	flush := http.NewResponseController(w).Flush
	for err := flush(); err == nil; err = flush() {
		select {
		case event := <-mine.events:
			_, _ = w.Write(event)
		case <-mine.gone:
			return
		}
	}
}

func publish(w http.ResponseWriter, r *http.Request,
	room func(channel string) *harness.Room[subscriber]) {
	var p struct {
		Channel string
		Data    json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	event := append(append([]byte("data: "), p.Data...), "\n\n"...)
	room(p.Channel).Each(func(member subscriber) {
		select {
		case member.events <- event:
		case <-member.gone:
		}
	})
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"result":{}}`)
}
