package main

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/myriad-go/myriad/server/push"
)

//go:embed page
var pageFiles embed.FS

// routes are the mail program's own, and in front of them those of the push server: /events is
// where pages listen.
func routes(s *store, pusher *push.Server) http.Handler {
	mux := http.NewServeMux()
	page, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic("mail: the page is not in the program: " + err.Error())
	}
	mux.Handle("GET /", http.FileServerFS(page))
	mux.Handle("GET /events", pusher)
	mux.HandleFunc("GET /api/mailbox", answer(func(r *http.Request) (any, error) {
		return s.list(r.FormValue("user"), r.FormValue("mailbox"))
	}))
	mux.HandleFunc("GET /api/changes", answer(func(r *http.Request) (any, error) {
		since, err := strconv.ParseUint(r.FormValue("since"), 10, 64)
		if err != nil {
			return nil, errors.New("mail: since is the number of the last change that is known")
		}
		return s.since(r.FormValue("user"), since)
	}))
	mux.HandleFunc("POST /api/deliver", answer(func(r *http.Request) (any, error) {
		return done{}, s.deliver(r.FormValue("to"), r.FormValue("from"), r.FormValue("subject"), r.FormValue("text"))
	}))
	mux.HandleFunc("POST /api/seen", answer(func(r *http.Request) (any, error) {
		uid, err := uidOf(r)
		if err != nil {
			return nil, err
		}
		return done{}, s.setSeen(r.FormValue("user"), r.FormValue("mailbox"), uid, r.FormValue("seen") == "true")
	}))
	mux.HandleFunc("POST /api/move", answer(func(r *http.Request) (any, error) {
		uid, err := uidOf(r)
		if err != nil {
			return nil, err
		}
		return done{}, s.move(r.FormValue("user"), r.FormValue("mailbox"), uid, r.FormValue("to"))
	}))
	return sameOrigin(mux)
}

// done is the answer when there is nothing to say.
type done struct{}

func uidOf(r *http.Request) (uint32, error) {
	uid, err := strconv.ParseUint(r.FormValue("uid"), 10, 32)
	if err != nil {
		return 0, errors.New("mail: uid is a number")
	}
	return uint32(uid), nil
}

func answer(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 4*maxText)
		value, err := f(r)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			value = map[string]string{"error": err.Error()}
		}
		_ = json.NewEncoder(w).Encode(value) // fails only if the client has disconnected
	}
}

// sameOrigin refuses what pages of other sites send, and lets the page load nothing from elsewhere.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy",
			"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	}))
}
