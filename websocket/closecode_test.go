package websocket

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// Autobahn 7.7.* and 7.9.*, and every border between them.
func TestStatusCodeMayTravel(t *testing.T) {
	valid := func(c int) bool {
		return c >= 1000 && c <= 1003 || c >= 1007 && c <= 1014 || c >= 3000 && c <= 4999
	}
	for c := range 1 << 16 {
		if got := StatusCode(c).mayTravel(); got != valid(c) {
			t.Fatalf("status %d: may travel is %v, want %v", c, got, valid(c))
		}
	}
}

func TestStatusCodeString(t *testing.T) {
	for code, want := range map[StatusCode]string{
		StatusNormalClosure:    "1000 (normal closure)",
		StatusNoStatusReceived: "1005 (no status received)",
		StatusTryAgainLater:    "1013 (try again later)",
		StatusTLSHandshake:     "1015 (TLS handshake)",
		999:                    "999",
		1016:                   "1016",
		4001:                   "4001",
	} {
		if got := code.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCloseErrorText(t *testing.T) {
	for want, err := range map[string]error{
		`websocket: closed with status 1001 (going away)`:              &CloseError{Code: StatusGoingAway},
		`websocket: closed with status 4000: "bye\n"`:                  &CloseError{Code: 4000, Reason: "bye\n"},
		`websocket: peer sent a close frame with half a status code`:   parseCloseErr("x"),
		`websocket: peer sent a close frame with invalid status 1005`:  parseCloseErr("\x03\xed"),
		`websocket: peer sent a close reason that is not UTF-8`:        parseCloseErr("\x03\xe8\xff"),
		`websocket: peer sent a close frame with invalid status 65535`: parseCloseErr("\xff\xff\xff"),
		`websocket: closed with status 1008 (policy violation): "token used"`: &CloseError{StatusPolicyViolation,
			"token used"},
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func parseCloseErr(body string) error {
	_, _, err := parseCloseBody([]byte(body))
	return err
}

func TestCloseStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want StatusCode
	}{
		{nil, 0},
		{io.ErrUnexpectedEOF, 0},
		{&CloseError{Code: StatusGoingAway}, StatusGoingAway},
		{fmt.Errorf("session 7: %w", &CloseError{Code: 4242}), 4242},
		{errors.Join(io.EOF, violated(StatusMessageTooBig, "sent too much")), StatusMessageTooBig},
	} {
		if got := CloseStatus(c.err); got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
	}
}

// Autobahn 7.3.* and 7.5.1: empty, one byte, code alone, longest reason, reason that is not UTF-8.
func TestParseCloseBody(t *testing.T) {
	longest := strings.Repeat("*", maxReason)
	for _, c := range []struct {
		body   string
		code   StatusCode
		reason string
		status StatusCode // of the violation, 0: none
	}{
		{body: "", code: StatusNoStatusReceived},
		{body: "a", status: StatusProtocolError},
		{body: "\x03\xe8", code: StatusNormalClosure},
		{body: "\x03\xe8Hello World!", code: StatusNormalClosure, reason: "Hello World!"},
		{body: "\x13\x87" + longest, code: 4999, reason: longest},
		{body: "\x03\xe8κόσμε\xed\xa0\x80edited", status: StatusInvalidFramePayloadData},
		{body: "\x03\xe8\xe2\x82", status: StatusInvalidFramePayloadData},
		{body: "\x03\xee", status: StatusProtocolError},
	} {
		code, reason, err := parseCloseBody([]byte(c.body))
		if CloseStatus(err) != c.status || err == nil && (code != c.code || string(reason) != c.reason) {
			t.Errorf("%q: got %d, %q, %v", c.body, code, reason, err)
		}
	}
}

func TestCloseBodyRoundTrip(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"", ""},
		{"server restarts", "server restarts"},
		{strings.Repeat("a", 200), strings.Repeat("a", maxReason)},
		{strings.Repeat("a", 122) + "é", strings.Repeat("a", 122)},
		{strings.Repeat("你", 60), strings.Repeat("你", 41)},
		{"bad \xff byte", "bad \uFFFD byte"},
		{strings.Repeat("\xff", 124), strings.Repeat("\uFFFD", 41)},
	} {
		body := appendCloseBody(nil, StatusGoingAway, c.reason)
		code, reason, err := parseCloseBody(body)
		if err != nil || code != StatusGoingAway || string(reason) != c.want {
			t.Errorf("%q: came back as %d, %q, %v", c.reason, code, reason, err)
		}
		if len(body) > maxControl || !utf8.Valid(reason) {
			t.Errorf("%q: %d bytes, too many or not UTF-8", c.reason, len(body))
		}
	}
	for _, code := range []StatusCode{0, StatusNoStatusReceived} {
		if body := appendCloseBody(nil, code, "unsaid"); len(body) != 0 {
			t.Errorf("status %d: got body %x, want an empty one", code, body)
		}
	}
}
