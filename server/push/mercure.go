package push

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/server/push/token"
)

// A MercureConfig configures the Mercure hub at /.well-known/mercure. The zero value is a hub whose
// publishers and subscribers need tokens if clients of the other doors need them.
type MercureConfig struct {
	// Anonymous lets subscribers without a token have public updates.
	Anonymous bool
	// PublisherSecret is the secret of publishers' tokens (HS256, HS384 or HS512), if it is not
	// that of the subscribers. Empty: the keys of Config serve both; the claims tell a publisher.
	PublisherSecret string
	// Subscriptions serves the subscription API, and publishes an update when a subscription begins
	// or ends.
	Subscriptions bool
	// HistorySize is how many updates the hub keeps for subscribers that come back, at most 65,536,
	// default 1,000. HistoryAge is how long it keeps them, default 1 h.
	HistorySize int
	HistoryAge  time.Duration
}

func (c MercureConfig) withDefaults() MercureConfig {
	if c.HistorySize <= 0 {
		c.HistorySize = 1000
	}
	if c.HistoryAge <= 0 {
		c.HistoryAge = time.Hour
	}
	c.HistorySize = min(c.HistorySize, MaxHistorySize)
	return c
}

// mercureLog is the name of the log of all updates on the bus. It is no valid name of a channel, so
// that no client of another door can reach private updates.
const mercureLog = "\x00mercure"

// A mercureHub is the Mercure door of a server: the Receiver of the log of updates.
type mercureHub struct {
	*Server
	config     MercureConfig
	publishers *token.Verifier // nil: publishers need no token

	opening sync.Mutex // held while subscribing to the bus
	opened  bool       // until the bus is closed

	mu       sync.Mutex // also orders a new subscriber among the updates
	router   mercure.Router[*Session]
	payloads map[*Session]mercureSubscriber // nil without Subscriptions
	window   Window

	receivers []*Session // of one update; reused by Receive, whose calls do not overlap
}

// open prepares the hub for its server.
func (h *mercureHub) open(s *Server) {
	h.Server, h.publishers = s, s.Tokens()
	if h.config.PublisherSecret != "" {
		// A secret has no error.
		h.publishers, _ = token.New(token.Config{Secret: h.config.PublisherSecret, Now: s.Clock().Now})
	}
	if h.config.Subscriptions {
		h.payloads = make(map[*Session]mercureSubscriber)
		h.serveQuestion()
	}
}

func (h *mercureHub) topic() bus.Topic {
	return bus.Topic{Name: mercureLog, Keep: bus.Retention{Size: h.config.HistorySize, Age: h.config.HistoryAge}}
}

// errMercureID is for an update whose publisher has chosen an id that names another one.
var errMercureID = errors.New("push: mercure: the id is one that the hub has chosen, or will choose, for " +
	"another update")

// publish adds an update to the log, and returns its id.
func (h *mercureHub) publish(ctx context.Context, u mercure.Update) (id string, err error) {
	p := Publication{Data: []byte(u.Data), Kind: Text, Tags: u.Tags()}
	if mercure.IsEventID(u.ID) {
		if _, ours, err := h.placeOf(ctx, u.ID); err != nil || ours {
			return "", cmp.Or(err, errMercureID)
		}
	}
	p.Position, err = h.PublishLog(ctx, h.topic(), p)
	return updateOf(&p).ID, err
}

// connect subscribes the hub to its log, once.
func (h *mercureHub) connect() error {
	h.opening.Lock()
	defer h.opening.Unlock()
	if h.opened {
		return nil
	}
	ctx, cancel := h.BusDeadline(context.Background())
	defer cancel()
	err := h.Bus().Subscribe(ctx, h.topic(), h)
	h.opened = err == nil
	return err
}

// A resume says where a subscriber continues.
type resume struct {
	from   string        // the id of the event before the first one that the subscriber gets, or "earliest"
	missed []Publication // the events that it gets first
}

// join makes s a subscriber. With an id of the last event, which may be "earliest", it calls
// announce with what s has missed, after the last update that s does not get otherwise, and before
// the first one that it gets. announce must only queue bytes for s.
func (h *mercureHub) join(s *Session, want mercure.Interest, last string, announce func(resume)) error {
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
	from := NewJoinPoint(past, rest)
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
func (h *mercureHub) after(want mercure.Interest, id string) (past History, found string, err error) {
	ctx, cancel := h.BusDeadline(context.Background())
	defer cancel()
	at, ours, err := h.placeOf(ctx, id)
	if err != nil {
		return past, "", err
	}
	q := Query{Limit: -1}
	if ours {
		q.Since = &at
	}
	if past, err = h.Bus().History(ctx, h.topic(), q); err != nil {
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
func (h *mercureHub) placeOf(ctx context.Context, id string) (at Position, ours bool, err error) {
	now, err := h.Bus().History(ctx, h.topic(), Query{})
	if err != nil {
		return at, false, err
	}
	offset, ours := mercure.ParseEventID(id, now.Top.Epoch)
	return Position{Offset: offset, Epoch: now.Top.Epoch}, ours, nil
}

// resumption selects what s gets of list: the latest events that Limits allow.
func (h *mercureHub) resumption(want mercure.Interest, list []Publication, found string) resume {
	selected, bytes := []Publication{}, 0
	for i := len(list) - 1; i >= 0; i-- {
		p := &list[i]
		if !want.Has(mercure.FromTags(p.Tags, "")) {
			continue
		}
		bytes += EncodedSize("", list[i:i+1])
		if len(selected) == h.Limits().Recovered || bytes > h.Limits().Queue {
			found = updateOf(p).ID
			break
		}
		selected = append(selected, *p)
	}
	slices.Reverse(selected)
	return resume{found, selected}
}

// leave ends a subscription. It does nothing for a session that is not subscribed.
func (h *mercureHub) leave(s *Session) {
	h.mu.Lock()
	h.router.Leave(s)
	h.mu.Unlock()
}

// Receive sends each update to its subscribers, encoded once. The bus calls it, one call at a time.
func (h *mercureHub) Receive(_ string, list []Publication) {
	for i := range list {
		h.spread(list[i : i+1])
	}
}

// spread sends one update. A subscriber that joins before the lock is released gets it from the
// window, or as a receiver; one that joins later does not get it.
func (h *mercureHub) spread(one []Publication) {
	u := mercure.FromTags(one[0].Tags, "")
	h.mu.Lock()
	h.window.Keep(one)
	h.receivers = h.router.Select(u.Topics, u.Private, h.receivers[:0])
	h.mu.Unlock()
	if len(h.receivers) == 0 {
		return
	}
	payload := mercureForm{}.Publications("", one)
	m := &Message{payload, mercureForm{}.Share(payload)}
	defer m.Release()
	sent := 0
	for _, s := range h.receivers {
		switch s.Offer(m) {
		case OfferTaken:
			sent++
		case OfferFull:
			s.TooSlow(u.Topics[0], len(m.Payload))
		}
	}
	h.CountMessages(sent)
	clear(h.receivers)
}

// Lost ends all streams: their clients come back with the id of their last event.
func (h *mercureHub) Lost(string) {
	h.mu.Lock()
	h.window.Lose()
	all := h.router.All()
	h.mu.Unlock()
	for _, s := range all {
		s.Disconnect(DisconnectInsufficientState)
	}
}

// Notice does nothing: subscriptions are announced by updates.
func (h *mercureHub) Notice(string, bus.Notice) {}

// Present appends nothing: subscribers are listed by the subscription API.
func (h *mercureHub) Present(_ string, to []ClientInfo) []ClientInfo { return to }
