package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// serveEvents serves a subscriber with Server-Sent Events (WHATWG HTML §9.2). Each publication is
// an event with the publication's data. Events have no name; with named=1 in the query they are
// named after their channel.
//
// If the channel's rules have Recovery, the events of a stream of one channel have an id,
// "epoch:offset". The stream begins with an event that has an id and no data. A client that
// reconnects with the id in Last-Event-ID, or in last_event_id in the query, first gets what it has
// missed. If the server cannot tell what that is, it sends an event named "gap" with the data
// {"channel":"…"} instead. Streams of several channels have no ids.
func (s *eventsDoor) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !AllowMethod(w, r, http.MethodGet) {
		return
	}
	channels, ok := s.eventChannels(w, r)
	if !ok {
		return
	}
	g, err := s.AuthenticateRequest(r, eventForm{}, Bearer(r), channels)
	switch {
	case errors.As(err, new(Error)), errors.As(err, new(Disconnect)):
		RefuseByHook(w, err)
		return
	case err != nil:
		s.RefuseToken(w, r, err)
		return
	}
	if wait := s.MayConnectNow(g); wait > 0 {
		s.RefuseRate(w, r, wait)
		return
	}
	for _, name := range channels {
		if problem := s.refusesEvents(name, g); problem != "" {
			s.RefusedRequest(RefusedPermission, r, "user", g.User, "channel", name)
			WriteError(w, http.StatusForbidden, ErrPermissionDenied.Code, problem)
			return
		}
	}
	s.holdEvents(w, r, r.URL.Query().Get("named") == "1", g, channels)
}

// refusesEvents returns why a client with that grant may not have the channel's events, or "".
func (s *eventsDoor) refusesEvents(channel string, g Grant) string {
	ns := s.Rules(channel)
	switch {
	case ns.SubscribeHook && !ns.IsForUsers(channel):
		return fmt.Sprintf("a hook decides who may subscribe to %q, and is not asked for this address", channel)
	case ns.IsForUsers(channel) && s.Lacks(g, channel):
		return fmt.Sprintf("the channel %q is for other users", channel)
	case s.Lacks(g, channel):
		return fmt.Sprintf("the token's claim channels does not have the channel %q", channel)
	}
	return ""
}

// eventChannels returns the channels of the query, or answers with an error.
func (s *eventsDoor) eventChannels(w http.ResponseWriter, r *http.Request) (channels []string, ok bool) {
	query := r.URL.Query()
	channels = slices.Compact(slices.Sorted(slices.Values(query["channel"])))
	err := s.checkChannels(channels)
	if err == nil {
		err = CheckQuery(query, "channel", "named", "token", "last_event_id")
	}
	if named := query.Get("named"); err == nil && named != "" && named != "0" && named != "1" {
		err = fmt.Errorf("named is %q: use 1 for events that are named after their channel", named)
	} else if err == nil && named == "1" {
		err = checkEventNames(channels)
	}
	if err != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, err.Error())
		return nil, false
	}
	return channels, true
}

// checkEventNames returns an error for a channel whose events could not be told from others, if
// they are named after it: an EventSource has events of its own, and the server has gap.
func checkEventNames(channels []string) error {
	for _, name := range channels {
		if name == "open" || name == "error" || name == "gap" {
			return fmt.Errorf("an event named %q is no publication to an EventSource: subscribe to that channel "+
				"without named=1", name)
		}
	}
	return nil
}

// holdEvents answers with a stream of events that outlives the handler. It subscribes before it
// sends the head: a client that has the head gets everything published from then on.
func (s *eventsDoor) holdEvents(w http.ResponseWriter, r *http.Request, named bool, g Grant, channels []string) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back until its buffer is full
	h.Set("X-Content-Type-Options", "nosniff")
	t := NewStreamTransport(r.RemoteAddr, nil)
	session := s.startEvents(t, s.eventForm(named, channels), g, channels, resumption(r))
	session.Introduce(s.Asking(r), g)
	stream, err := s.Detach(w)
	if err != nil {
		session.Ended()
		s.NotDetached(w, r, err)
		return
	}
	session.OpenEvents(t, stream, session.Ended)
}

// eventForm returns the form of a stream's events.
func (s *eventsDoor) eventForm(named bool, channels []string) eventForm {
	return eventForm{named: named, numbered: len(channels) == 1 && s.Rules(channels[0]).Recovery}
}

// resumption reads the position after which a returning subscriber wants to continue.
func resumption(r *http.Request) SubscribeCommand {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("last_event_id")
	}
	if id == "" {
		return SubscribeCommand{}
	}
	epoch, offset, _ := strings.Cut(id, ":")
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil || epoch == "" {
		// an id of another server: nothing can be recovered, and the client gets a gap
		epoch = "?"
	}
	return SubscribeCommand{Recover: true, Since: Position{Offset: n, Epoch: epoch}}
}

func (s *eventsDoor) checkChannels(channels []string) error {
	switch limits := s.Limits(); {
	case len(channels) == 0:
		return errors.New("name a channel: /events?channel=news")
	case len(channels) > limits.Channels:
		return fmt.Errorf("%d channels, at most %d are allowed", len(channels), limits.Channels)
	}
	for _, name := range channels {
		if s.CheckChannel(name) != nil {
			return errors.New(s.ChannelRule(fmt.Sprintf("channel %q", name), name))
		}
		if ns := s.Rules(name); !ns.AllowsName(name) {
			return fmt.Errorf("channel %q does not match the channel regex of its namespace", name)
		}
	}
	return nil
}

// startEvents returns a session that is connected and subscribed. The caller must then call
// openEvents or end the session.
func (d *eventsDoor) startEvents(t *StreamTransport, f eventForm, g Grant, channels []string, w SubscribeCommand) *Session {
	s := d.StartConnected(t, f, g)
	if !f.numbered {
		w = SubscribeCommand{}
	}
	for _, name := range channels {
		// the node, and its bus, may have closed before this session existed
		if s.IsClosing() {
			break
		}
		err := s.Subscribe(name, w, func(hello Welcome) {
			if f.numbered {
				// the transport keeps it until it is open, so there is no error
				t.Send(&Message{Payload: f.appendWelcome(nil, name, hello)})
			}
		})
		if err != nil {
			d.Logger().Error("push: an SSE subscriber could not be subscribed", "client", s.ID(), "channel", name,
				"error", err)
			s.Disconnect(DisconnectServerError)
		}
	}
	return s
}

// appendWelcome appends a subscriber's first events: the missed publications, or a gap, and the
// channel's position.
func (f eventForm) appendWelcome(dst []byte, channel string, hello Welcome) []byte {
	if len(hello.Publications) > 0 {
		return append(dst, f.Publications(channel, hello.Publications)...)
	}
	if hello.WasRecovering && !hello.Recovered {
		name, _ := json.Marshal(channel) // a string has no error
		dst = fmt.Appendf(dst, "event: gap\ndata: {\"channel\":%s}\n", name)
	}
	return append(appendID(dst, hello.At), '\n')
}

// serveConsoleEvents serves an operator's own subscription, for the console. It needs no token, because forOperator
// has checked the key. Events are named after their channels. Clients do not see the subscription,
// and no counter includes it.
func (s *eventsDoor) serveConsoleEvents(w http.ResponseWriter, r *http.Request) {
	channels, ok := s.eventChannels(w, r)
	if !ok {
		return
	}
	s.holdEvents(w, r, true, WatcherGrant, channels)
}
