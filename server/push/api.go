package push

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file is the table of the HTTP API: POST /api/METHOD with a JSON object. If an API key is
// set, the request carries it in X-API-Key or as "Authorization: apikey KEY". Names, fields,
// results and errors are Centrifugo 6's, so that its client libraries for backends work. A test
// compares docs/guides/api.md with this table. apigrpc.go serves it by gRPC, too.

// An apiMethod is one row of the table.
type apiMethod struct {
	name   string
	fields []string // of a request, in alphabetical order
	result string   // its shape, for the documentation
	run    func(s *apiDoor, ctx context.Context, r *apiRequest) (result []byte, err error)
}

var apiMethods = []*apiMethod{
	{"publish", []string{"b64data", "channel", "data", "delta", "idempotency_key", "skip_history", "tags", "version",
		"version_epoch"},
		`{"offset", "epoch"}`, (*apiDoor).apiPublish},
	{"broadcast", []string{"b64data", "channels", "data", "delta", "idempotency_key", "skip_history", "tags",
		"version", "version_epoch"},
		`{"responses": [{"result": {"offset", "epoch"}} or {"error": {"code", "message"}}, …]}`,
		(*apiDoor).apiBroadcast},
	{"history", []string{"channel", "limit", "reverse", "since"},
		`{"publications": [{"data", "info", "offset", "tags"}, …], "offset", "epoch"}`, (*apiDoor).apiHistory},
	{"history_remove", []string{"channel"}, `{}`, (*apiDoor).apiHistoryRemove},
	{"presence", []string{"channel"},
		`{"presence": {CLIENT: {"user", "client", "conn_info", "chan_info"}, …}}`, (*apiDoor).apiPresence},
	{"presence_stats", []string{"channel"}, `{"num_clients", "num_users"}`, (*apiDoor).apiPresenceStats},
	{"channels", []string{"pattern"}, `{"channels": {NAME: {"num_clients"}, …}}`, (*apiDoor).apiChannels},
	{"info", nil, `{"nodes": [{"uid", "name", "version", "num_clients", "num_users", "num_subs", "num_channels", ` +
		`"uptime"}]}`, (*apiDoor).apiInfo},
	{"connections", []string{"user"}, `{"connections": {CLIENT: {"transport", "protocol", "user", "state": ` +
		`{"channels": {NAME: {}, …}}}, …}}`, (*apiDoor).apiConnections},
	{"disconnect", []string{"client", "disconnect", "session", "user", "whitelist"}, `{"num_clients"}`,
		(*apiDoor).apiDisconnect},
	{"subscribe", []string{"b64data", "b64info", "channel", "client", "data", "expire_at", "info", "override",
		"recover_since", "session", "user"}, `{"num_clients"}`, (*apiDoor).apiSubscribe},
	{"unsubscribe", []string{"channel", "client", "session", "user"}, `{"num_clients"}`, (*apiDoor).apiUnsubscribe},
	{"refresh", []string{"client", "expire_at", "expired", "info", "session", "user"}, `{"num_clients"}`,
		(*apiDoor).apiRefresh},
}

// unservedMethods are the methods of Centrifugo's API that this server lacks, each with what to do
// instead.
var unservedMethods = map[string]string{
	"rpc":                 "call your own backend",
	"map_publish":         noMaps,
	"map_remove":          noMaps,
	"map_read_state":      noMaps,
	"map_read_stream":     noMaps,
	"map_stats":           noMaps,
	"map_clear":           noMaps,
	"shared_poll_publish": noMaps,
}

const noMaps = "there are no map subscriptions and no shared polls: publish states to a channel with a history"

// row is the method's line in docs/guides/api.md.
func (m *apiMethod) row() string {
	fields := "none"
	if len(m.fields) > 0 {
		fields = "`" + strings.Join(m.fields, "`, `") + "`"
	}
	return "| `" + m.name + "` | " + fields + " | `" + m.result + "` |"
}

func badRequest(message string) error {
	return &Failure{Code: ErrBadRequest.Code, Message: message}
}

// methodNamed returns the row of that name. The error says why the API does not serve the request
// with the given body.
func methodNamed(name string, body []byte) (*apiMethod, error) {
	for _, m := range apiMethods {
		if m.name == name {
			return m, nil
		}
	}
	if name == "rpc" && !namesProcedure(body) {
		return nil, badRequest("method is missing")
	}
	message := "there is no method \"" + name + "\": docs/guides/api.md lists them"
	if instead, known := unservedMethods[name]; known {
		message = "the method \"" + name + "\" is not served: " + strings.ReplaceAll(instead, "`", "")
	}
	return nil, &Failure{Code: ErrMethodNotFound.Code, Message: message}
}

// namesProcedure reports whether the body of an rpc request has the field method. A request without
// it is answered with another code, as in Centrifugo.
func namesProcedure(body []byte) bool {
	var given struct {
		Method string `json:"method"`
	}
	return json.Unmarshal(body, &given) == nil && given.Method != ""
}

// An apiDoor is the HTTP API and the gRPC API.
type apiDoor struct{ *Server }

// newAPIDoor returns the door.
func newAPIDoor() *apiDoor { return new(apiDoor) }

// Forms implements Door: clients of the API are no subscribers.
func (*apiDoor) Forms() []Form { return nil }

// Open implements Door. The paths are below /api, and that of the gRPC service.
func (s *apiDoor) Open(server *Server) (clients, admin func(*http.ServeMux)) {
	s.Server = server
	return nil, s.route
}

