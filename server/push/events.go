package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/web"
)

// retryAfter is the shortest time that an EventSource is told to wait before it reconnects; the
// longest is twice that. The spread keeps clients from reconnecting all at once after a restart.
const retryAfter = 2 * time.Second

// serveEvents serves a subscriber with Server-Sent Events (WHATWG HTML §9.2). Each publication is
// an event with the publication's data. Events have no name; with named=1 in the query they are
// named after their channel.
//
// If the channel's rules have Recovery, the events of a stream of one channel have an id,
// "epoch:offset". The stream begins with an event that has an id and no data. A client that
// reconnects with the id in Last-Event-ID, or in last_event_id in the query, first gets what it has
// missed. If the server cannot tell what that is, it sends an event named "gap" with the data
// {"channel":"…"} instead. Streams of several channels have no ids.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !allowMethod(w, r, http.MethodGet) {
		return
	}
	channels, ok := s.eventChannels(w, r)
	if !ok {
		return
	}
	g, err := s.eventsGrant(r, channels)
	switch {
	case errors.As(err, new(Error)), errors.As(err, new(Disconnect)):
		refuseByHook(w, err)
		return
	case err != nil:
		s.refuseToken(w, r, err)
		return
	}
	if wait := s.node.mayConnectNow(g.user); wait > 0 {
		s.refuseRate(w, r, wait)
		return
	}
	for _, name := range channels {
		if problem := s.node.rules.of(name).refusesEvents(name, g.access()); problem != "" {
			s.node.refusedRequest(refusedPermission, r, "user", g.user, "channel", name)
			writeError(w, http.StatusForbidden, apiPermissionDenied, problem)
			return
		}
	}
	s.holdEvents(w, r, r.URL.Query().Get("named") == "1", g, channels)
}

// eventsGrant returns what the token of r grants, or Hooks.Connect if r has none.
func (s *Server) eventsGrant(r *http.Request, channels []string) (grant, error) {
	n, token := s.node, bearer(r)
	g, err := n.authenticate(token)
	if !errors.Is(err, errNoToken) || n.hooks.Connect == nil {
		return g, err
	}
	id := n.newClientID()
	client := n.describeEvents(r)
	client.Client, client.values = id.String(), n.hooks.values(r)
	g, err = n.connectByHook(client, r.RemoteAddr, ConnectRequest{Token: token, Channels: channels})
	g.id = id
	return g, err
}

// describeEvents says how the client of a stream of events has connected.
func (n *node) describeEvents(r *http.Request) Caller {
	transport, protocol := eventForm{}.kind()
	return Caller{Transport: transport, Protocol: protocol, Encoding: "json", Header: n.hooks.selected(r.Header)}
}

// refuseByHook answers what a hook has decided: 503 if the client may try again, else 403.
func refuseByHook(w http.ResponseWriter, err error) {
	status, answer, why := http.StatusForbidden, Error{}, ending{}
	if errors.As(err, &why) {
		answer = Error{uint32(why.Code), why.Reason, why.reconnects()}
	} else {
		errors.As(err, &answer)
	}
	if answer.Temporary {
		status = http.StatusServiceUnavailable
	}
	writeError(w, status, apiCode(answer.Code), answer.Message)
}

// refusesEvents returns why a client with that access may not have the channel's events, or "".
func (ns *Namespace) refusesEvents(channel string, a access) string {
	switch {
	case ns.SubscribeHook && !ns.forUsers(channel):
		return fmt.Sprintf("a hook decides who may subscribe to %q, and is not asked for this address", channel)
	case ns.forUsers(channel) && ns.needsToken(channel, a):
		return fmt.Sprintf("the channel %q is for other users", channel)
	case ns.needsToken(channel, a):
		return fmt.Sprintf("the token's claim channels does not have the channel %q", channel)
	}
	return ""
}

// eventChannels returns the channels of the query, or answers with an error.
func (s *Server) eventChannels(w http.ResponseWriter, r *http.Request) (channels []string, ok bool) {
	query := r.URL.Query()
	channels = slices.Compact(slices.Sorted(slices.Values(query["channel"])))
	err := s.checkChannels(channels)
	if err == nil {
		err = checkQuery(query, "channel", "named", "token", "last_event_id")
	}
	if named := query.Get("named"); err == nil && named != "" && named != "0" && named != "1" {
		err = fmt.Errorf("named is %q: use 1 for events that are named after their channel", named)
	} else if err == nil && named == "1" {
		err = checkEventNames(channels)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, apiBadRequest, err.Error())
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
func (s *Server) holdEvents(w http.ResponseWriter, r *http.Request, named bool, g grant, channels []string) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back until its buffer is full
	h.Set("X-Content-Type-Options", "nosniff")
	t := newStreamTransport(r.RemoteAddr, nil)
	session := s.node.startEvents(t, s.node.eventForm(named, channels), g, channels, resumption(r))
	if s.node.remember {
		s.node.callers.add(session, s.node.describeEvents(r))
		if len(g.meta) > 0 {
			s.node.callers.setMeta(session, g.meta)
		}
	}
	stream, err := s.detach(w)
	if err != nil {
		session.ended()
		s.notDetached(w, r, err)
		return
	}
	session.openEvents(t, stream, session.ended)
}

