package debug

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/myriad-go/myriad"
)

const (
	// defaultShown is the length of each list of connections without a query, maxShown the longest
	// that a query may request.
	defaultShown = 20
	maxShown     = 1000
)

// Handler serves a page about e: its limits, its loops, its slowest types of handlers, and its
// connections by state. It lists the connections with the most bytes queued, and the oldest. It
// works with net/http and with web.Server, at any path.
//
// The query "format=json" gives the same as JSON, durations in nanoseconds. "conns=50" lists up to
// 50 connections in each list (default 20, at most 1000); "conns=0" omits connections.
//
// The page sends everything except connections first, without waiting for the loops, so that it
// works even if a loop hangs. The loops count the connections, 512 slots of their tables in a poll
// cycle. The page waits for them until its client disconnects.
func Handler(e *myriad.Engine) http.Handler { return &page{e} }

type page struct{ engine *myriad.Engine }

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "debug: this page is read-only: use GET", http.StatusMethodNotAllowed)
		return
	}
	asJSON, shown, err := options(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if asJSON {
		p.serveJSON(w, r, shown)
	} else {
		p.serveText(w, r, shown)
	}
}

func options(q url.Values) (asJSON bool, shown int, err error) {
	switch f := q.Get("format"); f {
	case "", "text":
	case "json":
		asJSON = true
	default:
		return false, 0, fmt.Errorf("debug: format=%q: it must be text or json", f)
	}
	shown = defaultShown
	if text := q.Get("conns"); text != "" {
		if shown, err = strconv.Atoi(text); err != nil || shown < 0 || shown > maxShown {
			return false, 0, fmt.Errorf("debug: conns=%q: it must be a number from 0 to %d", text, maxShown)
		}
	}
	return asJSON, shown, nil
}

func (p *page) serveJSON(w http.ResponseWriter, r *http.Request, shown int) {
	report := newReport(p.engine)
	if shown > 0 {
		var err error
		if report.Connections, err = look(r.Context(), p.engine, shown); err != nil {
			return // the client has disconnected
		}
	}
	w.Header().Set("Content-Type", "application/json")
	body := json.NewEncoder(w)
	body.SetIndent("", " ")
	_ = body.Encode(report) // fails only if the client has disconnected
}

func (p *page) serveText(w http.ResponseWriter, r *http.Request, shown int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var text bytes.Buffer
	newReport(p.engine).writeTo(&text)
	_, _ = w.Write(text.Bytes()) // fails only if the client has disconnected
	if shown == 0 {
		return
	}
	// sends the first part before the loops are asked, if the writer supports it
	_ = http.NewResponseController(w).Flush()
	conns, err := look(r.Context(), p.engine, shown)
	if err != nil {
		return
	}
	text.Reset()
	conns.writeTo(&text)
	_, _ = w.Write(text.Bytes())
}
