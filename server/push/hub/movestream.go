package hub

import (
	"fmt"
	"slices"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/websocket"
)

// This file moves clients that read one long response. Their state is the name of their door, what
// the door knows of the client, and what the session has.

// A MovingStream is a ResponseStream that can move to another process.
type MovingStream interface {
	ResponseStream
	// OnFreeze sets two functions. freeze is called when the stream is frozen. It appends to dst
	// what the other process has to know of the client. If it returns an error, the stream stays
	// here. moved is called when the other process has the stream, in place of the function that
	// OnClose was given. A nil freeze removes both functions.
	OnFreeze(freeze func(dst []byte) ([]byte, error), moved func())
}

// A StreamMover is the part of a door whose clients read one long response, and can move to another
// process. A door registers it by Hub.MoveStreams when it is opened.
type StreamMover interface {
	// StateName names the door in states, and the form of what it appends: such as "sse/1".
	StateName() string
	// StreamForms are the forms of these clients.
	StreamForms() []Form
	// AppendClient appends what the door knows of the client, besides its session. It is not ok if
	// the client cannot move now, because something runs for it.
	AppendClient(dst []byte, s *Session) (state []byte, ok bool)
	// ThawClient reads in the other process what AppendClient has appended. It keeps nothing of it.
	ThawClient(state []byte) (ThawedClient, error)
	// ClientMoved drops what the door knows of a client that goes on in another process.
	ClientMoved(s *Session)
}

// A ThawedClient is what a door knows of a client that has come from another process.
type ThawedClient struct {
	Form   Form
	Client *StreamClient // nil for a client that only reads events
	// Resume makes the door go on with the client. ended is called when the stream has ended, and
	// has to call Session.Ended. nil: there is nothing to do, and Session.Ended is called.
	Resume func(s *Session) (ended func(), err error)
}

// MoveStreams lets clients of a door move that have one of m's forms. The door calls it in Open.
func (h *Hub) MoveStreams(m StreamMover) {
	h.movers = append(h.movers, m)
	for _, f := range m.StreamForms() {
		h.forms[h.forms.idOf(f)].mover = m
	}
}

// MoveSockets lets the WebSockets with those options move, under that name, which is the same in
// all processes. The options have FreezeValue, ThawValue and OnMoved. A door calls it in Open.
func (h *Hub) MoveSockets(name string, o *websocket.Options) {
	t, err := o.Thawer()
	if err != nil {
		panic("push: a door's WebSockets cannot move: " + err.Error())
	}
	if h.thawers == nil {
		h.thawers = make(map[string]myriad.Thawer)
	}
	h.thawers[name] = t
}

// Thawers are what MoveSockets was given, by name.
func (h *Hub) Thawers() map[string]myriad.Thawer { return h.thawers }

// StateNames are the names of the doors whose clients move.
func (h *Hub) StateNames() (names []string) {
	for _, m := range h.movers {
		names = append(names, m.StateName())
	}
	return names
}

// OfferStreams makes the long responses of clients ones that can move, or with false undoes that.
// It is called right before a move, because it takes memory for each client. A response that begins
// later can move, too: see OpenStream.
func (h *Hub) OfferStreams(on bool) {
	h.offersStreams.Store(on)
	for _, s := range h.wheel.all() {
		s.offerStream(on)
	}
}

// offerStream makes the response of a client one that can move, or with false undoes that. It does
// nothing if the response is not open.
func (s *Session) offerStream(on bool) {
	t, ok := s.t.(*StreamTransport)
	if !ok || t.opening.Load() != nil || s.form().mover == nil {
		return
	}
	stream, ok := t.stream.(MovingStream)
	switch {
	case !ok:
	case on:
		stream.OnFreeze(s.freezeStream, s.streamMoved)
	default:
		stream.OnFreeze(nil, nil)
	}
}

// OpenStream is Open of the session's StreamTransport. If OfferStreams has been called, the
// response can move: either OfferStreams finds it open, or OpenStream finds the flag that was set
// before.
func (s *Session) OpenStream(stream ResponseStream, first []byte) error {
	err := s.t.(*StreamTransport).Open(stream, first)
	if s.hub.offersStreams.Load() {
		s.offerStream(true)
		if !s.hub.offersStreams.Load() {
			s.offerStream(false)
		}
	}
	return err
}

// freezeStream appends the state of a client that reads one long response.
func (s *Session) freezeStream(dst []byte) ([]byte, error) {
	m := s.form().mover
	known, ok := m.AppendClient(nil, s)
	if !ok {
		return dst, ErrNotAtRest
	}
	dst, ok = s.AppendState(snapshot.AppendText(snapshot.AppendText(dst, m.StateName()), known))
	if !ok {
		return dst, ErrNotAtRest
	}
	return dst, nil
}

// streamMoved ends the session of a client that goes on in another process.
func (s *Session) streamMoved() {
	s.form().mover.ClientMoved(s)
	s.Moved()
}

// ThawStream goes on with a client of another process that reads one long response. state is what
// the function of OnFreeze has appended there. For the rest see ThawSession.
func (h *Hub) ThawStream(stream ResponseStream, state []byte) error {
	f := snapshot.NewFields(state)
	name, known := f.Text(), f.Bytes()
	if f.Failed() {
		return f.Done()
	}
	i := slices.IndexFunc(h.movers, func(m StreamMover) bool { return m.StateName() == name })
	if i < 0 {
		return fmt.Errorf("push: there is no door %q for a client: %w", name, snapshot.ErrUnknown)
	}
	client, err := h.movers[i].ThawClient(known)
	if err != nil {
		return fmt.Errorf("push: a client of the door %q: %w", name, err)
	}
	s, err := h.ThawSession(&StreamTransport{stream: stream, Client: client.Client}, client.Form, f.Rest())
	if err != nil {
		return err
	}
	ended := s.Ended
	if client.Resume != nil {
		if ended, err = client.Resume(s); err != nil {
			s.Ended()
			return fmt.Errorf("push: a client of the door %q: %w", name, err)
		}
	}
	stream.OnClose(ended)
	if m, ok := stream.(MovingStream); ok { // until Hub.Thaw, because the client may stay in the other process
		m.OnFreeze(s.freezeStream, s.streamMoved)
	}
	return nil
}