// eventForm returns the form of a stream's events.
func (n *node) eventForm(named bool, channels []string) eventForm {
	return eventForm{named: named, numbered: len(channels) == 1 && n.rules.of(channels[0]).Recovery}
}

// resumption reads the position after which a returning subscriber wants to continue.
func resumption(r *http.Request) subscribeRequest {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("last_event_id")
	}
	if id == "" {
		return subscribeRequest{}
	}
	epoch, offset, _ := strings.Cut(id, ":")
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil || epoch == "" {
		// an id of another server: nothing can be recovered, and the client gets a gap
		epoch = "?"
	}
	return subscribeRequest{recover: true, since: Position{Offset: n, Epoch: epoch}}
}

// notDetached handles a stream that could not be opened: the client has disconnected, or the
// server's program does not use web.Server.
func (s *Server) notDetached(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, web.ErrNotMyriad) {
		s.node.log.Debug("push: a stream of events was not opened", "remote", r.RemoteAddr, "error", err)
		return
	}
	s.node.log.Error("push: events need a web.Server: serve push.Server with one", "error", err)
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
		if s.node.checkChannel(name) != nil {
			return errors.New(s.node.channelRule(fmt.Sprintf("channel %q", name), name))
		}
		if ns := s.node.rules.of(name); !ns.allowsName(name) {
			return fmt.Errorf("channel %q does not match the channel regex of its namespace", name)
		}
	}
	return nil
}

// bearer returns the token of r, from the query or from Authorization. An EventSource cannot set
// headers.
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

// refuseToken answers 401, which makes an EventSource give up; or 503 if the token's key is not
// known yet.
func (s *Server) refuseToken(w http.ResponseWriter, r *http.Request, err error) {
	var claim claimError
	why := refusedToken
	if errors.Is(err, errKeyNotYetKnown) {
		s.node.refusedRequest(refusedUnknownKey, r, "error", oneLine(err))
		w.Header().Set("Retry-After", strconv.Itoa(int(keysPause/time.Second)))
		writeError(w, http.StatusServiceUnavailable, apiInternal, strings.TrimPrefix(errKeyNotYetKnown.Error(),
			"push: "))
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	switch {
	case errors.Is(err, errTokenExpired):
		why = refusedExpired
		writeError(w, http.StatusUnauthorized, apiTokenExpired, failTokenExpired.Message)
	case errors.Is(err, errNoToken):
		why = refusedNoToken
		writeError(w, http.StatusUnauthorized, apiUnauthorized,
			"a token is needed: ?token=… or Authorization: Bearer …")
	case errors.As(err, &claim):
		writeError(w, http.StatusUnauthorized, apiCode(endInvalidToken.Code),
			endInvalidToken.Reason+": "+claim.Error())
	default:
		writeError(w, http.StatusUnauthorized, apiCode(endInvalidToken.Code), endInvalidToken.Reason)
	}
	s.node.refusedRequest(why, r, "error", oneLine(err))
}

// startEvents returns a session that is connected and subscribed. The caller must then call
// openEvents or end the session.
func (n *node) startEvents(t *streamTransport, f eventForm, g grant, channels []string, w subscribeRequest) *session {
	s := n.startConnected(t, f, g)
	if !f.numbered {
		w = subscribeRequest{}
	}
	for _, name := range channels {
		// the node, and its bus, may have closed before this session existed
		if s.closing() {
			break
		}
		err := s.subscribe(name, w, func(hello welcome) {
			if f.numbered {
				// the transport keeps it until it is open, so there is no error
				t.send(&message{payload: f.appendWelcome(nil, name, hello)})
			}
		})
		if err != nil {
			n.log.Error("push: an SSE subscriber could not be subscribed", "client", s.id.String(), "channel", name,
				"error", err)
			s.disconnect(endServerError)
		}
	}
	return s
}

// openEvents sends what is queued for s, and opens the transport for what follows. ended is called
// when the stream has ended; it must call s.ended.
func (s *session) openEvents(t *streamTransport, stream responseStream, ended func()) {
	// on any other error onClose is called, too
	first := fmt.Appendf(nil, "retry: %d\n\n", s.node.retry().Milliseconds())
	if t.open(stream, first) == errFull {
		s.tooSlow("", len(first))
	}
	stream.onClose(ended)
}

// appendWelcome appends a subscriber's first events: the missed publications, or a gap, and the
// channel's position.
func (f eventForm) appendWelcome(dst []byte, channel string, hello welcome) []byte {
	if len(hello.publications) > 0 {
		return append(dst, f.publications(channel, hello.publications)...)
	}
	if hello.wasRecovering && !hello.recovered {
		name, _ := json.Marshal(channel) // a string has no error
		dst = fmt.Appendf(dst, "event: gap\ndata: {\"channel\":%s}\n", name)
	}
	return append(appendID(dst, hello.at), '\n')
}

func (n *node) retry() time.Duration { return retryAfter + n.upTo(retryAfter) }
