package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// publishRequest is the body of POST /api/publish.
type publishRequest struct {
	Channel string          `json:"channel"`
	Data    json.RawMessage `json:"data"`
}

// bodySlack is how much longer than its data the body of a publish may be: the channel, and whatever spaces there are.
const bodySlack = 4 << 10

// Publish gives data, which is any JSON, to every subscriber of the channel, as POST /api/publish does. It never waits for a
// subscriber: when it returns nil, subscribers of this node have it queued. Any goroutine. It fails for a channel or data that
// nobody could be sent, and when the server is shutting down.
func (s *Server) Publish(ctx context.Context, channel string, data []byte) error {
	_, err := s.node.publish(ctx, channel, Publication{Data: data})
	return err
}

// servePublish answers 200 when the bus has taken the publication, and then subscribers of this node have it queued.
func (s *Server) servePublish(w http.ResponseWriter, r *http.Request) {
	body, ok := s.readAPI(w, r)
	if !ok {
		return
	}
	req, ok := s.readPublish(w, body)
	if !ok {
		return
	}
	at, err := s.node.publish(r.Context(), req.Channel, Publication{Data: req.Data})
	if err != nil {
		e := s.publishError(req.Channel, err)
		writeError(w, e.status, e.code, e.message)
		return
	}
	writeJSON(w, http.StatusOK, append(appendPublished([]byte(`{"result":`), at), '}'))
}

// readAPI returns the body of a request that may be made, or answers what is wrong.
func (s *Server) readAPI(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if !allowMethod(w, r, http.MethodPost) {
		return nil, false
	}
	if !s.hasKey(r) {
		writeError(w, http.StatusUnauthorized, apiUnauthorized, "the header X-API-Key is missing or wrong")
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.node.limits.Publication+bodySlack)))
	if err != nil {
		s.refuseBody(w, err)
		return nil, false
	}
	return body, true
}

// appendPublished appends what is told of a publication that was taken: where it stands, if the channel has a history.
func appendPublished(dst []byte, at Position) []byte {
	if at.Epoch == "" {
		return append(dst, "{}"...)
	}
	dst = strconv.AppendUint(append(dst, `{"offset":`...), at.Offset, 10)
	return append(centrifuge.AppendString(append(dst, `,"epoch":`...), at.Epoch), '}')
}

// publishError is what to answer for a publication that was not taken.
func (s *Server) publishError(channel string, err error) *apiError {
	switch {
	case errors.Is(err, errBadChannel):
		return &apiError{http.StatusBadRequest, apiBadRequest, s.node.channelRule("the channel")}
	case errors.Is(err, errBadData):
		return &apiError{http.StatusBadRequest, apiBadRequest, "data is not UTF-8, which JSON has to be"}
	case errors.Is(err, errDraining):
		return &apiError{http.StatusServiceUnavailable, apiInternal, "the server is shutting down"}
	}
	s.node.log.Error("push: a publication was not taken", "channel", channel, "error", err)
	return &apiError{http.StatusInternalServerError, apiInternal, "the publication was not taken"}
}

// readPublish returns the request, or answers what is wrong with it.
func (s *Server) readPublish(w http.ResponseWriter, body []byte) (publishRequest, bool) {
	req, plain := plainPublish(body)
	if !plain {
		if err := json.Unmarshal(body, &req); err != nil {
			writeError(w, http.StatusBadRequest, apiBadRequest, "the body is not the JSON object {\"channel\": \"…\", \"data\": …}: "+err.Error())
			return req, false
		}
	}
	switch {
	case req.Channel == "":
		writeError(w, http.StatusBadRequest, apiBadRequest, "channel is missing")
	case req.Data == nil:
		writeError(w, http.StatusBadRequest, apiBadRequest, "data is missing")
	case len(req.Data) > s.node.limits.Publication:
		writeTooLarge(w, s.node.limits.Publication)
	default:
		return req, true
	}
	return req, false
}

// plainPublish reads what nearly all publishers send: {"channel":"…","data":…}, with or without a space behind what separates, and the
// name in ASCII without escapes. That is most of the work of encoding/json for a publication. It does not judge: what is not ok may be
// right all the same.
func plainPublish(body []byte) (req publishRequest, ok bool) {
	body, begins := bytes.CutPrefix(body, []byte(`{"channel":`))
	name, begins2 := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(" ")), []byte(`"`))
	end := bytes.IndexByte(name, '"')
	if !begins || !begins2 || end < 0 {
		return req, false
	}
	name, body = name[:end], name[end+1:]
	for _, c := range name {
		if c < 0x20 || c > 0x7e || c == '\\' {
			return req, false
		}
	}
	body, comma := bytes.CutPrefix(body, []byte(","))
	body, member := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(" ")), []byte(`"data":`))
	data, closed := bytes.CutSuffix(body, []byte("}"))
	data = bytes.Trim(data, " \t\r\n")
	if !comma || !member || !closed || !json.Valid(data) {
		return req, false
	}
	return publishRequest{Channel: string(name), Data: data}, true
}

// refuseBody answers what could not be read.
func (s *Server) refuseBody(w http.ResponseWriter, err error) {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		writeTooLarge(w, s.node.limits.Publication)
	case errors.Is(err, os.ErrDeadlineExceeded): // web.Server.ReadTimeout
		writeError(w, http.StatusRequestTimeout, apiBadRequest, "the body did not come in time")
	default:
		writeError(w, http.StatusBadRequest, apiBadRequest, "the body ended too early")
	}
}

// hasKey tells whether the sender of r may publish.
func (s *Server) hasKey(r *http.Request) bool {
	return s.apiKey == nil || s.apiKey.matches(r)
}
