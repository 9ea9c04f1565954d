package push

import (
	"net/http"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/web"
)

// The paths of the Mercure hub. A client finds the hub at the first one (draft-dunglas-mercure,
// "Terminology" and "Discovery").
const (
	mercurePath       = "/.well-known/mercure"
	subscriptionsPath = mercurePath + "/subscriptions"
)

// mercureDoor is a Mercure hub: updates of topics, as Server-Sent Events. Topics are not channels:
// an update has several of them, subscribers select topics by URI templates, and the events of all
// topics have one order.
func mercureDoor() door {
	return door{forms: []form{mercureForm{}}, open: func(s *Server) func(*http.ServeMux) {
		h := newMercureHub(s)
		return func(mux *http.ServeMux) {
			mux.HandleFunc(mercurePath, s.unlessDraining(h.limited(s.limitConnections(h.serve))))
			if !h.config.Subscriptions {
				return
			}
			for _, path := range []string{"", "/{topic}", "/{topic}/{subscriber}"} {
				mux.HandleFunc(subscriptionsPath+path, s.unlessDraining(h.limitedLists))
			}
		}
	}}
}

// A mercureForm writes each update as an event. The publications are those of the hub's log.
type mercureForm struct{}

func (mercureForm) kind() (transport, protocol string) { return "mercure", "events" }

func (mercureForm) publications(_ string, list []Publication) []byte {
	dst := make([]byte, 0, encodedSize("", list))
	for i := range list {
		u := updateOf(&list[i])
		dst = u.AppendEvent(dst)
	}
	return dst
}

// updateOf returns the update that was published as p, with an id.
func updateOf(p *Publication) mercure.Update {
	u := mercure.FromTags(p.Tags, string(p.Data))
	if u.ID == "" {
		u.ID = mercure.EventID(p.Epoch, p.Offset)
	}
	return u
}

func (mercureForm) notice(string, bus.Notice) []byte { return nil }

func (mercureForm) subscribed(string, welcome) []byte { return nil }

func (mercureForm) unsubscribed(string, unsubscription) []byte { return nil }

func (mercureForm) refreshed(uint32) []byte { return nil }

func (mercureForm) ping() (payload []byte, answered bool) { return []byte(":\n\n"), false }

func (mercureForm) share(payload []byte) shared { return web.NewChunk(payload) }