func (s *apiDoor) route(mux *http.ServeMux) {
	for _, m := range apiMethods {
		mux.HandleFunc("/api/"+m.name, func(w http.ResponseWriter, r *http.Request) { s.serveAPI(w, r, m) })
	}
	for name := range unservedMethods {
		mux.HandleFunc("/api/"+name, s.serveUnserved)
	}
	mux.HandleFunc("GET /api/openapi.json", s.serveOpenAPI)
	mux.HandleFunc("/api/batch", s.serveBatch)
	mux.HandleFunc(rpcService, s.serveRPC)
	mux.HandleFunc("/api", s.serveLines)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		_, err := methodNamed(strings.TrimPrefix(r.URL.Path, "/api/"), nil)
		WriteError(w, http.StatusNotFound, ErrMethodNotFound.Code, err.(*Failure).Message)
	})
}

func (s *apiDoor) serveUnserved(w http.ResponseWriter, r *http.Request) {
	if body, ok := s.readAPI(w, r, s.Limits().Batch); ok {
		_, err := methodNamed(strings.TrimPrefix(r.URL.Path, "/api/"), body)
		s.answerError(w, r, err)
	}
}

func (s *apiDoor) serveAPI(w http.ResponseWriter, r *http.Request, m *apiMethod) {
	body, ok := s.readAPI(w, r, s.requestLimit(m.name))
	if !ok {
		return
	}
	answer, err := s.answer(r.Context(), m, body, false)
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	WriteJSON(w, http.StatusOK, answer)
}

// requestLimit is how many bytes a request to the method may have. The body of a publish is longer
// than its data: indented, or in base64. The data alone count for Limits.Publication.
func (s *apiDoor) requestLimit(method string) int {
	l := s.Limits()
	if method == "publish" {
		return min(bodyFactor*l.Publication+BodySlack, l.Batch)
	}
	return l.Batch
}

// answer calls the method and returns the body of the answer, {"result": …}.
func (s *apiDoor) answer(ctx context.Context, m *apiMethod, body []byte, asBytes bool) ([]byte, error) {
	result, err := s.call(ctx, m, body, asBytes)
	if err != nil {
		return nil, err
	}
	return append(append([]byte(`{"result":`), result...), '}'), nil
}

// call runs the method with the request in body. For asBytes see apiRequest. The error is an
// *Failure.
func (s *apiDoor) call(ctx context.Context, m *apiMethod, body []byte, asBytes bool) ([]byte, error) {
	r, err := m.read(body)
	if err != nil {
		return nil, err
	}
	r.asBytes = asBytes
	result, err := m.run(s, ctx, &r)
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, ctx.Err()): // the client has left, or its time is over
		return nil, &Failure{http.StatusServiceUnavailable, ErrInternal.Code, "the request ended before its answer"}
	}
	return nil, s.Explain(m.name, err)
}

// errorModeHeader is a request header. Its value "transport" gives API errors an HTTP status of
// their own, as in Centrifugo.
const errorModeHeader = "X-Centrifugo-Error-Mode"

// statuses maps error codes to HTTP statuses in that mode. Other codes get 400.
var statuses = map[uint32]int{
	ErrInternal.Code: http.StatusInternalServerError, ErrMethodNotFound.Code: http.StatusNotFound,
	ErrUnknownChannel.Code: http.StatusNotFound,
	ErrUnrecoverable.Code:  http.StatusRequestedRangeNotSatisfiable,
}

// answerError answers with err, turning it into an *Failure if it is none.
func (s *apiDoor) answerError(w http.ResponseWriter, r *http.Request, err error) {
	e := s.Explain(r.URL.Path, err)
	switch {
	case e.Status != 0:
		WriteError(w, e.Status, e.Code, e.Message)
	case r.Header.Get(errorModeHeader) == "transport":
		status := statuses[e.Code]
		if status == 0 {
			status = http.StatusBadRequest
		}
		WriteJSON(w, status, appendBareError(nil, e.Code, e.Message))
	default:
		WriteError(w, http.StatusOK, e.Code, e.Message)
	}
}

// apiRequest is the body of every method; each method reads its own fields.
type apiRequest struct {
	Channel        string               `json:"channel"`
	Channels       []string             `json:"channels"`
	Data           json.RawMessage      `json:"data"`
	B64Data        []byte               `json:"b64data"`
	Delta          bool                 `json:"delta"` // subscribers that ask for deltas get them anyway
	RecoverSince   *centrifuge.Position `json:"recover_since"`
	Info           json.RawMessage      `json:"info"`
	B64Info        []byte               `json:"b64info"`
	ExpireAt       int64                `json:"expire_at"`
	Expired        bool                 `json:"expired"`
	Tags           map[string]string    `json:"tags"`
	SkipHistory    bool                 `json:"skip_history"`
	IdempotencyKey string               `json:"idempotency_key"`
	Version        uint64               `json:"version"`
	VersionEpoch   string               `json:"version_epoch"`
	Limit          int                  `json:"limit"`
	Since          *centrifuge.Position `json:"since"`
	Reverse        bool                 `json:"reverse"`
	Pattern        string               `json:"pattern"`
	Client         string               `json:"client"`
	User           string               `json:"user"`
	Session        string               `json:"session"`
	Override       overrides            `json:"override"`
	Whitelist      []string             `json:"whitelist"`
	Disconnect     *struct {
		Code   uint32 `json:"code"`
		Reason string `json:"reason"`
	} `json:"disconnect"`

	asBytes bool `json:"-"` // in the result the data of publications is in base64, whatever its kind
}
