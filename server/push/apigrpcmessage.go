package push

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

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
		WriteError(w, http.StatusHTTPVersionNotSupported, ErrBadRequest.Code,
			"gRPC needs HTTP/2: without TLS the client "+
				"begins with it, by prior knowledge")
		return false
	case !AllowMethod(w, r, http.MethodPost):
		return false
	case kind != "application/grpc" && kind != "application/grpc+proto" &&
		!strings.HasPrefix(kind, "application/grpc;"):
		WriteError(w, http.StatusUnsupportedMediaType, ErrBadRequest.Code, "the content type is not application/grpc")
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
