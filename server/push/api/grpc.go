package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file serves Centrifugo's gRPC API, so that backends work whose stubs are generated from its
// api.proto. A message becomes the JSON object of the HTTP API, and the table in api.go answers it.
// The second part has the rules of gRPC. The service needs no library: a call with one message in
// each direction is a POST of HTTP/2 with trailers.

// rpcService is the path of the service, which the method's name follows.
const rpcService = "/centrifugal.centrifugo.api.CentrifugoApi/"

// rpcMethods are the names of the methods in the HTTP API by those in the gRPC API. The methods of
// unservedMethods are among them: their replies say what to do instead.
var rpcMethods = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	add := func(method string) { all[rpcName(method)] = method }
	add("batch")
	for _, m := range methods {
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
	answer.ErrInternal.Code: rpcInternal, answer.ErrMethodNotFound.Code: rpcNotFound,
	answer.ErrLimitExceeded.Code:  rpcResourceExhausted,
	answer.ErrUnknownChannel.Code: rpcNotFound, answer.ErrUnrecoverable.Code: rpcOutOfRange,
}

// An rpcError is the status of a call that failed.
type rpcError struct {
	code    rpcCode
	message string
	details []byte        // a google.rpc.Status, or nil
	wait    time.Duration // after which the call may succeed; 0: it is not known
}

// rpcErrorOf returns the status for an error of the API, with the error as a detail. What may
// succeed later has the time when.
func (s *Door) rpcErrorOf(e *answer.Failure) *rpcError {
	code, known := rpcCodes[e.Code]
	wait := time.Duration(0)
	switch {
	case e.Status == http.StatusServiceUnavailable:
		code, wait = rpcUnavailable, s.hub.CallLater()
	case !known:
		code = rpcInvalidArgument
	}
	return &rpcError{code, e.Message, centrifuge.APIErrorDetails(uint32(code), uint32(e.Code), e.Message,
		wait.Milliseconds()), wait}
}

func (s *Door) serveRPC(w http.ResponseWriter, r *http.Request) {
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
	// The head is all of the answer (Trailers-Only). Clients repeat no call whose answer has begun
	// otherwise (gRFC A6).
	h.Set("Grpc-Status", strconv.Itoa(int(failed.code)))
	h.Set("Grpc-Message", percentEncoded(failed.message))
	if failed.details != nil {
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(failed.details))
	}
	if failed.wait > 0 {
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(failed.wait.Milliseconds(), 10))
	}
	if failed == errRPCEncoding {
		h.Set("Grpc-Accept-Encoding", "identity,gzip")
	}
	w.WriteHeader(http.StatusOK)
}

// messageLimit is requestLimit for a message, in which data are bytes as they are.
func (s *Door) messageLimit(method string) int {
	if method == "publish" {
		return s.hub.Limits().Publication + hub.BodySlack
	}
	return s.hub.Limits().Batch
}

