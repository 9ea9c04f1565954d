package mercure

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/mercure"
)

// serve answers requests to the hub: GET subscribes, POST publishes.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Link", "<"+hubPath+`>; rel="mercure"`)
	if !answer.AllowMethod(w, r, http.MethodGet, http.MethodHead, http.MethodPost) {
		return
	}
	if r.Method == http.MethodPost {
		h.servePublish(w, r)
		return
	}
	h.serveSubscribe(w, r)
}

// checkParameters returns an error for a parameter that the hub does not act on. One that was
// left out could mean that updates are.
func checkParameters(query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "match") || lower == "access_token" {
			return fmt.Errorf("the parameter %q is of Mercure 1.0, which is not served: use topic and authorization",
				name)
		}
	}
	return answer.CheckQuery(query, "topic", "lastEventID", "Last-Event-ID", "authorization")
}

// serveSubscribe answers with a stream of events that outlives the handler. It subscribes before it
// sends the head: a client that has the head gets everything published from then on.
func (h *Hub) serveSubscribe(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	topics, err := compileAll(query["topic"], h.hub.Limits().Channels)
	if err == nil {
		err = checkParameters(query)
	}
	if err == nil && len(topics) == 0 {
		err = errors.New("the parameter topic is missing: " + hubPath + "?topic=https://example.com/books/{id}")
	}
	if err != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, err.Error())
		return
	}
	who, err := h.subscriber(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "private, no-cache, no-store, must-revalidate, max-age=0")
	header.Set("X-Accel-Buffering", "no") // nginx would keep events back until its buffer is full
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	last := lastEventID(r, query)
	h.hold(w, r, who, mercure.Interest{Topics: topics, Allowed: who.allowed}, last)
}

// lastEventID returns the id of the last event that the client has. The header precedes the
// parameter: an EventSource sends it when it reconnects.
func lastEventID(r *http.Request, query map[string][]string) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	for _, name := range []string{"lastEventID", "Last-Event-ID"} { // the second is the name of older drafts
		if list := query[name]; len(list) > 0 && list[0] != "" {
			return list[0]
		}
	}
	return ""
}

func (h *Hub) hold(w http.ResponseWriter, r *http.Request, who access, want mercure.Interest,
	last string) {
	var end func()
	err := h.hub.ServeStream(w, r, form{}, who.Grant, h.hub.FirstEvent(), func(s *hub.Session) error {
		var from resume
		err := h.join(s, want, last, func(found resume) {
			if from = found; len(from.missed) > 0 {
				// the first message: there is room
				s.Offer(&hub.Message{Payload: form{}.Publications("", from.missed)})
			}
		})
		if err != nil {
			return err
		}
		if last != "" {
			w.Header().Set("Last-Event-ID", from.from)
		}
		end = h.announced(s, want.Topics, who.payload)
		return nil
	}, func(s *hub.Session) {
		end()
		s.Ended()
	})
	if err != nil {
		h.refuseJoin(w, r, err)
	}
}

// refuseJoin answers a client that could not be subscribed, and may be when others have left.
func (h *Hub) refuseJoin(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, mercure.ErrTooMany) {
		h.hub.RefuseForNow(w, r, h.hub.ConnectLater(), http.StatusTooManyRequests, answer.ErrLimitExceeded.Code,
			textOf(err))
		return
	}
	h.hub.Logger().Error("push: a Mercure subscriber could not be subscribed", "error", err)
	h.hub.RefuseForNow(w, r, h.hub.ConnectLater(), http.StatusServiceUnavailable, answer.ErrInternal.Code,
		"the subscription failed; the server's log has the reason")
}

// limited counts publications as calls, and everything else as next does.
func (h *Hub) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			next(w, r)
		case h.hub.MayCallNow(w, r):
			h.serve(w, r)
		}
	}
}

// limitedLists counts lists of subscriptions as calls.
func (h *Hub) limitedLists(w http.ResponseWriter, r *http.Request) {
	if h.hub.MayCallNow(w, r) {
		h.serveSubscriptions(w, r)
	}
}

// formFactor is how much longer a text may become in a form, where a byte takes up to three.
const formFactor = 3

// servePublish publishes the update in the request's form, and answers with its id.
func (h *Hub) servePublish(w http.ResponseWriter, r *http.Request) {
	may, err := h.publisher(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if err := answer.CheckQuery(r.URL.Query(), "authorization"); err != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, err.Error())
		return
	}
	limit := formFactor*h.hub.Limits().Publication + hub.BodySlack
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		answer.RefuseBody(w, err)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code,
			"the body is not application/x-www-form-urlencoded")
		return
	}
	u, err := mercure.ParseUpdate(form)
	switch {
	case err != nil:
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, textOf(err))
	case len(u.Data) > h.hub.Limits().Publication:
		answer.WriteTooLarge(w, h.hub.Limits().Publication)
	default:
		h.publishFor(w, r, may, u)
	}
}

// publishFor publishes u for a publisher whose token has the selectors may; nil: all topics.
func (h *Hub) publishFor(w http.ResponseWriter, r *http.Request, may []mercure.Selector, u mercure.Update) {
	for _, topic := range u.Topics {
		if strings.Contains(topic, hubPath) {
			h.refuse(w, r, fmt.Errorf("%w: the topic %q is the hub's own: only the hub tells of subscriptions",
				errDenied, topic))
			return
		}
	}
	if may != nil {
		for _, topic := range u.Topics {
			if !anyMatches(may, topic) {
				h.refuse(w, r, fmt.Errorf("%w: the token's claim mercure.publish does not have the topic %q",
					errDenied, topic))
				return
			}
		}
	}
	id, err := h.publish(r.Context(), u)
	switch {
	case errors.Is(err, hub.ErrBadData):
		answer.WriteTooLarge(w, h.hub.Limits().Publication)
	case errors.Is(err, errID):
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, strings.TrimPrefix(err.Error(),
			"push: mercure: "))
	case err != nil:
		e := answer.FailureOf(h.hub.Logger(), "mercure publish", err)
		if e.Status == 0 {
			e = &answer.Failure{Status: http.StatusInternalServerError, Code: e.Code, Message: e.Message}
		}
		h.hub.WriteFailure(w, e)
	default:
		header := w.Header()
		header.Set("Content-Type", "text/plain; charset=utf-8")
		header.Set("X-Content-Type-Options", "nosniff")
		io.WriteString(w, id) // an error means that the client has disconnected
	}
}

// textOf returns an error's text without the name of its package.
func textOf(err error) string { return strings.TrimPrefix(err.Error(), "mercure: ") }
