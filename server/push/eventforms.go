package push

import (
	"net/http"
	"strconv"

	"github.com/myriad-go/myriad/web"
)

// An eventsDoor is Server-Sent Events (WHATWG HTML §9.2) for subscribers that only read.
type eventsDoor struct{ *Server }

// newEventsDoor returns the door.
func newEventsDoor() *eventsDoor { return new(eventsDoor) }

// Forms implements Door.
func (*eventsDoor) Forms() (forms []Form) {
	for _, named := range []bool{false, true} {
		for _, numbered := range []bool{false, true} {
			forms = append(forms, eventForm{named: named, numbered: numbered})
		}
	}
	return forms
}

// Open implements Door. The path is /events; the console has one of its own.
func (d *eventsDoor) Open(s *Server) (clients, admin func(*http.ServeMux)) {
	d.Server = s
	return func(mux *http.ServeMux) {
			mux.HandleFunc("/events", s.UnlessDraining(s.LimitConnections(d.serveEvents)))
		}, func(mux *http.ServeMux) {
			if s.HasConsole() {
				mux.HandleFunc("GET /console/events", s.UnlessDraining(s.ForOperator(d.serveConsoleEvents)))
			}
		}
}

// An eventForm writes each publication as an event with the publication's data. An EventSource cannot
// be told that a subscription has ended; when it reconnects, the status of the answer has the reason.
type eventForm struct {
	QuietForm
	named    bool // events are named after their channel
	numbered bool // events have an id, which is the position: for streams of one channel
}

func (eventForm) Kind() (transport, protocol string) { return "events", "json" }

func (f eventForm) Publications(channel string, list []Publication) []byte {
	dst := make([]byte, 0, EncodedSize(channel, list))
	for _, p := range list {
		if f.numbered && p.Epoch != "" {
			dst = appendID(dst, p.Position)
		}
		if f.named {
			dst = append(append(append(dst, "event: "...), channel...), '\n')
		}
		dst = append(append(append(dst, "data: "...), JSONOf(&p)...), "\n\n"...)
	}
	return dst
}

// appendID appends the id field, which an EventSource returns as Last-Event-ID.
func appendID(dst []byte, at Position) []byte {
	dst = append(append(append(dst, "id: "...), at.Epoch...), ':')
	return append(strconv.AppendUint(dst, at.Offset, 10), '\n')
}

func (f eventForm) Ping() (payload []byte, answered bool) { return []byte(":\n\n"), false }

func (f eventForm) Share(payload []byte) Shared { return web.NewChunk(payload) }
