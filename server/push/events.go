package push

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
)

// retryAfter is the least time that an EventSource is told to wait before it comes back; the most
// is twice that. The spread keeps a restart from being answered by everybody at once.
const retryAfter = 2 * time.Second

// serveEvents holds a subscriber by Server-Sent Events (WHATWG HTML §9.2): each publication is an
// event with the publication's data, without a name unless the query says named=1, then named after
// its channel.
//
// Where the rules have Recovery, the events of a stream of one channel have an id, "epoch:offset",
// also one without data at the beginning. Who comes back with it in Last-Event-ID, or last_event_id
// in the query, first gets what it has missed. If that cannot be told, it gets an event named "gap"
// with {"channel":"…"} for data instead. Streams of several channels have no ids.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !allowMethod(w, r, http.MethodGet) {
		return
	}
	channels, ok := s.eventChannels(w, r)
	if !ok {
		return
	}
	g, err := s.node.authenticate(bearer(r))
	if err != nil {
		writeUnauthorized(w, err)
		return
	}
	for _, name := range channels {
		if s.node.rules.of(name).SubscribeToken && !slices.Contains(g.channels, name) {
			writeError(w, http.StatusForbidden, apiPermissionDenied,
				fmt.Sprintf("the token's claim channels does not have the channel %q", name))
			return
		}
	}
	s.holdEvents(w, r, r.URL.Query().Get("named") == "1", g, channels)
}

// eventChannels returns the channels of the query, or answers what is wrong with them.
func (s *Server) eventChannels(w http.ResponseWriter, r *http.Request) (channels []string, ok bool) {
	channels = slices.Compact(slices.Sorted(slices.Values(r.URL.Query()["channel"])))
	if err := s.checkChannels(channels); err != nil {
		writeError(w, http.StatusBadRequest, apiBadRequest, err.Error())
		return nil, false
	}
	return channels, true
}

// holdEvents answers with a stream of events that outlives the handler. It subscribes first: who
// has the head of the answer counts on everything that is published from then on.
func (s *Server) holdEvents(w http.ResponseWriter, r *http.Request, named bool, g grant, channels []string) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back until its buffer is full
	h.Set("X-Content-Type-Options", "nosniff")
	t := newEventTransport()
	session := s.node.startEvents(t, s.node.eventWire(named, channels), g, channels, resumption(r))
	stream, err := s.detach(w)
	if err != nil {
		session.ended()
		s.notDetached(w, r, err)
		return
	}
	session.openEvents(t, stream)
}

// eventWire is the form of the events of a stream.
func (n *node) eventWire(named bool, channels []string) wire {
	form := wireSSE
	if named {
		form = wireSSENamed
	}
	if len(channels) == 1 && n.rules.of(channels[0]).Recovery {
		form += wireSSENumbered - wireSSE
	}
	return form
}

// resumption is what a subscriber that comes back says it has had last.
func resumption(r *http.Request) wish {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("last_event_id")
	}
	if id == "" {
		return wish{}
	}
	epoch, offset, _ := strings.Cut(id, ":")
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil {
		return wish{recover: true} // from another server: nothing can be recovered, and it should know
	}
	return wish{recover: true, since: Position{n, epoch}}
}

// notDetached is for a stream that did not come to be: a client has gone already, which is its own
// affair, or the program is wrong.
func (s *Server) notDetached(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, web.ErrNotMyriad) {
		s.node.log.Debug("push: a stream of events was not opened", "remote", r.RemoteAddr, "error", err)
		return
	}
	s.node.log.Error("push: events need a web.Server, which can hold a response without a goroutine", "error", err)
	writeError(w, http.StatusInternalServerError, apiInternal, "events cannot be served here")
}

func (s *Server) checkChannels(channels []string) error {
	switch limits := s.node.limits; {
	case len(channels) == 0:
		return errors.New("name a channel: /events?channel=news")
	case len(channels) > limits.Channels:
		return fmt.Errorf("%d channels, at most %d are allowed", len(channels), limits.Channels)
	}
	for _, name := range channels {
		if !s.node.validChannel(name) {
			return errors.New(s.node.channelRule(fmt.Sprintf("channel %q", name)))
		}
	}
	return nil
}

// bearer returns the token of r: from the query, because an EventSource cannot set headers, or from
// Authorization.
func bearer(r *http.Request) string {
	if token := r.URL.Query().Get("token"); token != "" {
		return token
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// writeUnauthorized answers 401, which makes an EventSource give up.
func writeUnauthorized(w http.ResponseWriter, err error) {
	var claim claimError
	w.Header().Set("WWW-Authenticate", "Bearer")
	switch {
	case errors.Is(err, errTokenExpired):
		writeError(w, http.StatusUnauthorized, apiTokenExpired, centrifuge.ErrTokenExpired.Message)
	case errors.Is(err, errNoToken):
		writeError(w, http.StatusUnauthorized, apiUnauthorized,
			"a token is needed: ?token=… or Authorization: Bearer …")
	case errors.As(err, &claim):
		writeError(w, http.StatusUnauthorized, apiCode(centrifuge.InvalidToken.Code),
			centrifuge.InvalidToken.Reason+": "+claim.Error())
	default:
		writeError(w, http.StatusUnauthorized, apiCode(centrifuge.InvalidToken.Code), centrifuge.InvalidToken.Reason)
	}
}

// startEvents makes a session that is connected and subscribed from the start. openEvents has to
// follow, or the session's end.
func (n *node) startEvents(t *eventTransport, form wire, g grant, channels []string, w wish) *session {
	s := n.begin(&session{node: n, t: t, id: n.newClientID(), wire: form, slot: notInWheel, watcher: g.watcher})
	s.mu.Lock()
	s.admit(g)
	s.mu.Unlock()
	if !form.numbered() {
		w = wish{}
	}
	for _, name := range channels {
		// the node may have ended before there was a session that it could wait for, and its bus
		// with it
		if s.leaving.Load() {
			break
		}
		err := s.subscribe(name, w, func(hello welcome) {
			if form.numbered() {
				t.send(&message{payload: form.appendWelcome(nil, name, hello)}) // it is kept: there is no error yet
			}
		})
		if err != nil {
			n.log.Error("push: an SSE subscriber could not be subscribed", "client", s.id.String(), "channel", name,
				"error", err)
			s.disconnect(centrifuge.ServerError)
		}
	}
	return s
}

// openEvents sends what has come for s until now, and lets everything else follow.
func (s *session) openEvents(t *eventTransport, stream eventStream) {
	// another error comes to onClose, too
	if t.open(stream, fmt.Appendf(nil, "retry: %d\n\n", s.node.retry().Milliseconds())) == errFull {
		s.tooSlow("")
	}
	stream.onClose(s.ended)
}

// appendWelcome appends what a subscriber is told first: what it has missed, or that this is not
// known, and where the channel stands.
func (w wire) appendWelcome(dst []byte, channel string, hello welcome) []byte {
	if len(hello.publications) > 0 {
		return append(dst, w.publications(channel, hello.publications)...)
	}
	if hello.wasRecovering && !hello.recovered {
		dst = append(dst, "event: gap\ndata: {\"channel\":"...)
		dst = append(centrifuge.AppendString(dst, channel), "}\n"...)
	}
	return append(appendID(dst, hello.at), '\n')
}

func (n *node) retry() time.Duration { return retryAfter + n.upTo(retryAfter) }
