package hub

import (
	"errors"
	"net/http"

	"github.com/myriad-go/myriad/internal/retryafter"
	"github.com/myriad-go/myriad/server/push/answer"
)

// This file serves clients that say all that they want in one HTTP request, and then read one long
// response.

// AdmitRequest returns what the token of a request grants, or Hooks.Connect, which is asked about
// the channels that the client wants. If the client is refused, or has connected too often,
// AdmitRequest answers the request and returns false. f is the form of the client's session.
func (h *Hub) AdmitRequest(w http.ResponseWriter, r *http.Request, f Form, token string, channels []string) (
	g Grant, ok bool) {
	g, err := h.AuthenticateRequest(r, f, token, channels)
	switch {
	case errors.As(err, new(answer.Error)), errors.As(err, new(answer.Disconnect)):
		h.Refuse(w, r, err)
		return g, false
	case err != nil:
		h.RefuseToken(w, r, err)
		return g, false
	}
	if wait := h.ConnectWait(g); wait > 0 {
		h.RefuseRate(w, r, wait)
		return g, false
	}
	return g, true
}

// ServeStream answers r with a response that outlives its handler, for a client with g. It starts a
// session and calls join, which makes the subscriptions. Then it sends the head, first, and what
// has been sent to the session meanwhile: so a client that has the head gets all that is published
// from then on. If join returns an error, the session ends, and the door answers r.
//
// ended is called when the stream has ended, and has to call Session.Ended; nil: that alone is
// called. It is not called after an error of join.
func (h *Hub) ServeStream(w http.ResponseWriter, r *http.Request, f Form, g Grant, first []byte,
	join func(s *Session) error, ended func(s *Session)) error {
	t := NewStreamTransport(r.RemoteAddr, nil)
	s := h.StartConnected(t, f, g, h.RequestInfo(r))
	joined := false
	defer func() {
		if !joined { // a hook may also have ended the goroutine
			s.Ended()
		}
	}()
	if err := join(s); err != nil {
		return err
	}
	joined = true
	end := s.Ended
	if ended != nil {
		end = func() { ended(s) }
	}
	stream, err := h.Detach(w)
	if err != nil {
		end()
		h.NotDetached(w, r, err)
		return nil
	}
	if s.OpenStream(stream, first) == ErrQueueFull { // any other error has ended the stream
		s.TooSlow("", len(first))
	}
	stream.OnClose(end)
	return nil
}

// FirstEvent returns how a stream of Server-Sent Events begins: with the time after which a client
// that has lost it connects again, a random one between 2 and 4 s.
func (h *Hub) FirstEvent() []byte { return retryafter.AppendRetry(nil, h.retry()) }
