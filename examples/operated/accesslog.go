package main

import (
	"log/slog"
	"net/http"
	"time"
)

// logged writes one line for each request when its handler has returned. The status of a WebSocket
// is 101. What a stream or a WebSocket does afterwards is for its OnClose.
func logged(next http.Handler, to *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &observed{ResponseWriter: w}
		from := time.Now()
		next.ServeHTTP(answer, r)
		to.Info("request", "method", r.Method, "path", r.URL.Path, "status", answer.status(), "bytes", answer.bytes,
			"took", time.Since(from), "from", r.RemoteAddr, "proto", r.Proto)
	})
}

// observed remembers what was answered.
type observed struct {
	http.ResponseWriter
	code  int
	bytes int64
}

// Unwrap lets websocket.Accept, web.Detached, web.Events and http.ResponseController find the
// server's own ResponseWriter.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observed) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		o.code = code
	}
	o.ResponseWriter.WriteHeader(code)
}

func (o *observed) Write(p []byte) (int, error) {
	n, err := o.ResponseWriter.Write(p)
	o.bytes += int64(n)
	return n, err
}

func (o *observed) status() int {
	if o.code == 0 {
		return http.StatusOK
	}
	return o.code
}
