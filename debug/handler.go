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
	// defaultShown and maxShown are how many connections each list has, unless the query says
	// otherwise, and at most.
	defaultShown = 20
	maxShown     = 1000
)

// Handler serves a page about e: its limits, loops, slowest types of handlers, and connections by
// state, with those that have the most bytes queued and those that are oldest. It works with
// net/http and with web.Server, at any path.
//
// The query "format=json" gives the same as JSON, durations in nanoseconds. "conns=50" has up to 50
// connections in each list (20 if it is not given, 1000 at most); "conns=0" leaves connections out.
//
// All but the connections is told without the loops' help, and sent first: it is there even if a
// loop hangs. The connections are counted by the loops themselves, 512 places of their tables in a
// turn; the page waits for that as long as its client does.
func Handler(e *myriad.Engine) http.Handler { return &page{e} }

type page struct{ engine *myriad.Engine }

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "debug: this page is only read: use GET", http.StatusMethodNotAllowed)
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
			return // nobody is there to read
		}
	}
	w.Header().Set("Content-Type", "application/json")
	body := json.NewEncoder(w)
	body.SetIndent("", " ")
	_ = body.Encode(report) // fails only if nobody reads
}

func (p *page) serveText(w http.ResponseWriter, r *http.Request, shown int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var text bytes.Buffer
	newReport(p.engine).writeTo(&text)
	_, _ = w.Write(text.Bytes()) // fails only if nobody reads
	if shown == 0 {
		return
	}
	_ = http.NewResponseController(w).Flush() // what is known is seen, if the writer can do it, before loops are asked
	conns, err := look(r.Context(), p.engine, shown)
	if err != nil {
		return
	}
	text.Reset()
	conns.writeTo(&text)
	_, _ = w.Write(text.Bytes())
}
