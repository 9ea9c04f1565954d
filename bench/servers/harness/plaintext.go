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

// Exposed is Plaintext, with what attackers ask for: a long answer, and a path that reads whatever it is sent.
func Exposed() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Path, plaintext)
	large := make([]byte, LargeAnswer)
	mux.HandleFunc(LargePath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	mux.HandleFunc(UploadPath, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		plaintext(w, r)
	})
	return mux
}

// Dally takes the time that the query of a request for Path asks for.
func Dally[S string | []byte](query S) {
	switch string(query) {
	case SleepQuery:
		time.Sleep(Delay)
	case BurnQuery:
		for began := time.Now(); time.Since(began) < Delay; {
		}
	}
}

func plaintext(w http.ResponseWriter, r *http.Request) {
	Dally(r.URL.RawQuery)
	w.Header().Set("Content-Type", ContentType)
	_, _ = io.WriteString(w, Answer)
}
