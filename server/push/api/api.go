// Package api is the HTTP API of a push server, POST /api/METHOD, and its gRPC API, as a door.
// Names, fields, results and errors are Centrifugo 6's, so that its client libraries for backends
// work. Both encode the calls of [push.Server], so that they cannot differ.
//
// api.go has the table of methods, and reads requests; calls.go has what each method does; batch.go
// serves several commands in one request; grpc.go the same by gRPC; openapi.go describes it.
package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file is the table of the HTTP API: POST /api/METHOD with a JSON object. If an API key is
// set, the request carries it in X-API-Key or as "Authorization: apikey KEY". Names, fields,
// results and errors are Centrifugo 6's, so that its client libraries for backends work. A test
// compares docs/guides/api.md with this table. grpc.go serves it by gRPC, too.

// A method is one row of the table.
type method struct {
	name   string
	fields []string // of a request, in alphabetical order
	result string   // its shape, for the documentation
	run    func(s *Door, ctx context.Context, r *request) (result []byte, err error)
}

var methods = []*method{
	{"publish", []string{"b64data", "channel", "data", "delta", "idempotency_key", "skip_history", "tags", "version",
		"version_epoch"},
		`{"offset", "epoch"}`, (*Door).apiPublish},
	{"broadcast", []string{"b64data", "channels", "data", "delta", "idempotency_key", "skip_history", "tags",
		"version", "version_epoch"},
		`{"responses": [{"result": {"offset", "epoch"}} or {"error": {"code", "message"}}, …]}`,
		(*Door).apiBroadcast},
	{"history", []string{"channel", "limit", "reverse", "since"},
		`{"publications": [{"data", "info", "offset", "tags"}, …], "offset", "epoch"}`, (*Door).apiHistory},
	{"history_remove", []string{"channel"}, `{}`, (*Door).apiHistoryRemove},
	{"presence", []string{"channel"},
		`{"presence": {CLIENT: {"user", "client", "conn_info", "chan_info"}, …}}`, (*Door).apiPresence},
	{"presence_stats", []string{"channel"}, `{"num_clients", "num_users"}`, (*Door).apiPresenceStats},
	{"channels", []string{"pattern"}, `{"channels": {NAME: {"num_clients"}, …}}`, (*Door).apiChannels},
	{"info", nil, `{"nodes": [{"uid", "name", "version", "num_clients", "num_users", "num_subs", "num_channels", ` +
		`"uptime"}]}`, (*Door).apiInfo},
	{"connections", []string{"user"}, `{"connections": {CLIENT: {"transport", "protocol", "user", "state": ` +
		`{"channels": {NAME: {}, …}}}, …}}`, (*Door).apiConnections},
	{"disconnect", []string{"client", "disconnect", "session", "user", "whitelist"}, `{"num_clients"}`,
		(*Door).apiDisconnect},
	{"subscribe", []string{"b64data", "b64info", "channel", "client", "data", "expire_at", "info", "override",
		"recover_since", "session", "user"}, `{"num_clients"}`, (*Door).apiSubscribe},
	{"unsubscribe", []string{"channel", "client", "session", "user"}, `{"num_clients"}`, (*Door).apiUnsubscribe},
	{"refresh", []string{"client", "expire_at", "expired", "info", "session", "user"}, `{"num_clients"}`,
		(*Door).apiRefresh},
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
func (m *method) row() string {
	fields := "none"
	if len(m.fields) > 0 {
		fields = "`" + strings.Join(m.fields, "`, `") + "`"
	}
	return "| `" + m.name + "` | " + fields + " | `" + m.result + "` |"
}

func badRequest(message string) error {
	return &answer.Failure{Code: answer.ErrBadRequest.Code, Message: message}
}

// methodNamed returns the row of that name. The error says why the API does not serve the request
// with the given body.
func methodNamed(name string, body []byte) (*method, error) {
	for _, m := range methods {
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
	return nil, &answer.Failure{Code: answer.ErrMethodNotFound.Code, Message: message}
}

// namesProcedure reports whether the body of an rpc request has the field method. A request without
// it is answered with another code, as in Centrifugo.
func namesProcedure(body []byte) bool {
	var given struct {
		Method string `json:"method"`
	}
	return json.Unmarshal(body, &given) == nil && given.Method != ""
}

// A Door is the HTTP API and the gRPC API.
type Door struct {
	hub    *hub.Hub
	server *push.Server
}

// New returns the door.
func New() *Door { return new(Door) }

// Forms implements Door: clients of the API are no subscribers.
func (*Door) Forms() []hub.Form { return nil }

// Open implements Door.
func (s *Door) Open(h *hub.Hub) (clients, admin func(*http.ServeMux)) {
	s.hub = h
	return nil, nil
}

// OpenAdmin implements AdminDoor. The paths are below /api, and that of the gRPC service.
func (s *Door) OpenAdmin(server *push.Server) (admin func(*http.ServeMux)) {
	s.server = server
	return s.route
}

func (s *Door) route(mux *http.ServeMux) {
	for _, m := range methods {
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
		answer.WriteError(w, http.StatusNotFound, answer.ErrMethodNotFound.Code, err.(*answer.Failure).Message)
	})
}

func (s *Door) serveUnserved(w http.ResponseWriter, r *http.Request) {
	if body, ok := s.readAPI(w, r, s.hub.Limits().Batch); ok {
		_, err := methodNamed(strings.TrimPrefix(r.URL.Path, "/api/"), body)
		s.answerError(w, r, err)
	}
}

func (s *Door) serveAPI(w http.ResponseWriter, r *http.Request, m *method) {
	body, ok := s.readAPI(w, r, s.requestLimit(m.name))
	if !ok {
		return
	}
	result, err := s.answer(r.Context(), m, body, false)
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	answer.WriteJSON(w, http.StatusOK, result)
}

// requestLimit is how many bytes a request to the method may have. The body of a publish is longer
// than its data: indented, or in base64. The data alone count for Limits.Publication.
func (s *Door) requestLimit(method string) int {
	l := s.hub.Limits()
	if method == "publish" {
		return min(bodyFactor*l.Publication+hub.BodySlack, l.Batch)
	}
	return l.Batch
}

// answer calls the method and returns the body of the answer, {"result": …}.
func (s *Door) answer(ctx context.Context, m *method, body []byte, asBytes bool) ([]byte, error) {
	result, err := s.call(ctx, m, body, asBytes)
	if err != nil {
		return nil, err
	}
	return append(append([]byte(`{"result":`), result...), '}'), nil
}

// call runs the method with the request in body. For asBytes see request. The error is an
// *Failure.
func (s *Door) call(ctx context.Context, m *method, body []byte, asBytes bool) ([]byte, error) {
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
		return nil, &answer.Failure{Status: http.StatusServiceUnavailable, Code: answer.ErrInternal.Code,
			Message: "the request ended before its answer"}
	}
	return nil, answer.FailureOf(s.hub.Logger(), m.name, err)
}

