package push

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/internal/mercure"
)

// serve answers requests to the hub: GET subscribes, POST publishes.
func (h *mercureHub) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Link", "<"+mercurePath+`>; rel="mercure"`)
	if !AllowMethod(w, r, http.MethodGet, http.MethodHead, http.MethodPost) {
		return
	}
	if r.Method == http.MethodPost {
		h.servePublish(w, r)
		return
	}
	h.serveSubscribe(w, r)
}

// checkMercureQuery returns an error for a parameter that the hub does not act on. One that was
// left out could mean that updates are.
func checkMercureQuery(query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "match") || lower == "access_token" {
			return fmt.Errorf("the parameter %q is of Mercure 1.0, which is not served: use topic and authorization",
				name)
		}
	}
	return CheckQuery(query, "topic", "lastEventID", "Last-Event-ID", "authorization")
}

// serveSubscribe answers with a stream of events that outlives the handler. It subscribes before it
// sends the head: a client that has the head gets everything published from then on.
func (h *mercureHub) serveSubscribe(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	topics, err := compileAll(query["topic"], h.Limits().Channels)
	if err == nil {
		err = checkMercureQuery(query)
	}
	if err == nil && len(topics) == 0 {
		err = errors.New("the parameter topic is missing: " + mercurePath + "?topic=https://example.com/books/{id}")
	}
	if err != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, err.Error())
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

func (h *mercureHub) hold(w http.ResponseWriter, r *http.Request, who mercureToken, want mercure.Interest,
	last string) {
	t := NewStreamTransport(r.RemoteAddr, nil)
	s := h.StartConnected(t, mercureForm{}, who.Grant)
	var from resume
	err := h.join(s, want, last, func(found resume) {
		if from = found; len(from.missed) > 0 {
			// the transport keeps it until it is open, so there is no error
			t.Send(&Message{Payload: mercureForm{}.Publications("", from.missed)})
		}
	})
	if err != nil {
		s.Ended()
		h.refuseJoin(w, err)
		return
	}
	if last != "" {
		w.Header().Set("Last-Event-ID", from.from)
	}
	end := h.announced(s, want.Topics, who.payload)
	stream, err := h.Detach(w)
	if err != nil {
		end()
		s.Ended()
		h.NotDetached(w, r, err)
		return
	}
	s.OpenEvents(t, stream, func() {
		end()
		s.Ended()
	})
}

// refuseJoin answers a client that could not be subscribed.
func (h *mercureHub) refuseJoin(w http.ResponseWriter, err error) {
	if errors.Is(err, mercure.ErrTooMany) {
		WriteError(w, http.StatusTooManyRequests, ErrLimitExceeded.Code, mercureText(err))
		return
	}
	h.Logger().Error("push: a Mercure subscriber could not be subscribed", "error", err)
	WriteError(w, http.StatusServiceUnavailable, ErrInternal.Code,
		"the subscription failed; the server's log has the reason")
}

// limited counts publications as calls, and everything else as next does.
func (h *mercureHub) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			next(w, r)
		case h.MayCallNow(w, r):
			h.serve(w, r)
		}
	}
}

// limitedLists counts lists of subscriptions as calls.
func (h *mercureHub) limitedLists(w http.ResponseWriter, r *http.Request) {
	if h.MayCallNow(w, r) {
		h.serveSubscriptions(w, r)
	}
}
