package push

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file serves Centrifugo's gRPC API, so that backends work whose stubs are generated from its
// api.proto. A message becomes the JSON object of the HTTP API, and the table in api.go answers it.
// apigrpcmessage.go has the rules of gRPC. The service needs no library: a call with one message in
// each direction is a POST of HTTP/2 with trailers.

// rpcService is the path of the service, which the method's name follows.
const rpcService = "/centrifugal.centrifugo.api.CentrifugoApi/"

// rpcMethods are the names of the methods in the HTTP API by those in the gRPC API. The methods of
// unservedMethods are among them: their replies say what to do instead.
var rpcMethods = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	add := func(method string) { all[rpcName(method)] = method }
	add("batch")
	for _, m := range apiMethods {
		add(m.name)
	}
	for method := range unservedMethods {
		add(method)
	}
	return all
})

// rpcName returns the name in the gRPC API of a method: PresenceStats for presence_stats.
func rpcName(method string) string {
	if method == "rpc" {
		return "RPC"
	}
	var name strings.Builder
	for word := range strings.SplitSeq(method, "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// rpcCode is the code of a gRPC status (https://grpc.io/docs/guides/status-codes).
type rpcCode uint32

const (
	rpcOK                rpcCode = 0
	rpcInvalidArgument   rpcCode = 3
	rpcDeadlineExceeded  rpcCode = 4
	rpcNotFound          rpcCode = 5
	rpcResourceExhausted rpcCode = 8
	rpcOutOfRange        rpcCode = 11
	rpcUnimplemented     rpcCode = 12
	rpcInternal          rpcCode = 13
	rpcUnavailable       rpcCode = 14
	rpcUnauthenticated   rpcCode = 16
)

// rpcCodes maps error codes to those of gRPC, as Centrifugo does. Other codes get
// rpcInvalidArgument.
var rpcCodes = map[uint32]rpcCode{
	ErrInternal.Code: rpcInternal, ErrMethodNotFound.Code: rpcNotFound, ErrLimitExceeded.Code: rpcResourceExhausted,
	ErrUnknownChannel.Code: rpcNotFound, ErrUnrecoverable.Code: rpcOutOfRange,
}

// An rpcError is the status of a call that failed.
type rpcError struct {
	code    rpcCode
	message string
	details []byte // a google.rpc.Status, or nil
}

// rpcErrorOf returns the status for an error of the API, with the error as a detail.
func rpcErrorOf(e *Failure) *rpcError {
	code, known := rpcCodes[e.Code]
	switch {
	case e.Status == http.StatusServiceUnavailable:
		code = rpcUnavailable
	case !known:
		code = rpcInvalidArgument
	}
	return &rpcError{code, e.Message, centrifuge.APIErrorDetails(uint32(code), uint32(e.Code), e.Message)}
}

func (s *apiDoor) serveRPC(w http.ResponseWriter, r *http.Request) {
	if !isRPC(w, r) {
		return
	}
	reply, failed := s.answerRPC(r)
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	if failed == nil {
		h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(rpcOK)))
		w.Write(rpcFrame(reply)) // a write error means that the client has disconnected
		return
	}
	h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(failed.code)))
	h.Set(http.TrailerPrefix+"Grpc-Message", percentEncoded(failed.message))
	if failed.details != nil {
		h.Set(http.TrailerPrefix+"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(failed.details))
	}
	if failed == errRPCEncoding {
		h.Set("Grpc-Accept-Encoding", "identity,gzip")
	}
	w.WriteHeader(http.StatusOK)
}

// messageLimit is requestLimit for a message, in which data are bytes as they are.
func (s *apiDoor) messageLimit(method string) int {
	if method == "publish" {
		return s.Limits().Publication + BodySlack
	}
	return s.Limits().Batch
}

// answerRPC returns the reply to a call, or its status.
func (s *apiDoor) answerRPC(r *http.Request) ([]byte, *rpcError) {
	if s.countCall(r) > 0 {
		s.RefusedRequest(RefusedRate, r)
		return nil, &rpcError{code: rpcResourceExhausted, message: ErrTooManyRequests.Message}
	}
	if !s.hasKey(r) {
		s.RefusedRequest(RefusedKey, r)
		return nil, &rpcError{code: rpcUnauthenticated,
			message: "the key is missing or wrong: send it in the metadata, as authorization: apikey KEY"}
	}
	name := strings.TrimPrefix(r.URL.Path, rpcService)
	method, known := rpcMethods()[name]
	if !known {
		return nil, &rpcError{code: rpcUnimplemented,
			message: "there is no method \"" + name + "\": docs/guides/api.md lists them"}
	}
	ctx := r.Context()
	if text := r.Header.Get("Grpc-Timeout"); text != "" {
		timeout, ok := parseTimeout(text)
		if !ok {
			return nil, &rpcError{code: rpcInternal, message: "grpc-timeout is malformed"}
		}
		var cancel context.CancelFunc
		ctx, cancel = s.Within(ctx, timeout)
		defer cancel()
	}
	message, failed := readMessage(r.Body, r.Header.Get("Grpc-Encoding"), s.messageLimit(method))
	if failed != nil {
		return nil, failed
	}
	answer, err := s.callRPC(ctx, name, method, message)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, &rpcError{code: rpcDeadlineExceeded, message: "the time for the call is over"}
	}
	return s.replyRPC(name, answer, err, r.Header.Get(errorModeHeader) == "transport")
}

// callRPC calls the method with a message, and returns the body of the answer of the HTTP API. The
// error is an *Failure, or says why the message is malformed.
func (s *apiDoor) callRPC(ctx context.Context, name, method string, message []byte) ([]byte, error) {
	body, err := centrifuge.APIRequest(name, message)
	var field centrifuge.APIFieldError
	switch {
	case errors.As(err, &field):
		return nil, badRequest(string(field))
	case err != nil:
		return nil, err
	case method == "batch":
		return s.batch(ctx, body, true)
	}
	m, err := methodNamed(method, body)
	if err != nil {
		return nil, err
	}
	return s.answer(ctx, m, body, true)
}

// replyRPC returns the reply to a call: a result, or an error of the API. The error becomes the
// status of the call instead in three cases:
//
//   - the client has asked for that (asStatus)
//   - the HTTP API answers it with a status, too
//   - the method is Batch, whose reply has no field for an error
func (s *apiDoor) replyRPC(name string, answer []byte, err error, asStatus bool) ([]byte, *rpcError) {
	e, known := err.(*Failure)
	switch {
	case known && (asStatus || e.Status != 0 || name == "Batch"):
		return nil, rpcErrorOf(e)
	case known:
		answer = appendError(nil, e.Code, e.Message)
	case err != nil:
		return nil, &rpcError{code: rpcInternal, message: err.Error()}
	}
	reply, err := centrifuge.APIResponse(name, answer)
	if err != nil {
		return nil, rpcErrorOf(s.Explain(name, err))
	}
	return reply, nil
}