// answerRPC returns the reply to a call, or its status.
func (s *Door) answerRPC(r *http.Request) ([]byte, *rpcError) {
	if wait := s.hub.CountCall(r); wait > 0 {
		s.hub.CountRequestRefusal(hub.RefusedRate, r)
		return nil, &rpcError{code: rpcResourceExhausted, message: answer.ErrTooManyRequests.Message, wait: wait}
	}
	if !s.hub.Keys().MayUseAPI(r) {
		s.hub.CountRequestRefusal(hub.RefusedKey, r)
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
		ctx, cancel = s.hub.Within(ctx, timeout)
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
func (s *Door) callRPC(ctx context.Context, name, method string, message []byte) ([]byte, error) {
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
func (s *Door) replyRPC(name string, body []byte, err error, asStatus bool) ([]byte, *rpcError) {
	e, known := err.(*answer.Failure)
	switch {
	case known && (asStatus || e.Status != 0 || name == "Batch"):
		return nil, s.rpcErrorOf(e)
	case known:
		body = answer.AppendError(nil, e.Code, e.Message)
	case err != nil:
		return nil, &rpcError{code: rpcInternal, message: err.Error()}
	}
	reply, err := centrifuge.APIResponse(name, body)
	if err != nil {
		return nil, s.rpcErrorOf(answer.FailureOf(s.hub.Logger(), name, err))
	}
	return reply, nil
}

// This file reads and writes what gRPC has around the messages of a call
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). A message has a prefix: whether
// it is compressed, and its length.

const (
	rpcPrefix     = 1 + 4
	rpcCompressed = 1 // the first byte of the prefix
)

// isRPC reports whether r is a call. If it is not, isRPC answers with an HTTP status, which clients
// turn into a status of gRPC.
func isRPC(w http.ResponseWriter, r *http.Request) bool {
	switch kind := r.Header.Get("Content-Type"); {
	case r.ProtoMajor < 2:
		answer.WriteError(w, http.StatusHTTPVersionNotSupported, answer.ErrBadRequest.Code,
			"gRPC needs HTTP/2: without TLS the client "+
				"begins with it, by prior knowledge")
		return false
	case !answer.AllowMethod(w, r, http.MethodPost):
		return false
	case kind != "application/grpc" && kind != "application/grpc+proto" &&
		!strings.HasPrefix(kind, "application/grpc;"):
		answer.WriteError(w, http.StatusUnsupportedMediaType, answer.ErrBadRequest.Code,
			"the content type is not application/grpc")
		return false
	}
	return true
}

// errRPCEncoding is answered with the encodings that the server accepts.
var errRPCEncoding = &rpcError{code: rpcUnimplemented, message: "messages may be compressed by gzip only"}

// readMessage reads the only message of a call. It may have limit bytes, and no more after
// decompression. Memory is taken as the bytes come, not as the prefix announces them.
func readMessage(body io.Reader, encoding string, limit int) ([]byte, *rpcError) {
	if encoding != "" && encoding != "identity" && encoding != "gzip" {
		return nil, errRPCEncoding
	}
	var prefix [rpcPrefix]byte
	if _, err := io.ReadFull(body, prefix[:]); err != nil {
		return nil, cutMessage(err)
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case uint64(size) > uint64(limit):
		return nil, largeMessage(limit)
	case prefix[0] > rpcCompressed:
		return nil, &rpcError{code: rpcInternal, message: "a message begins with neither 0 nor 1"}
	}
	var message bytes.Buffer
	if _, err := io.CopyN(&message, body, int64(size)); err != nil {
		return nil, cutMessage(err)
	}
	switch n, err := io.ReadFull(body, make([]byte, 1)); {
	case n > 0:
		return nil, &rpcError{code: rpcInternal, message: "more than one message in a call that takes one"}
	case err != io.EOF:
		return nil, cutMessage(err)
	case prefix[0] != rpcCompressed:
		return message.Bytes(), nil
	case encoding != "gzip":
		return nil, &rpcError{code: rpcInternal, message: "a compressed message without grpc-encoding"}
	}
	return decompress(&message, limit)
}

func decompress(message io.Reader, limit int) ([]byte, *rpcError) {
	z, err := gzip.NewReader(message)
	var p []byte
	if err == nil {
		p, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	}
	switch {
	case err != nil:
		return nil, &rpcError{code: rpcInternal, message: "a message is not what gzip writes: " + err.Error()}
	case len(p) > limit:
		return nil, largeMessage(limit)
	}
	return p, nil
}

func largeMessage(limit int) *rpcError {
	return &rpcError{code: rpcResourceExhausted, message: fmt.Sprintf("the message is larger than %d bytes", limit)}
}

// cutMessage returns the status of a call whose message could not be read.
func cutMessage(err error) *rpcError {
	if errors.Is(err, os.ErrDeadlineExceeded) { // web.Server.ReadTimeout
		return &rpcError{code: rpcDeadlineExceeded, message: "the message did not come in time"}
	}
	return &rpcError{code: rpcInternal, message: "the call ended before its message did"}
}

// rpcFrame returns a message with its prefix.
func rpcFrame(message []byte) []byte {
	dst := make([]byte, rpcPrefix, rpcPrefix+len(message))
	binary.BigEndian.PutUint32(dst[1:], uint32(len(message)))
	return append(dst, message...)
}

// timeoutUnits are the units of grpc-timeout.
var timeoutUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// parseTimeout parses a grpc-timeout: one to eight digits and a unit.
func parseTimeout(text string) (timeout time.Duration, ok bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	last := len(text) - 1
	unit := timeoutUnits[text[last]]
	n, err := strconv.ParseUint(text[:last], 10, 32)
	if unit == 0 || err != nil {
		return 0, false
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}

// percentEncoded returns a grpc-message, which has ASCII only.
func percentEncoded(message string) string {
	var dst []byte
	for i := range len(message) {
		if c := message[i]; c < 0x20 || c > 0x7e || c == '%' {
			dst = fmt.Appendf(dst, "%%%02X", c)
		} else {
			dst = append(dst, c)
		}
	}
	return string(dst)
}
