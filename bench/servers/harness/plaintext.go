package harness

import (
	"io"
	"net/http"
	"time"
)

// Plaintext is the handler of the servers that run a net/http handler. It tells paths apart by a
// switch, as fasthttp's does: routers are left to the scenario of gin.
func Plaintext() http.Handler { return http.HandlerFunc(plaintext) }

func plaintext(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case Path:
		Dally(r.URL.RawQuery)
	case SlowPath:
		time.Sleep(Delay)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	_, _ = io.WriteString(w, Answer)
}

// Exposed is Plaintext, with what attackers ask for: a long answer, and a path that reads whatever
// it is sent.
func Exposed() http.Handler {
	large := make([]byte, LargeAnswer)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case LargePath:
			_, _ = w.Write(large)
		case UploadPath:
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", ContentType)
			_, _ = io.WriteString(w, Answer)
		default:
			plaintext(w, r)
		}
	})
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
