package push

import (
	"net/http"

	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/web"
)

// The paths of the Mercure hub. A client finds the hub at the first one (draft-dunglas-mercure,
// "Terminology" and "Discovery").
const (
	mercurePath       = "/.well-known/mercure"
	subscriptionsPath = mercurePath + "/subscriptions"
)

// newMercureDoor returns a Mercure hub: updates of topics, as Server-Sent Events. Topics are not
// channels: an update has several of them, subscribers select topics by URI templates, and the events
// of all topics have one order.
func newMercureDoor(c MercureConfig) *mercureHub { return &mercureHub{config: c.withDefaults()} }

// Forms implements Door.
func (*mercureHub) Forms() []Form { return []Form{mercureForm{}} }

// Open implements Door. The hub costs nothing until it is used.
func (h *mercureHub) Open(s *Server) (clients, admin func(*http.ServeMux)) {
	h.open(s)
	return func(mux *http.ServeMux) {
		mux.HandleFunc(mercurePath, s.UnlessDraining(h.limited(s.LimitConnections(h.serve))))
		if !h.config.Subscriptions {
			return
		}
		for _, path := range []string{"", "/{topic}", "/{topic}/{subscriber}"} {
			mux.HandleFunc(subscriptionsPath+path, s.UnlessDraining(h.limitedLists))
		}
	}, nil
}

// A mercureForm writes each update as an event. The publications are those of the hub's log.
type mercureForm struct{ QuietForm }

func (mercureForm) Kind() (transport, protocol string) { return "mercure", "events" }

func (mercureForm) Publications(_ string, list []Publication) []byte {
	dst := make([]byte, 0, EncodedSize("", list))
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

func (mercureForm) Ping() (payload []byte, answered bool) { return []byte(":\n\n"), false }

func (mercureForm) Share(payload []byte) Shared { return web.NewChunk(payload) }
