// Package mercure is the door for Mercure: a hub at /.well-known/mercure (draft-dunglas-mercure).
//
// hub.go sends each update to its subscribers; http.go serves those who subscribe and publish;
// token.go says what a token allows; subscriptions.go lists and announces active subscriptions.
// Selectors and updates are package push/internal/mercure.
package mercure

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/server/push/token"
	"github.com/myriad-go/myriad/web"
)

// The paths of the Mercure hub. A client finds the hub at the first one (draft-dunglas-mercure,
// "Terminology" and "Discovery").
const (
	hubPath           = "/.well-known/mercure"
	subscriptionsPath = hubPath + "/subscriptions"
)

// New returns a Mercure hub: updates of topics, as Server-Sent Events. Topics are not
// channels: an update has several of them, subscribers select topics by URI templates, and the
// events of all topics have one order.
func New(c Config) *Hub { return &Hub{config: c.withDefaults()} }

// Forms implements Door.
func (*Hub) Forms() []hub.Form { return []hub.Form{form{}} }

// Open implements Door. The hub costs nothing until it is used.
func (h *Hub) Open(node *hub.Hub) (clients, admin func(*http.ServeMux)) {
	h.open(node)
	node.MoveStreams(h)
	return func(mux *http.ServeMux) {
		mux.HandleFunc(hubPath, node.UnlessDraining(h.limited(node.LimitConnections(h.serve))))
		if !h.config.Subscriptions {
			return
		}
		for _, path := range []string{"", "/{topic}", "/{topic}/{subscriber}"} {
			mux.HandleFunc(subscriptionsPath+path, node.UnlessDraining(h.limitedLists))
		}
	}, nil
}

// A form writes each update as an event. The publications are those of the hub's log.
type form struct{ hub.QuietForm }

func (form) Kind() (transport, protocol string) { return "mercure", "events" }

func (form) Publications(_ string, list []bus.Publication) []byte {
	dst := make([]byte, 0, hub.EncodedSize("", list))
	for i := range list {
		u := updateOf(&list[i])
		dst = u.AppendEvent(dst)
	}
	return dst
}

// updateOf returns the update that was published as p, with an id.
func updateOf(p *bus.Publication) mercure.Update {
	u := mercure.FromTags(p.Tags, string(p.Data))
	if u.ID == "" {
		u.ID = mercure.EventID(p.Epoch, p.Offset)
	}
	return u
}

func (form) Ping() (payload []byte, answered bool) { return []byte(":\n\n"), false }

// IsEvents implements hub.EventForm.
func (form) IsEvents() bool { return true }

func (form) Share(payload []byte) hub.Shared { return web.NewChunk(payload) }

// A Config configures the Mercure hub at /.well-known/mercure. The zero value is a hub whose
// publishers and subscribers need tokens if clients of the other doors need them.
type Config struct {
	// Anonymous lets subscribers without a token have public updates.
	Anonymous bool
	// PublisherSecret is the secret of publishers' tokens (HS256, HS384 or HS512), if it is not
	// that of the subscribers. Empty: the keys of push.Config serve both; the claims tell a
	// publisher.
	PublisherSecret string
	// Subscriptions serves the subscription API, and publishes an update when a subscription begins
	// or ends.
	Subscriptions bool
	// HistorySize is how many updates the hub keeps for subscribers that come back, at most 65,536,
	// default 1,000. HistoryAge is how long it keeps them, default 1 h.
	HistorySize int
	HistoryAge  time.Duration
}

func (c Config) withDefaults() Config {
	if c.HistorySize <= 0 {
		c.HistorySize = 1000
	}
	if c.HistoryAge <= 0 {
		c.HistoryAge = time.Hour
	}
	c.HistorySize = min(c.HistorySize, policy.MaxHistorySize)
	return c
}

// logName is the name of the log of all updates on the bus. It is no valid name of a channel, so
// that no client of another door can reach private updates.
const logName = "\x00mercure"

