package push

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file is the HTTP API besides publish: POST /api/METHOD with a JSON object, and the key in X-API-Key where one is set. Names
// and results are those of servers of the Centrifuge protocol, so that their client libraries for backends can be used.
//
//	publish         {"channel", "data"}                    {"offset", "epoch"}, empty without history
//	broadcast       {"channels", "data"}                   {"responses": [{"result": {…}} or {"error": {…}}, …]}, one for each channel
//	history         {"channel", "limit", "since": {"offset", "epoch"}, "reverse"}   {"publications", "offset", "epoch"}
//	history_remove  {"channel"}                            {}
//	presence        {"channel"}                            {"presence": {CLIENT: {"user", "client", "conn_info", "chan_info"}}}
//	presence_stats  {"channel"}                            {"num_clients", "num_users"}
//	channels        {"pattern"}                            {"channels": {NAME: {"num_clients"}}}, of this node
//	info            {}                                     {"nodes": [{"uid", "name", "version", "num_clients", "num_channels", "uptime"}]}
//	disconnect      {"user", "client", "disconnect": {"code", "reason"}}            {"num_clients"}, of this node
//	unsubscribe     {"channel", "user", "client"}          {"num_clients"}, of this node
//
// What fails is answered with a status other than 200 and {"error": {"code", "message"}}.
type apiMethod func(s *Server, ctx context.Context, r *apiRequest) (result []byte, err error)

var apiMethods = map[string]apiMethod{
	"broadcast": (*Server).broadcast, "history": (*Server).apiHistory, "history_remove": (*Server).removeHistory,
	"presence": (*Server).apiPresence, "presence_stats": (*Server).apiPresenceStats, "channels": (*Server).apiChannels,
	"info": (*Server).apiInfo, "disconnect": (*Server).apiDisconnect, "unsubscribe": (*Server).apiUnsubscribe,
}

// apiRequest is the body of any method; each looks at its own members.
type apiRequest struct {
	Channel    string               `json:"channel"`
	Channels   []string             `json:"channels"`
	Data       json.RawMessage      `json:"data"`
	Limit      int                  `json:"limit"`
	Since      *centrifuge.Position `json:"since"`
	Reverse    bool                 `json:"reverse"`
	Pattern    string               `json:"pattern"`
	Client     string               `json:"client"`
	User       string               `json:"user"`
	Disconnect *struct {
		Code   uint16 `json:"code"`
		Reason string `json:"reason"`
	} `json:"disconnect"`
}

// An apiError is a request that cannot be answered as it is.
type apiError struct {
	status  int
	code    apiCode
	message string
}

func (e *apiError) Error() string { return "push: api: " + e.message }

func badRequest(message string) error {
	return &apiError{http.StatusBadRequest, apiBadRequest, message}
}

func (s *Server) routeAPI(mux *http.ServeMux) {
	mux.HandleFunc("/api/publish", s.servePublish)
	for name, method := range apiMethods {
		mux.HandleFunc("/api/"+name, func(w http.ResponseWriter, r *http.Request) { s.serveAPI(w, r, method) })
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, apiMethodNotFound, "there is no "+r.URL.Path+": use /api/publish, or see the documentation for the others")
	})
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, method apiMethod) {
	body, ok := s.readAPI(w, r)
	if !ok {
		return
	}
	var req apiRequest
	if err := json.Unmarshal(body, &req); err != nil {
		writeError(w, http.StatusBadRequest, apiBadRequest, "the body is not a JSON object as "+r.URL.Path+" wants it: "+err.Error())
		return
	}
	result, err := method(s, r.Context(), &req)
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, append(append([]byte(`{"result":`), result...), '}'))
}

func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	var known *apiError
	var protocol centrifuge.Error
	switch {
	case errors.As(err, &known):
		writeError(w, known.status, known.code, known.message)
	case errors.As(err, &protocol):
		writeError(w, http.StatusBadRequest, apiCode(protocol.Code), protocol.Message)
	default:
		s.node.log.Error("push: a request to the API failed", "path", r.URL.Path, "error", err)
		writeError(w, http.StatusInternalServerError, apiInternal, "the request failed")
	}
}

// broadcast publishes the same to several channels, at most as many as one client may subscribe to.
func (s *Server) broadcast(ctx context.Context, r *apiRequest) ([]byte, error) {
	switch {
	case len(r.Channels) == 0:
		return nil, badRequest("channels is missing")
	case len(r.Channels) > s.node.limits.Channels:
		return nil, &apiError{http.StatusBadRequest, apiLimitExceeded, "too many channels in one request"}
	case r.Data == nil:
		return nil, badRequest("data is missing")
	case len(r.Data) > s.node.limits.Publication:
		return nil, &apiError{http.StatusRequestEntityTooLarge, apiLimitExceeded, "the data is too large"}
	}
	result := []byte(`{"responses":[`)
	for i, name := range r.Channels {
		if i > 0 {
			result = append(result, ',')
		}
		at, err := s.node.publish(ctx, name, Publication{Data: r.Data})
		if err == nil {
			result = append(appendPublished(append(result, `{"result":`...), at), '}')
			continue
		}
		e := s.publishError(name, err)
		result = appendError(result, e.code, e.message)
	}
	return append(result, "]}"...), nil
}

// mustHave refuses names that are none, and channels whose rules do not have what is asked for.
func (s *Server) mustHave(name string, has func(*Namespace) bool) error {
	switch {
	case name == "":
		return badRequest("channel is missing")
	case !s.node.validChannel(name):
		return badRequest(s.node.channelRule("the channel"))
	case !has(s.node.rules.of(name)):
		return centrifuge.ErrNotAvailable
	}
	return nil
}

func keepsHistory(ns *Namespace) bool  { return ns.HistorySize > 0 }
func showsPresence(ns *Namespace) bool { return ns.Presence }

func (s *Server) apiHistory(ctx context.Context, r *apiRequest) ([]byte, error) {
	if err := s.mustHave(r.Channel, keepsHistory); err != nil {
		return nil, err
	}
	h, err := s.node.history(ctx, r.Channel, Query{Since: (*Position)(r.Since), Limit: r.Limit, Reverse: r.Reverse})
	if err != nil {
		return nil, err
	}
	return centrifuge.AppendHistoryResult(nil, listed(h.Publications), centrifuge.Position(h.Top)), nil
}

func (s *Server) removeHistory(ctx context.Context, r *apiRequest) ([]byte, error) {
	if err := s.mustHave(r.Channel, keepsHistory); err != nil {
		return nil, err
	}
	return []byte("{}"), s.node.bus.Forget(ctx, r.Channel)
}

func (s *Server) apiPresence(ctx context.Context, r *apiRequest) ([]byte, error) {
	if err := s.mustHave(r.Channel, showsPresence); err != nil {
		return nil, err
	}
	list, err := s.node.bus.Present(ctx, r.Channel)
	if err == nil && len(list) > s.node.limits.Present {
		err = centrifuge.ErrLimitExceeded
	}
	return centrifuge.AppendPresenceResult(nil, infos(list)), err
}

func (s *Server) apiPresenceStats(ctx context.Context, r *apiRequest) ([]byte, error) {
	if err := s.mustHave(r.Channel, showsPresence); err != nil {
		return nil, err
	}
	list, err := s.node.bus.Present(ctx, r.Channel)
	return centrifuge.AppendPresenceStatsResult(nil, len(list), users(list)), err
}
