// Package sse is the door for Server-Sent Events (WHATWG HTML §9.2): subscribers that only read, at
// /events.
package sse

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/web"
)

// A Door is Server-Sent Events (WHATWG HTML §9.2) for subscribers that only read.
type Door struct{ hub *hub.Hub }

// New returns the door.
func New() *Door { return new(Door) }

// Forms implements Door.
func (*Door) Forms() (forms []hub.Form) {
	for _, named := range []bool{false, true} {
		for _, numbered := range []bool{false, true} {
			forms = append(forms, form{named: named, numbered: numbered})
		}
	}
	return forms
}

// Open implements Door. The path is /events; the console has one of its own.
func (d *Door) Open(h *hub.Hub) (clients, admin func(*http.ServeMux)) {
	d.hub = h
	h.MoveStreams(d)
	return func(mux *http.ServeMux) {
			mux.HandleFunc("/events", d.hub.UnlessDraining(d.hub.LimitConnections(d.serveEvents)))
		}, func(mux *http.ServeMux) {
			if d.hub.HasConsole() {
				mux.HandleFunc("GET /console/events", d.hub.UnlessDraining(d.hub.ForOperator(d.serveConsoleEvents)))
			}
		}
}

// A form writes each publication as an event with the publication's data. An EventSource
// cannot be told that a subscription has ended; when it reconnects, the status of the answer has
// the reason.
type form struct {
	hub.QuietForm
	named    bool // events are named after their channel
	numbered bool // events have an id, which is the position: for streams of one channel
}

func (form) Kind() (transport, protocol string) { return "events", "json" }

func (f form) Publications(channel string, list []bus.Publication) []byte {
	dst := make([]byte, 0, hub.EncodedSize(channel, list))
	for _, p := range list {
		if f.numbered && p.Epoch != "" {
			dst = appendID(dst, p.Position)
		}
		if f.named {
			dst = append(append(append(dst, "event: "...), channel...), '\n')
		}
		dst = append(append(append(dst, "data: "...), hub.JSONOf(&p)...), "\n\n"...)
	}
	return dst
}

// appendID appends the id field, which an EventSource returns as Last-Event-ID.
func appendID(dst []byte, at bus.Position) []byte {
	dst = append(append(append(dst, "id: "...), at.Epoch...), ':')
	return append(strconv.AppendUint(dst, at.Offset, 10), '\n')
}

func (f form) Ping() (payload []byte, answered bool) { return []byte(":\n\n"), false }

// IsEvents implements hub.EventForm.
func (form) IsEvents() bool { return true }

func (f form) Share(payload []byte) hub.Shared { return web.NewChunk(payload) }

// serveEvents serves a subscriber with Server-Sent Events (WHATWG HTML §9.2). Each publication is
// an event with the publication's data. Events have no name; with named=1 in the query they are
// named after their channel.
//
// If the channel's rules have Recovery, the events of a stream of one channel have an id,
// "epoch:offset". The stream begins with an event that has an id and no data. A client that
// reconnects with the id in Last-Event-ID, or in last_event_id in the query, first gets what it has
// missed. If the server cannot tell what that is, it sends an event named "gap" with the data
// {"channel":"…"} instead. Streams of several channels have no ids.
func (d *Door) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !answer.AllowMethod(w, r, http.MethodGet) {
		return
	}
	channels, ok := d.eventChannels(w, r)
	if !ok {
		return
	}
	g, ok := d.hub.AdmitRequest(w, r, form{}, hub.Bearer(r), channels)
	if !ok {
		return
	}
	for _, name := range channels {
		if problem := d.refusesEvents(name, g); problem != "" {
			d.hub.CountRequestRefusal(hub.RefusedPermission, r, "user", g.User, "channel", name)
			answer.WriteError(w, http.StatusForbidden, answer.ErrPermissionDenied.Code, problem)
			return
		}
	}
	d.holdEvents(w, r, r.URL.Query().Get("named") == "1", g, channels)
}

// refusesEvents returns why a client with that grant may not have the channel's events, or "". It
// says nothing about a channel that the grant names, nor about one of which a hook decides.
func (d *Door) refusesEvents(channel string, g hub.Grant) string {
	ns := d.hub.Rules(channel)
	switch {
	case ns.SubscribeHook && !ns.IsForUsers(channel):
		return "" // AdmitAll asks the hook
	case ns.IsForUsers(channel) && d.hub.NeedsToken(g, channel):
		return fmt.Sprintf("the channel %q is for other users", channel)
	case d.hub.NeedsToken(g, channel):
		return fmt.Sprintf("the token's claim channels does not have the channel %q", channel)
	}
	return ""
}

