package push

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
)

// The console is plain HTML, CSS and one module. It loads nothing from elsewhere, and its policy makes the browser hold it to
// that.
//
//go:embed console/index.html console/style.css console/console.js
var consoleFiles embed.FS

const consolePolicy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) routeConsole(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { serveConsole(w, r, "console/index.html") })
	for _, name := range []string{"console/style.css", "console/console.js"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { serveConsole(w, r, name) })
	}
	mux.HandleFunc("GET /console/stats", s.serveStats)
}

func serveConsole(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, fs.FS(consoleFiles), name)
}

// stats is what the console shows: the counters of the metrics, for people.
type stats struct {
	Version         string `json:"version"`
	Development     bool   `json:"development"`
	Connections     int64  `json:"connections"`
	Channels        int    `json:"channels"`
	Publishes       uint64 `json:"publishes"`
	Messages        uint64 `json:"messages"`
	SlowDisconnects uint64 `json:"slow_disconnects"`
}

func (s *Server) serveStats(w http.ResponseWriter, _ *http.Request) {
	n := s.node
	body, err := json.Marshal(stats{
		Version: n.version, Development: s.isOpen(), Connections: n.count.connections.Load(), Channels: n.hub.channels(),
		Publishes: n.count.publishes.Load(), Messages: n.count.messages.Load(), SlowDisconnects: n.count.slow.Load(),
	})
	if err != nil {
		panic("push: stats are always JSON: " + err.Error())
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, body)
}