// A Hub is the door: the Receiver of the log of updates.
type Hub struct {
	hub        *hub.Hub
	config     Config
	publishers *token.Verifier // nil: no key checks their tokens

	opening sync.Mutex // held while subscribing to the bus
	opened  bool       // it is subscribed
	closed  bool       // the server has shut down

	mu       sync.Mutex // also orders a new subscriber among the updates
	router   mercure.Router[*hub.Session]
	payloads map[*hub.Session]subscriber // nil without Subscriptions
	window   hub.Window

	receivers []*hub.Session // of one update; reused by Receive, whose calls do not overlap
}

// open prepares the hub for its server.
func (h *Hub) open(node *hub.Hub) {
	h.hub, h.publishers = node, node.Tokens()
	node.OnClose(h.disconnect)
	if h.config.PublisherSecret != "" {
		// A secret has no error.
		h.publishers, _ = token.New(token.Config{Secret: h.config.PublisherSecret, Now: node.Clock().Now})
	}
	if h.config.Subscriptions {
		h.payloads = make(map[*hub.Session]subscriber)
		h.serveQuestion()
	}
}

func (h *Hub) topic() bus.Topic {
	return bus.Topic{Name: logName, Keep: bus.Retention{Size: h.config.HistorySize, Age: h.config.HistoryAge}}
}

// errID is for an update whose publisher has chosen an id that names another one.
var errID = errors.New("push: mercure: the id is one that the hub has chosen, or will choose, for " +
	"another update")

// publish adds an update to the log, and returns its id.
func (h *Hub) publish(ctx context.Context, u mercure.Update) (id string, err error) {
	p := bus.Publication{Data: []byte(u.Data), Kind: bus.Text, Tags: u.Tags()}
	if mercure.IsEventID(u.ID) {
		if _, ours, err := h.placeOf(ctx, u.ID); err != nil || ours {
			return "", cmp.Or(err, errID)
		}
	}
	p.Position, err = h.hub.PublishLog(ctx, h.topic(), p)
	return updateOf(&p).ID, err
}

// connect subscribes the hub to its log, once.
func (h *Hub) connect() error {
	h.opening.Lock()
	defer h.opening.Unlock()
	switch {
	case h.opened:
		return nil
	case h.closed:
		return bus.ErrClosed
	}
	ctx, cancel := h.hub.BusDeadline(context.Background())
	defer cancel()
	err := h.hub.Bus().Subscribe(ctx, h.topic(), h)
	h.opened = err == nil
	return err
}

// disconnect ends the subscription to the log, for good.
func (h *Hub) disconnect() {
	h.opening.Lock()
	defer h.opening.Unlock()
	if h.opened {
		h.hub.Bus().Unsubscribe(logName, h)
	}
	h.opened, h.closed = false, true
}

// A resume says where a subscriber continues.
type resume struct {
	from   string            // the id of the event before the first one that the subscriber gets, or "earliest"
	missed []bus.Publication // the events that it gets first
}

// join makes s a subscriber. last is the id of its last event, "earliest", or "". Unless it is "",
// join calls announce with what s has missed, before the first update that s gets as a subscriber.
// announce must only queue bytes for s.
func (h *Hub) join(s *hub.Session, want mercure.Interest, last string, announce func(resume)) error {
	if err := h.connect(); err != nil {
		return err
	}
	if last == "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.router.Join(s, want)
	}
	h.mu.Lock()
	h.window.Open()
	h.mu.Unlock()
	past, found, err := h.after(want, last)
	h.mu.Lock()
	defer h.mu.Unlock()
	rest, missed := h.window.Close()
	if err != nil {
		return err
	}
	if missed != nil {
		return missed
	}
	if err := h.router.Join(s, want); err != nil {
		return err
	}
	from := hub.NewJoinPoint(past, rest)
	list := slices.Concat(past.Publications, from.Rest)
	announce(h.resumption(want, list, found))
	return nil
}