// errorModeHeader is a request header. Its value "transport" gives API errors an HTTP status of
// their own, as in Centrifugo.
const errorModeHeader = "X-Centrifugo-Error-Mode"

// statuses maps error codes to HTTP statuses in that mode. Other codes get 400.
var statuses = map[uint32]int{
	answer.ErrInternal.Code: http.StatusInternalServerError, answer.ErrMethodNotFound.Code: http.StatusNotFound,
	answer.ErrUnknownChannel.Code: http.StatusNotFound,
	answer.ErrUnrecoverable.Code:  http.StatusRequestedRangeNotSatisfiable,
}

// answerError answers with err, turning it into an *Failure if it is none.
func (s *Door) answerError(w http.ResponseWriter, r *http.Request, err error) {
	e := answer.FailureOf(s.hub.Logger(), r.URL.Path, err)
	switch {
	case e.Status != 0:
		s.hub.WriteFailure(w, e)
	case r.Header.Get(errorModeHeader) == "transport":
		status := statuses[e.Code]
		if status == 0 {
			status = http.StatusBadRequest
		}
		answer.WriteJSON(w, status, answer.AppendBareError(nil, e.Code, e.Message))
	default:
		answer.WriteError(w, http.StatusOK, e.Code, e.Message)
	}
}

// request is the body of every method; each method reads its own fields.
type request struct {
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

// bodyFactor is how many times longer than its data the body of a publish may be. It leaves room
// for indentation.
const bodyFactor = 16

// readAPI returns the body of an authorized request, or answers with an error.
func (s *Door) readAPI(w http.ResponseWriter, r *http.Request, limit int) (body []byte, ok bool) {
	if !answer.AllowMethod(w, r, http.MethodPost) {
		return nil, false
	}
	if !s.hub.MayCallNow(w, r) {
		return nil, false
	}
	if !s.hub.Keys().MayUseAPI(r) {
		s.hub.CountRequestRefusal(hub.RefusedKey, r)
		answer.WriteError(w, http.StatusUnauthorized, answer.ErrUnauthorized.Code,
			"the key is missing or wrong: send it in the header X-API-Key, or as Authorization: apikey KEY")
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		answer.RefuseBody(w, err)
		return nil, false
	}
	return body, true
}

// plainPublish parses the form that nearly all publishers send: {"channel":"…","data":…}. It allows
// one space after separators, and a name in ASCII without escapes. Without it, by encoding/json
// alone, a publish to one subscriber takes 1.3 times the CPU. A body that it rejects may still be a
// valid request.
func plainPublish(body []byte) (r request, ok bool) {
	body, begins := bytes.CutPrefix(body, []byte(`{"channel":`))
	name, begins2 := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(" ")), []byte(`"`))
	end := bytes.IndexByte(name, '"')
	if !begins || !begins2 || end < 0 {
		return r, false
	}
	name, body = name[:end], name[end+1:]
	for _, c := range name {
		if c < 0x20 || c > 0x7e || c == '\\' {
			return r, false
		}
	}
	body, comma := bytes.CutPrefix(body, []byte(","))
	body, member := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(" ")), []byte(`"data":`))
	data, closed := bytes.CutSuffix(body, []byte("}"))
	data = bytes.Trim(data, " \t\r\n")
	if !comma || !member || !closed || !json.Valid(data) {
		return r, false
	}
	return request{Channel: string(name), Data: data}, true
}

