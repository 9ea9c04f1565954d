package mercure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// This file holds the hub's active subscriptions: the updates about them, and the API that lists
// them (draft-dunglas-mercure, "Active Subscriptions").

const (
	jsonldContext = "https://mercure.rocks/"
	// mostSubscriptions bounds the subscriptions of one answer, which are in order of their ids.
	mostSubscriptions = 10_000
)

// A subscriber is what the hub tells others of a subscriber.
type subscriber struct {
	topics  []string
	payload json.RawMessage
}

// A subscription is the JSON-LD document of one.
type subscription struct {
	Context     string          `json:"@context,omitempty"`
	ID          string          `json:"id"`
	Type        string          `json:"type"`
	Subscriber  string          `json:"subscriber"`
	Topic       string          `json:"topic"`
	Active      bool            `json:"active"`
	LastEventID string          `json:"lastEventID,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

func newSubscription(s *hub.Session, topic string, payload json.RawMessage) subscription {
	name := "urn:uuid:" + s.ID()
	return subscription{ID: subscriptionsPath + "/" + escaped(topic) + "/" + escaped(name),
		Type:       "Subscription",
		Subscriber: name, Topic: topic, Active: true, Payload: payload}
}

// escaped expands a variable of a URI template: all characters but the unreserved ones are encoded.
func escaped(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// announced announces that a session has subscribed, and returns what to call when it has ended.
func (h *Hub) announced(s *hub.Session, topics []mercure.Selector, payload []byte) (end func()) {
	if h.payloads == nil {
		return func() { h.leave(s) }
	}
	one := subscriber{payload: payload}
	for _, t := range topics {
		one.topics = append(one.topics, t.String())
	}
	slices.Sort(one.topics)
	one.topics = slices.Compact(one.topics)
	h.tell(s, one, true)
	return h.listed(s, one)
}

// listed lists a subscriber that was announced, and returns what to call when its session has
// ended.
func (h *Hub) listed(s *hub.Session, one subscriber) (end func()) {
	h.mu.Lock()
	h.payloads[s] = one
	h.mu.Unlock()
	return func() {
		h.forget(s)
		// another goroutine, because the bus may wait and the caller may be a loop
		h.hub.Clock().AfterFunc(0, func() { h.tell(s, one, false) })
	}
}

// forget ends a subscription, and lists it no more.
func (h *Hub) forget(s *hub.Session) {
	h.leave(s)
	h.mu.Lock()
	delete(h.payloads, s)
	h.mu.Unlock()
}

// tell publishes a private update about each subscription. It does not retry.
func (h *Hub) tell(s *hub.Session, one subscriber, active bool) {
	for _, topic := range one.topics {
		about := newSubscription(s, topic, one.payload)
		about.Context, about.Active = jsonldContext, active
		data, err := json.Marshal(about)
		if err != nil {
			panic("push: a subscription is always JSON: " + err.Error())
		}
		_, err = h.publish(context.Background(), mercure.Update{Topics: []string{about.ID}, Data: string(data),
			Private: true})
		switch {
		case err == nil, errors.Is(err, answer.ErrDraining), errors.Is(err, answer.ErrOverloaded),
			errors.Is(err, bus.ErrClosed):
		default:
			h.hub.Logger().Warn("push: a Mercure subscription was not announced", "topic", topic, "error", err)
		}
	}
}

// A question asks all nodes for their subscriptions.
type question struct{ Topic, Subscriber string }

func (q question) selects(one subscription) bool {
	return (q.Topic == "" || one.Topic == q.Topic) && (q.Subscriber == "" || one.Subscriber == q.Subscriber)
}

// serveQuestion makes this node answer such questions until it has shut down.
func (h *Hub) serveQuestion() {
	stop := h.hub.Bus().Serve("mercure", func(body []byte) []byte {
		var q question
		if strict.Unmarshal(body, &q) != nil {
			return nil // of a version that this one does not understand
		}
		answer, err := json.Marshal(h.subscriptionsHere(q))
		if err != nil {
			panic("push: an answer to another node is always JSON: " + err.Error())
		}
		return answer
	})
	h.hub.OnClose(stop)
}

func (h *Hub) subscriptionsHere(q question) []subscription {
	list := []subscription{}
	h.mu.Lock()
	for s, one := range h.payloads {
		for _, topic := range one.topics {
			if about := newSubscription(s, topic, one.payload); q.selects(about) {
				list = append(list, about)
			}
		}
	}
	h.mu.Unlock()
	return firstSubscriptions(list)
}

func firstSubscriptions(list []subscription) []subscription {
	slices.SortFunc(list, func(a, b subscription) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), mostSubscriptions)]
}

// serveSubscriptions answers with the subscriptions of all nodes, those for one topic, or one.
func (h *Hub) serveSubscriptions(w http.ResponseWriter, r *http.Request) {
	if !answer.AllowMethod(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	if err := h.mayList(r); err != nil {
		h.refuse(w, r, err)
		return
	}
	ctx, cancel := h.hub.BusDeadline(r.Context())
	defer cancel()
	past, err := h.hub.Bus().History(ctx, h.topic(), bus.Query{})
	if err != nil {
		answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code, answer.FailureOf(h.hub.Logger(),
			"mercure subscriptions",
			err).Message)
		return
	}
	last := mercure.Earliest
	if past.Top.Offset > 0 { // not what a publisher has chosen: that may name another update, too
		last = mercure.EventID(past.Top.Epoch, past.Top.Offset)
	}
	header := w.Header()
	header.Set("Link", "<"+hubPath+`>; rel="mercure"`)
	header.Set("ETag", fmt.Sprintf("%q", last))
	header.Set("Cache-Control", "must-revalidate")
	if answer.HasETag(r, last) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.answerSubscriptions(ctx, w, r, last)
}

// mayList checks that a selector of the token selects the URL, or that the key of the API or the
// console is given.
func (h *Hub) mayList(r *http.Request) error {
	if !h.hub.Authenticates() && !h.hub.Keys().NeedsKey() || h.hub.Keys().HasKey(r) || h.hub.Keys().IsOperator(r) {
		return nil
	}
	token, _ := tokenOf(r)
	if token == "" || h.hub.Tokens() == nil {
		return hub.ErrNoToken
	}
	t, err := verify(h.hub.Tokens(), token, h.hub.Limits().Channels)
	if err == nil && !anyMatches(t.allowed, r.URL.EscapedPath()) {
		err = fmt.Errorf("%w: the token's claim mercure.subscribe does not have %s", errDenied,
			r.URL.EscapedPath())
	}
	return err
}

func (h *Hub) answerSubscriptions(ctx context.Context, w http.ResponseWriter, r *http.Request, last string) {
	q := question{r.PathValue("topic"), r.PathValue("subscriber")}
	list := []subscription{}
	body, err := json.Marshal(q)
	if err == nil {
		_, err = h.hub.Bus().Ask(ctx, "mercure", body, func(answer []byte) {
			var some []subscription
			if json.Unmarshal(answer, &some) == nil {
				list = append(list, some...)
			}
		})
	}
	var document any = struct {
		Context       string         `json:"@context"`
		ID            string         `json:"id"`
		Type          string         `json:"type"`
		LastEventID   string         `json:"lastEventID"`
		Subscriptions []subscription `json:"subscriptions"`
	}{jsonldContext, r.URL.EscapedPath(), "Subscriptions", last, firstSubscriptions(list)}
	switch {
	case err != nil:
		answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code, answer.FailureOf(h.hub.Logger(),
			"mercure subscriptions",
			err).Message)
		return
	case q.Subscriber != "" && len(list) == 0:
		answer.WriteError(w, http.StatusNotFound, answer.ErrMethodNotFound.Code, "there is no such subscription")
		return
	case q.Subscriber != "":
		list[0].Context, list[0].LastEventID = jsonldContext, last
		document = list[0]
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic("push: subscriptions are always JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/ld+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(text) // an error means that the client has disconnected
}
