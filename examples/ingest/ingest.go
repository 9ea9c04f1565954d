package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/workers"
)

const (
	maxBody = 1 << 20 // bytes of one request

	batchEvents = 1000                   // at most so many are written at once,
	batchAge    = 100 * time.Millisecond // and none waits longer for others than this
	retries     = 5                      // of a write that fails, with backoff from 100 ms on

	leastRetry, mostRetry = 1, 5 // seconds after which a client that was refused may come back
)

// ingest is the way of events from requests to append, which gets whole lines and is called by one
// goroutine at a time.
type ingest struct {
	queue  *workers.Queue[[]byte] // of lines
	append func(lines []byte) error
}

func newIngest(pool *workers.Pool, append func([]byte) error, limit int) *ingest {
	in := &ingest{append: append}
	in.queue = workers.NewQueue(workers.QueueConfig[[]byte]{
		Pool: pool, Handle: in.write, DeadLetter: giveUp,
		Limit: limit, Batch: batchEvents, Age: batchAge, Retries: retries,
	})
	return in
}

func (in *ingest) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", in.accept)
	mux.HandleFunc("GET /stats", in.stats)
	return mux
}

// accept takes all events of a request or none, so that a client that repeats it after a 503
// repeats nothing.
func (in *ingest) accept(w http.ResponseWriter, r *http.Request) {
	lines, err := readLines(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case !in.queue.TryPut(lines...):
		// another time for each client, so that they do not come back together
		w.Header().Set("Retry-After", strconv.Itoa(leastRetry+rand.IntN(mostRetry-leastRetry+1)))
		http.Error(w, "too many events wait to be written: try again later", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// readLines reads JSON objects, and returns each as a line.
func readLines(r io.Reader) (lines [][]byte, err error) {
	for d := json.NewDecoder(r); ; {
		var event json.RawMessage
		switch err := d.Decode(&event); {
		case err == io.EOF && len(lines) > 0:
			return lines, nil
		case err == io.EOF:
			return nil, errors.New("no event: send a JSON object, or several")
		case err != nil:
			return nil, fmt.Errorf("event %d: %w", len(lines)+1, err)
		case event[0] != '{':
			return nil, fmt.Errorf("event %d is %.20s: send a JSON object", len(lines)+1, event)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, event); err != nil {
			return nil, fmt.Errorf("event %d: %w", len(lines)+1, err)
		}
		line.WriteByte('\n')
		lines = append(lines, line.Bytes())
	}
}

// write is the queue's handler.
func (in *ingest) write(_ context.Context, lines [][]byte) error {
	return in.append(bytes.Join(lines, nil))
}

// giveUp is the queue's last resort: the log is the only place left.
func giveUp(lines [][]byte, err error) {
	log.Printf("%d events could not be written, and follow: %v\n%s", len(lines), err, bytes.Join(lines, nil))
}

func (in *ingest) stats(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(in.queue.Stats()) // a client that is gone needs no answer
}
