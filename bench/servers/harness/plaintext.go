package harness

import (
	"io"
	"net/http"
	"time"
)

// Plaintext is the handler of those who run a net/http handler.
func Plaintext() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Path, plaintext)
	mux.HandleFunc(SlowPath, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(Delay)
		plaintext(w, r)
	})
	return mux
}

func plaintext(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", ContentType)
	_, _ = io.WriteString(w, Answer)
}
