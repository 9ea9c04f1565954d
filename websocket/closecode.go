package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// StatusCode says why a connection was closed: RFC 6455 §7.4 and the registry that it opened.
// Applications choose theirs from 4000 to 4999; 3000 to 3999 are registered by libraries and
// frameworks.
//
// https://www.iana.org/assignments/websocket/websocket.xhtml#close-code-number
type StatusCode uint16

// The registered codes. Those said to be never sent exist for reporting only: Close refuses them,
// and a peer that sends one is closed with StatusProtocolError.
const (
	StatusNormalClosure           StatusCode = 1000
	StatusGoingAway               StatusCode = 1001
	StatusProtocolError           StatusCode = 1002
	StatusUnsupportedData         StatusCode = 1003
	StatusReserved                StatusCode = 1004 // never sent
	StatusNoStatusReceived        StatusCode = 1005 // never sent: the close frame carried no code
	StatusAbnormalClosure         StatusCode = 1006 // never sent: the connection ended without a close frame
	StatusInvalidFramePayloadData StatusCode = 1007
	StatusPolicyViolation         StatusCode = 1008
	StatusMessageTooBig           StatusCode = 1009
	StatusMandatoryExtension      StatusCode = 1010
	StatusInternalError           StatusCode = 1011
	StatusServiceRestart          StatusCode = 1012
	StatusTryAgainLater           StatusCode = 1013
	StatusBadGateway              StatusCode = 1014
	StatusTLSHandshake            StatusCode = 1015 // never sent: the TLS handshake failed
)

var statusNames = [...]string{
	"normal closure",
	"going away",
	"protocol error",
	"unsupported data",
	"reserved",
	"no status received",
	"abnormal closure",
	"invalid frame payload data",
	"policy violation",
	"message too big",
	"mandatory extension",
	"internal error",
	"service restart",
	"try again later",
	"bad gateway",
	"TLS handshake",
}

// String is the number, followed by the registered name where there is one.
func (c StatusCode) String() string {
	if i := int(c) - int(StatusNormalClosure); i >= 0 && i < len(statusNames) {
		return fmt.Sprintf("%d (%s)", uint16(c), statusNames[i])
	}
	return fmt.Sprint(uint16(c))
}

// mayTravel reports whether a close frame may carry the code. §7.4.2 leaves 0-999 unused and gives
// 1000-2999 to the protocol, where what is not registered is not valid; 1004 to 1006 and 1015 "MUST
// NOT be set as a status code in a Close control frame by an endpoint" (§7.4.1).
func (c StatusCode) mayTravel() bool {
	switch {
	case c >= 3000:
		return c <= 4999
	case c >= StatusInvalidFramePayloadData:
		return c <= StatusBadGateway
	default:
		return c >= StatusNormalClosure && c <= StatusUnsupportedData
	}
}

// CloseError is the error of a connection that a close frame ended.
type CloseError struct {
	Code   StatusCode // StatusNoStatusReceived when the frame was empty
	Reason string     // UTF-8, at most 123 bytes; written by the peer, so not to be trusted
}

// Error implements error.
func (e *CloseError) Error() string {
	if e.Reason == "" {
		return "websocket: closed with status " + e.Code.String()
	}
	return fmt.Sprintf("websocket: closed with status %s: %q", e.Code, e.Reason)
}

// CloseStatus returns the code of the close frame that ended the connection: the peer's, or the one
// with which this side answered a violation of the protocol. It returns 0 when err holds none, for
// instance when it is nil or the network failed. (A browser's close event would then show
// StatusAbnormalClosure.)
func CloseStatus(err error) StatusCode {
	var closed *CloseError
	if errors.As(err, &closed) {
		return closed.Code
	}
	var broken *violation
	if errors.As(err, &broken) {
		return broken.code
	}
	return 0
}

// A violation is what the peer did wrong. It ends the connection: code goes into the close frame
// that says so, and text is fit to be its reason.
type violation struct {
	code StatusCode
	text string
}

func (v *violation) Error() string { return "websocket: peer " + v.text }

func violated(code StatusCode, format string, args ...any) error {
	return &violation{code: code, text: fmt.Sprintf(format, args...)}
}

// maxControl: "All control frames MUST have a payload length of 125 bytes or less", §5.5.
const maxControl = 125

// maxReason is what a control frame's 125 bytes leave after the code.
const maxReason = maxControl - 2

// appendCloseBody appends the payload of a close frame. StatusNoStatusReceived and 0 give an empty
// one. A reason above 123 bytes is cut, never inside a character; what is not UTF-8 in it is
// replaced.
func appendCloseBody(dst []byte, code StatusCode, reason string) []byte {
	if code == 0 || code == StatusNoStatusReceived {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	room := maxReason
	for _, r := range reason { // decoding replaces invalid bytes
		room -= utf8.RuneLen(r)
		if room < 0 {
			break
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// parseCloseBody is strict: a body is empty, or a code that may travel and a reason in UTF-8
// (§5.5.1).
func parseCloseBody(p []byte) (code StatusCode, reason []byte, err error) {
	if len(p) == 0 {
		return StatusNoStatusReceived, nil, nil
	}
	if len(p) == 1 {
		return 0, nil, violated(StatusProtocolError, "sent a close frame with half a status code")
	}
	code, reason = StatusCode(binary.BigEndian.Uint16(p)), p[2:]
	if !code.mayTravel() {
		return 0, nil, violated(StatusProtocolError, "sent a close frame with invalid status %d", uint16(code))
	}
	if !utf8.Valid(reason) {
		return 0, nil, violated(StatusInvalidFramePayloadData, "sent a close reason that is not UTF-8")
	}
	return code, reason, nil
}
