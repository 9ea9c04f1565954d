package push

import (
	"net/http"
	"strconv"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/web"
)

// eventsDoor is Server-Sent Events (WHATWG HTML §9.2) for subscribers that only read.
func eventsDoor() door {
	d := door{open: func(s *Server) func(*http.ServeMux) {
		return func(mux *http.ServeMux) {
			mux.HandleFunc("/events", s.unlessDraining(s.limitConnections(s.serveEvents)))
		}
	}}
	for _, named := range []bool{false, true} {
		for _, numbered := range []bool{false, true} {
			d.forms = append(d.forms, eventForm{named, numbered})
		}
	}
	return d
}

// An eventForm writes each publication as an event with the publication's data.
type eventForm struct {
	named    bool // events are named after their channel
	numbered bool // events have an id, which is the position: for streams of one channel
}

func (eventForm) kind() (transport, protocol string) { return "events", "json" }

func (f eventForm) publications(channel string, list []Publication) []byte {
	dst := make([]byte, 0, encodedSize(channel, list))
	for _, p := range list {
		if f.numbered && p.Epoch != "" {
			dst = appendID(dst, p.Position)
		}
		if f.named {
			dst = append(append(append(dst, "event: "...), channel...), '\n')
		}
		dst = append(append(append(dst, "data: "...), jsonOf(&p)...), "\n\n"...)
	}
	return dst
}

// appendID appends the id field, which an EventSource returns as Last-Event-ID.
func appendID(dst []byte, at Position) []byte {
	dst = append(append(append(dst, "id: "...), at.Epoch...), ':')
	return append(strconv.AppendUint(dst, at.Offset, 10), '\n')
}

func (f eventForm) notice(string, bus.Notice) []byte { return nil }

func (f eventForm) subscribed(string, welcome) []byte { return nil }

// An EventSource cannot be told; when it reconnects, the status of the answer has the reason.
func (f eventForm) unsubscribed(string, unsubscription) []byte { return nil }

func (f eventForm) refreshed(uint32) []byte { return nil }

func (f eventForm) ping() (payload []byte, answered bool) { return []byte(":\n\n"), false }

func (f eventForm) share(payload []byte) shared { return web.NewChunk(payload) }