// after reads the history after the event with that id. If there is no such event, found is
// "earliest", and the history is all that is kept.
//
// An id that the hub has made names one place. Any other was chosen by a publisher, and another
// publisher may have used it for a topic of its own. So it is looked for among the updates that the
// subscriber can have received. Of several the oldest counts, so that nothing is left out.
func (h *Hub) after(want mercure.Interest, id string) (past bus.History, found string, err error) {
	ctx, cancel := h.hub.BusDeadline(context.Background())
	defer cancel()
	at, ours, err := h.placeOf(ctx, id)
	if err != nil {
		return past, "", err
	}
	q := bus.Query{Limit: -1}
	if ours {
		q.Since = &at
	}
	if past, err = h.hub.Bus().History(ctx, h.topic(), q); err != nil {
		return past, "", err
	}
	if ours && past.Complete {
		return past, id, nil
	}
	if ours || id == mercure.Earliest {
		return past, mercure.Earliest, nil
	}
	for i := range past.Publications {
		if tags := past.Publications[i].Tags; tags == nil {
			continue
		} else if u := mercure.FromTags(tags, ""); u.ID == id && want.Has(u) {
			past.Publications = past.Publications[i+1:]
			return past, id, nil
		}
	}
	return past, mercure.Earliest, nil
}

// placeOf returns the place that an id names. ours is false if the hub has not made the id in the
// epoch of its log.
func (h *Hub) placeOf(ctx context.Context, id string) (at bus.Position, ours bool, err error) {
	now, err := h.hub.Bus().History(ctx, h.topic(), bus.Query{})
	if err != nil {
		return at, false, err
	}
	offset, ours := mercure.ParseEventID(id, now.Top.Epoch)
	return bus.Position{Offset: offset, Epoch: now.Top.Epoch}, ours, nil
}

// resumption selects what s gets of list: the latest events that Limits allow.
func (h *Hub) resumption(want mercure.Interest, list []bus.Publication, found string) resume {
	selected, bytes := []bus.Publication{}, 0
	for i := len(list) - 1; i >= 0; i-- {
		p := &list[i]
		if !want.Has(mercure.FromTags(p.Tags, "")) {
			continue
		}
		bytes += hub.EncodedSize("", list[i:i+1])
		if len(selected) == h.hub.Limits().Recovered || bytes > h.hub.Limits().Queue {
			found = updateOf(p).ID
			break
		}
		selected = append(selected, *p)
	}
	slices.Reverse(selected)
	return resume{found, selected}
}

// leave ends a subscription. It does nothing for a session that is not subscribed.
func (h *Hub) leave(s *hub.Session) {
	h.mu.Lock()
	h.router.Leave(s)
	h.mu.Unlock()
}

// Receive sends each update to its subscribers, encoded once. The bus calls it, one call at a time.
func (h *Hub) Receive(_ string, list []bus.Publication) {
	for i := range list {
		h.spread(list[i : i+1])
	}
}

// spread sends one update. A subscriber that joins before the lock is released gets it from the
// window, or as a receiver; one that joins later does not get it.
func (h *Hub) spread(one []bus.Publication) {
	u := mercure.FromTags(one[0].Tags, "")
	h.mu.Lock()
	h.window.Keep(one)
	h.receivers = h.router.Select(u.Topics, u.Private, h.receivers[:0])
	h.mu.Unlock()
	if len(h.receivers) == 0 {
		return
	}
	payload := form{}.Publications("", one)
	m := &hub.Message{Payload: payload, Shared: form{}.Share(payload)}
	defer m.Release()
	sent := 0
	for _, s := range h.receivers {
		switch s.Offer(m) {
		case hub.OfferTaken:
			sent++
		case hub.OfferFull:
			s.TooSlow(u.Topics[0], len(m.Payload))
		}
	}
	h.hub.CountMessages(sent)
	clear(h.receivers)
}

// Lost ends all streams: their clients come back with the id of their last event.
func (h *Hub) Lost(string) {
	h.mu.Lock()
	h.window.Lose()
	all := h.router.All()
	h.mu.Unlock()
	for _, s := range all {
		s.Disconnect(answer.DisconnectInsufficientState)
	}
}

// Notice does nothing: subscriptions are announced by updates.
func (h *Hub) Notice(string, bus.Notice) {}

// Present appends nothing: subscribers are listed by the subscription API.
func (h *Hub) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo { return to }
