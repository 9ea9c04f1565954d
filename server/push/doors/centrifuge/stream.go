package centrifuge

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// streams serves the protocol over responses that do not end. What the client sends comes
// in requests to /emulation.
type streams struct {
	hub *hub.Hub

	mu       sync.Mutex
	sessions map[string]*emulated // by secret; as many as there are such clients
}

// An emulated is a client whose commands come in requests of their own.
type emulated struct {
	s       *hub.Session
	running sync.Mutex // held while commands of one request run
}

func newStreams(h *hub.Hub) *streams {
	return &streams{hub: h, sessions: make(map[string]*emulated)}
}

// serveResponse serves http_stream. The body of the request holds the first commands.
func (c *streams) serveResponse(w http.ResponseWriter, r *http.Request) {
	f := form{requestCodec(r), inResponse, false}
	if body, ok := c.readFrame(w, r, http.MethodPost); ok {
		c.hold(w, r, f, body)
	}
}

// serveEvents serves sse. cf_connect in the query, or the body, holds the first commands.
func (c *streams) serveEvents(w http.ResponseWriter, r *http.Request) {
	if body, ok := c.readFrame(w, r, http.MethodGet, http.MethodPost); ok {
		c.hold(w, r, form{centrifuge.JSON, inEvents, false}, body)
	}
}

// serveUniResponse serves uni_http_stream. The body is a connect request.
func (c *streams) serveUniResponse(w http.ResponseWriter, r *http.Request) {
	if body, ok := c.readFrame(w, r, http.MethodPost); ok {
		c.hold(w, r, form{centrifuge.JSON, inResponse, true}, body)
	}
}

// serveUniEvents serves uni_sse. cf_connect in the query, or the body, is a connect request.
func (c *streams) serveUniEvents(w http.ResponseWriter, r *http.Request) {
	if body, ok := c.readFrame(w, r, http.MethodGet, http.MethodPost); ok {
		c.hold(w, r, form{centrifuge.JSON, inEvents, true}, body)
	}
}

func requestCodec(r *http.Request) centrifuge.Codec {
	if r.Header.Get("Content-Type") == octetStream {
		return centrifuge.Protobuf
	}
	return centrifuge.JSON
}

// readFrame returns what the client sends, at most Limits.Frame bytes, or answers with an error.
func (c *streams) readFrame(w http.ResponseWriter, r *http.Request, methods ...string) ([]byte, bool) {
	if !answer.AllowMethod(w, r, methods...) {
		return nil, false
	}
	limit := c.hub.Limits().Frame
	if r.Method == http.MethodGet {
		asked := r.URL.Query().Get("cf_connect")
		switch {
		case len(asked) > limit:
			answer.WriteTooLarge(w, limit)
			return nil, false
		case asked == "":
			answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, "cf_connect in the query is missing")
			return nil, false
		}
		return []byte(asked), true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		answer.RefuseBody(w, err)
		return nil, false
	}
	return body, true
}

// hold answers with a response that outlives the handler. It runs the first message before it sends
// the head; the replies wait in the transport.
func (c *streams) hold(w http.ResponseWriter, r *http.Request, f form, first []byte) {
	h := w.Header()
	h.Set("Content-Type", f.contentType())
	h.Set("Cache-Control", "private, no-cache, no-store, must-revalidate, max-age=0")
	h.Set("X-Accel-Buffering", "no") // nginx would keep messages back until its buffer is full
	h.Set("X-Content-Type-Options", "nosniff")
	client := &hub.StreamClient{LastMessage: f.lastMessage}
	if !f.uni {
		client.Secret = c.hub.NewID()
	}
	t := hub.NewStreamTransport(r.RemoteAddr, client)
	s := c.hub.Start(t, f, c.hub.RequestInfo(r))
	c.add(client.Secret, s)
	RunMessage(s, first)
	stream, err := c.hub.Detach(w)
	if err != nil {
		c.remove(client.Secret)
		s.Ended()
		c.hub.NotDetached(w, r, err)
		return
	}
	if s.OpenStream(stream, nil) == hub.ErrQueueFull {
		s.TooSlow("", 0)
	}
	stream.OnClose(func() {
		c.remove(client.Secret)
		s.Ended()
	})
}

func (c *streams) add(secret string, s *hub.Session) {
	if secret == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[secret] = &emulated{s: s}
}

func (c *streams) remove(secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, secret)
}

func (c *streams) find(secret string) *emulated {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[secret]
}

var errNoSession = errors.New("there is no such session on this node: connect again, and send requests to the node " +
	"that has answered")

// serveEmulation runs commands of a client that reads a response. The session in the request is the
// secret in the reply to connect.
func (c *streams) serveEmulation(w http.ResponseWriter, r *http.Request) {
	body, ok := c.readFrame(w, r, http.MethodPost)
	if !ok {
		return
	}
	request, err := requestCodec(r).ParseEmulation(body)
	if err != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, err.Error())
		return
	}
	e := c.find(request.Session)
	if e == nil && !c.hub.IsShut(r.Context()) {
		answer.WriteError(w, http.StatusNotFound, answer.ErrBadRequest.Code, errNoSession.Error())
		return
	}
	// Else its body was still to come when the client moved to another process.
	if e == nil || c.hub.LockThawed(r.Context(), &e.running) != nil {
		c.hub.RefuseForNow(w, r, c.hub.ConnectLater(), http.StatusServiceUnavailable, answer.ErrInternal.Code,
			"the server is shutting down")
		return
	}
	defer e.running.Unlock()
	runCommands(e.s, request.Data)
	w.WriteHeader(http.StatusNoContent)
}