// This file reads requests to the API. A field that the server does not act on is refused by name:
// a client that gets "ok" relies on every field it sent.

// unservedFields are the fields of Centrifugo's API that this server lacks, each with what to do
// instead.
var unservedFields = map[string]string{
	"label_filter": "name the user or the client",
	"all_users":    "name the user or the client",
	"expression":   "name the user",
	"disconnect.reconnect": "clients stay away after the codes 3500 to 3999 and 4500 to 4999, and come back after " +
		"all others",
}

// nested lists the fields of the fields that are objects.
var nested = map[string][]string{
	"since": {"epoch", "offset"}, "recover_since": {"epoch", "offset"}, "disconnect": {"code", "reason"},
	"override": {"force_positioning", "force_push_join_leave", "force_recovery", "join_leave",
		"presence"},
	"override.force_positioning": {"value"}, "override.force_push_join_leave": {"value"},
	"override.force_recovery": {"value"}, "override.join_leave": {"value"}, "override.presence": {"value"},
}

// read returns the request in body, or an *Failure that says what is wrong with it.
func (m *method) read(body []byte) (r request, err error) {
	if m.name == "publish" {
		if r, plain := plainPublish(body); plain {
			return r, nil
		}
	}
	var given map[string]json.RawMessage
	err = json.Unmarshal(body, &given)
	if err == nil && given == nil {
		err = errNotAnObject
	}
	if err == nil {
		if wrong := m.refuse("", m.fields, given); wrong != nil {
			return r, wrong
		}
		err = json.Unmarshal(body, &r)
	}
	if wrong := base64.CorruptInputError(0); errors.As(err, &wrong) {
		return r, badRequest(m.name + " has a field that is not base64: " + err.Error())
	}
	if err != nil {
		message := "the body is not a JSON object that " + m.name + " accepts: " + err.Error()
		return r, &answer.Failure{Status: http.StatusBadRequest, Code: answer.ErrBadRequest.Code, Message: message}
	}
	return r, nil
}

var errNotAnObject = errors.New("it is null")

// refuse returns an error for the first given field that is not among the known ones. A field with
// an empty value passes, because generated clients send all fields. The path of the enclosing
// object ends with a dot or is empty.
func (m *method) refuse(path string, known []string, given map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		lower := strings.ToLower(name) // as encoding/json compares
		switch {
		case slices.Contains(known, lower):
			var inner map[string]json.RawMessage
			if nested[path+lower] == nil || json.Unmarshal(value, &inner) != nil {
				continue // the type is checked when the request is read
			}
			if err := m.refuse(path+lower+".", nested[path+lower], inner); err != nil {
				return err
			}
		case isEmpty(value):
		case unservedFields[path+lower] != "":
			instead := strings.ReplaceAll(unservedFields[path+lower], "`", "")
			return badRequest(fmt.Sprintf("field %q of %s is not served: %s", path+lower, m.name, instead))
		default:
			return badRequest(m.name + " has no field \"" + path + name + "\": " + takes(path, known))
		}
	}
	return nil
}

func takes(path string, known []string) string {
	what := "it takes "
	if path != "" {
		what = strings.TrimSuffix(path, ".") + " takes "
	}
	if len(known) == 0 {
		return what + "none"
	}
	return what + strings.Join(known, ", ")
}

// isEmpty reports whether the JSON value is the zero value that a client sends for an unset field.
func isEmpty(value json.RawMessage) bool {
	switch string(value) {
	case "null", "false", "0", `""`, "{}", "[]":
		return true
	}
	return false
}
