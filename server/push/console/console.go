// Package console is the page for operators of a push server, as a door. It shows figures,
// channels, clients, rules, tokens and the cluster.
//
// console.go serves the page's files, which stand in the folder page, and the figures. pages.go
// serves what else the page shows.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push"

	"github.com/myriad-go/myriad"
)

// The console is plain HTML, CSS and JavaScript modules. It loads nothing from other sites; its
// Content-Security-Policy makes the browser enforce that. The files contain no data of the server,
// so they need no key. The data comes from paths below /console/, for operators only (see
// Config.ConsoleKey).
//
//go:embed page
var files embed.FS

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// A Door is the page for operators, with what it asks for.
type Door struct {
	hub    *hub.Hub
	server *push.Server
}

// New returns the door.
func New() *Door { return new(Door) }

// Forms implements Door: its pages subscribe by that for Server-Sent Events.
func (*Door) Forms() []hub.Form { return nil }

// Open implements Door.
func (s *Door) Open(h *hub.Hub) (clients, admin func(*http.ServeMux)) {
	s.hub = h
	return nil, nil
}

// OpenAdmin implements AdminDoor. The paths are / and those below /console/, unless
// Config.DisableConsole is set, and /cluster/remove.
func (s *Door) OpenAdmin(server *push.Server) (admin func(*http.ServeMux)) {
	s.server = server
	return func(mux *http.ServeMux) {
		mux.HandleFunc("/cluster/remove", s.hub.ForOperator(s.serveRemove))
		if s.hub.HasConsole() {
			s.route(mux)
		}
	}
}

func (s *Door) route(mux *http.ServeMux) {
	files, err := fs.ReadDir(files, "page")
	if err != nil {
		panic("push: the console's files are missing from the binary: " + err.Error())
	}
	for _, file := range files {
		name := "page/" + file.Name()
		pattern := "GET /console/" + file.Name()
		if file.Name() == "index.html" {
			pattern = "GET /{$}"
		}
		mux.Handle(pattern, page(name))
	}
	mux.HandleFunc("GET /console/stats", s.hub.ForOperator(s.serveStats))
	mux.HandleFunc("GET /console/channels", s.hub.ForOperator(s.serveChannels))
	mux.HandleFunc("GET /console/channel", s.hub.ForOperator(s.serveChannel))
	mux.HandleFunc("GET /console/connections", s.hub.ForOperator(s.serveConnections))
	mux.HandleFunc("GET /console/namespaces", s.hub.ForOperator(s.serveNamespaces))
	mux.HandleFunc("GET /console/refusals", s.hub.ForOperator(s.serveRefusals))
	mux.HandleFunc("POST /console/token", s.hub.ForOperator(s.serveToken))
	mux.HandleFunc("GET /console/cluster", s.hub.ForOperator(s.serveCluster))
}

// page serves one file. Its ETag is its hash: a browser gets a new version at once, and an
// unchanged file is not sent again.
func page(name string) http.HandlerFunc {
	text, err := files.ReadFile(name)
	if err != nil {
		panic("push: the console's files are missing from the binary: " + err.Error())
	}
	sum := sha256.Sum256(text)
	tag := strconv.Quote(hex.EncodeToString(sum[:12]))
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		http.ServeFileFS(w, r, files, name)
	}
}

// stats is what the console shows: the counters of the metrics, and samples of the last
// minutes.
type stats struct {
	Version         string           `json:"version"`
	Development     bool             `json:"development"`
	Connections     int64            `json:"connections"`
	Channels        int              `json:"channels"`
	Publishes       uint64           `json:"publishes"`
	Messages        uint64           `json:"messages"`
	SlowDisconnects uint64           `json:"slow_disconnects"`
	UptimeSeconds   int64            `json:"uptime_seconds"`
	QueueLimit      int              `json:"queue_limit"`
	Loops           []loopStats      `json:"loops"`
	Slow            []hub.SlowClient `json:"slow"` // the newest first
	Fields          []string         `json:"fields"`
	Samples         [][]int64        `json:"samples"` // a second each, the oldest first, in the order of fields
}

type loopStats struct {
	Conns         int    `json:"conns"`
	Turns         uint64 `json:"turns"`
	BusyMicros    int64  `json:"busy_us"` // since the start
	LongTurns     uint64 `json:"long_turns"`
	LongestMicros int64  `json:"longest_us"`
	Queued        int64  `json:"queued"`
	BytesIn       uint64 `json:"bytes_in"`
	BytesOut      uint64 `json:"bytes_out"`
}

// serveStats sends the samples that are newer than the query's "after", in milliseconds since 1970.
func (s *Door) serveStats(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // anything else asks for all of them
	f := s.server.Figures(after)
	body, err := json.Marshal(stats{
		Version: s.hub.Version(), Development: s.hub.Keys().IsOpen(), Connections: f.Connections, Channels: f.Channels,
		Publishes: f.Publishes, Messages: f.Messages, SlowDisconnects: f.SlowDisconnects,
		UptimeSeconds: int64(f.Uptime / time.Second), QueueLimit: s.hub.Limits().Queue,
		Loops: loopsOf(s.server.Config().Engine),
		Slow:  f.Slow, Fields: f.Fields, Samples: f.Samples,
	})
	if err != nil {
		panic("push: stats are always JSON: " + err.Error())
	}
	answer.WriteJSON(w, http.StatusOK, body)
}

func loopsOf(engine *myriad.Engine) []loopStats {
	loops := []loopStats{}
	if engine == nil {
		return loops
	}
	for _, l := range engine.Stats().Loops {
		loops = append(loops, loopStats{
			Conns: l.Conns, Turns: l.Turns, BusyMicros: l.BusyTime.Microseconds(), LongTurns: l.LongTurns,
			LongestMicros: l.LongestTurn.Microseconds(), Queued: l.Queued, BytesIn: l.BytesIn, BytesOut: l.BytesOut,
		})
	}
	return loops
}

// writeShown answers with a value that is always JSON.
func writeShown(w http.ResponseWriter, shown any) {
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: what the console shows is always JSON: " + err.Error())
	}
	answer.WriteJSON(w, http.StatusOK, body)
}
