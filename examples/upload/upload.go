package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"

	"github.com/myriad-go/myriad/workers"
)

const (
	lookers = 4 // files that are looked into at once
	retries = 3

	leastRetry, mostRetry = 5, 15 // seconds after which a client that was refused may come back
)

// upload is the way of a file from its request to the store, and from there to its report.
type upload struct {
	store    store
	work     *workers.Queue[string] // of ids
	limit    int
	maxBytes int64
}

func newUpload(pool *workers.Pool, s store, limit int, maxBytes int64) *upload {
	u := &upload{store: s, limit: limit, maxBytes: maxBytes}
	u.work = workers.NewQueue(workers.QueueConfig[string]{
		Pool: pool, Handle: u.lookInto, DeadLetter: u.giveUp,
		Handlers: lookers, Limit: limit, Retries: retries,
	})
	return u
}

// catchUp brings in what had been accepted when the program ended before. It waits for room as any
// producer does.
func (u *upload) catchUp(ctx context.Context) error {
	ids, err := u.store.waiting()
	for _, id := range ids {
		err = errors.Join(err, u.work.Put(ctx, id))
	}
	return err
}

func (u *upload) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /files", u.accept)
	mux.HandleFunc("GET /files/{id}", u.report)
	mux.HandleFunc("GET /files/{id}/content", u.content)
	return mux
}

// accept looks for room before it reads a body that may be long. Should the room be gone when the
// body is there, the file goes too.
func (u *upload) accept(w http.ResponseWriter, r *http.Request) {
	if u.work.Stats().Held >= u.limit {
		busy(w)
		return
	}
	id, err := u.store.save(http.MaxBytesReader(w, r.Body, u.maxBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		log.Print("upload: ", err)
		http.Error(w, "the file could not be saved", http.StatusInternalServerError)
		return
	}
	if !u.work.TryPut(id) {
		if err := u.store.remove(id); err != nil {
			log.Print("upload: ", err)
		}
		busy(w)
		return
	}
	w.Header().Set("Location", "/files/"+id)
	answer(w, http.StatusAccepted, map[string]string{"id": id})
}

func busy(w http.ResponseWriter) {
	// another time for each client, so that they do not come back together
	w.Header().Set("Retry-After", strconv.Itoa(leastRetry+rand.IntN(mostRetry-leastRetry+1)))
	http.Error(w, "too many files wait to be looked into: try again later", http.StatusServiceUnavailable)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

func (u *upload) report(w http.ResponseWriter, r *http.Request) {
	switch report, err := u.store.report(r.PathValue("id")); {
	case errors.Is(err, fs.ErrNotExist):
		http.NotFound(w, r)
	case err != nil:
		log.Print("upload: ", err)
		http.Error(w, "the report could not be read", http.StatusInternalServerError)
	default:
		answer(w, http.StatusOK, report)
	}
}

func (u *upload) content(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if _, err := u.store.report(id); err != nil {
		http.NotFound(w, r)
		return
	}
	http.ServeFile(w, r, u.store.path(id))
}

// lookInto is the queue's handler. A real one would make thumbnails or search for viruses.
func (u *upload) lookInto(_ context.Context, ids []string) error {
	id := ids[0] // one at a time
	f, err := os.Open(u.store.path(id))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	return u.store.saveReport(id, report{State: stateDone, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
}

// giveUp saves the failure as the status of the files. If that fails, the program tries the file
// again at its next start.
func (u *upload) giveUp(ids []string, err error) {
	for _, id := range ids {
		log.Printf("upload: %s: %v", id, err)
		if err := u.store.saveReport(id, report{State: stateFailed, Error: err.Error()}); err != nil {
			log.Printf("upload: %s: %v", id, err)
		}
	}
}