// eventChannels returns the channels of the query, or answers with an error.
func (d *Door) eventChannels(w http.ResponseWriter, r *http.Request) (channels []string, ok bool) {
	query := r.URL.Query()
	channels = slices.Compact(slices.Sorted(slices.Values(query["channel"])))
	err := d.checkChannels(channels)
	if err == nil {
		err = answer.CheckQuery(query, "channel", "named", "token", "last_event_id")
	}
	if named := query.Get("named"); err == nil && named != "" && named != "0" && named != "1" {
		err = fmt.Errorf("named is %q: use 1 for events that are named after their channel", named)
	} else if err == nil && named == "1" {
		err = checkEventNames(channels)
	}
	if err != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, err.Error())
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
func (d *Door) holdEvents(w http.ResponseWriter, r *http.Request, named bool, g hub.Grant, channels []string) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back until its buffer is full
	h.Set("X-Content-Type-Options", "nosniff")
	f := d.eventForm(named, channels)
	err := d.hub.ServeStream(w, r, f, g, d.hub.FirstEvent(), func(s *hub.Session) error {
		return d.join(s, f, g, channels, resumption(r))
	}, nil)
	if err != nil {
		d.hub.Refuse(w, r, err)
	}
}

// eventForm returns the form of a stream's events.
func (d *Door) eventForm(named bool, channels []string) form {
	return form{named: named, numbered: len(channels) == 1 && d.hub.Rules(channels[0]).Recovery}
}

// resumption reads the position after which a returning subscriber wants to continue.
func resumption(r *http.Request) hub.SubscribeCommand {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("last_event_id")
	}
	if id == "" {
		return hub.SubscribeCommand{}
	}
	epoch, offset, _ := strings.Cut(id, ":")
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil || epoch == "" {
		// an id of another server: nothing can be recovered, and the client gets a gap
		epoch = "?"
	}
	return hub.SubscribeCommand{Recover: true, Since: bus.Position{Offset: n, Epoch: epoch}}
}

func (d *Door) checkChannels(channels []string) error {
	switch limits := d.hub.Limits(); {
	case len(channels) == 0:
		return errors.New("name a channel: /events?channel=news")
	case len(channels) > limits.Channels:
		return fmt.Errorf("%d channels, at most %d are allowed", len(channels), limits.Channels)
	}
	for _, name := range channels {
		if d.hub.CheckChannel(name) != nil {
			return errors.New(d.hub.ChannelRule(fmt.Sprintf("channel %q", name), name))
		}
		if ns := d.hub.Rules(name); !ns.AllowsName(name) {
			return fmt.Errorf("channel %q does not match the channel regex of its namespace", name)
		}
	}
	return nil
}

// join subscribes a session to the channels. It returns an error, and has made no subscription, if
// the client may not have one of them. If a subscription fails later, it disconnects the client: a
// stream that has begun is opened again by an EventSource, which gives up at an error response.
func (d *Door) join(s *hub.Session, f form, g hub.Grant, channels []string, w hub.SubscribeCommand) error {
	wanted, err := s.AdmitAll(channels, g)
	if err != nil {
		return err
	}
	for _, name := range channels {
		r := wanted[name]
		// the node, and its bus, may have closed before this session existed
		if s.IsClosing() {
			r.Cancel()
			continue
		}
		if f.numbered {
			r.Recover, r.Since = w.Recover, w.Since
		}
		err := s.Join(r, func(hello hub.Welcome) {
			if f.numbered {
				s.Offer(&hub.Message{Payload: f.appendWelcome(nil, name, hello)}) // the first message: there is room
			}
		})
		if err != nil {
			d.hub.Logger().Error("push: an SSE subscriber could not be subscribed", "client", s.ID(), "channel", name,
				"error", err)
			s.Disconnect(answer.DisconnectServerError)
		}
	}
	return nil
}

// appendWelcome appends a subscriber's first events: the missed publications, or a gap, and the
// channel's position.
func (f form) appendWelcome(dst []byte, channel string, hello hub.Welcome) []byte {
	if len(hello.Publications) > 0 {
		return append(dst, f.Publications(channel, hello.Publications)...)
	}
	if hello.WasRecovering && !hello.Recovered {
		name, _ := json.Marshal(channel) // a string has no error
		dst = fmt.Appendf(dst, "event: gap\ndata: {\"channel\":%s}\n", name)
	}
	return append(appendID(dst, hello.At), '\n')
}

// serveConsoleEvents serves an operator's own subscription, for the console. It needs no token,
// because ForOperator has checked the key. Events are named after their channels. Clients do not
// see the subscription, and no counter includes it.
func (d *Door) serveConsoleEvents(w http.ResponseWriter, r *http.Request) {
	channels, ok := d.eventChannels(w, r)
	if !ok {
		return
	}
	d.holdEvents(w, r, true, hub.OperatorGrant, channels)
}
