package h2

import (
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/hpack"
)

// A Head is what a field block says that begins a message. Its strings may be kept; Fields is the
// caller's again when the call that has handed the Head over returns.
type Head struct {
	Method, Scheme, Authority, Path string
	Protocol                        string // of an extended CONNECT (RFC 8441)
	Status                          int    // of a response
	Length                          int64  // Content-Length; -1: there is none
	// Fields are in order, with names in lower case, without pseudo-fields and Host. The pieces of
	// Cookie are one field.
	Fields []hpack.Field
	// Priority is what the client wants; a request that says nothing is incremental, so that
	// clients without priorities have their responses in turns.
	Priority Priority
	// TooLarge says that the list was larger than allowed. Only what came before that is here, and
	// nothing was checked.
	TooLarge bool
}

func malformed(reason string) error { return &Error{Code: ProtocolError, Reason: reason} }

// Request fills h by the fields of a request and refuses what RFC 9113 section 8 calls malformed.
// The Stream of an error is left for the caller. It changes fields.
func (h *Head) Request(fields []hpack.Field) error {
	*h = Head{Length: -1, Priority: unsaidPriority}
	rest, err := h.pseudo(fields, true)
	if err != nil {
		return err
	}
	if h.Fields, err = h.regular(rest, true); err != nil {
		return err
	}
	return h.checkTarget()
}

// Response fills h by the fields of a response.
func (h *Head) Response(fields []hpack.Field) (err error) {
	*h = Head{Length: -1}
	rest, err := h.pseudo(fields, false)
	if err != nil {
		return err
	}
	if h.Status == 0 {
		return malformed("a response has no :status")
	}
	h.Fields, err = h.regular(rest, false)
	return err
}

// Trailers refuses trailers that are malformed (sections 8.1 and 8.2).
func Trailers(fields []hpack.Field) error {
	for _, f := range fields {
		if strings.HasPrefix(f.Name, ":") {
			return malformed("a trailer is a pseudo-field")
		}
		if err := checkField(f); err != nil {
			return err
		}
	}
	return nil
}

// pseudo takes the pseudo-fields, which come first (section 8.3).
func (h *Head) pseudo(fields []hpack.Field, request bool) (rest []hpack.Field, err error) {
	noAuthority := false // :authority is there, and empty
	for i, f := range fields {
		if !strings.HasPrefix(f.Name, ":") {
			return fields[i:], nil
		}
		var into *string
		switch {
		case !request && f.Name == ":status":
			if h.Status != 0 {
				return nil, malformed(":status is repeated")
			}
			if h.Status = parseStatus(f.Value); h.Status == 0 {
				return nil, malformed(":status is not a final or interim status")
			}
			continue
		case !request:
		case f.Name == ":method":
			into = &h.Method
		case f.Name == ":scheme":
			into = &h.Scheme
		case f.Name == ":authority":
			into = &h.Authority
		case f.Name == ":path":
			into = &h.Path
		case f.Name == ":protocol":
			into = &h.Protocol
		}
		switch {
		case into == nil:
			return nil, malformed("a pseudo-field is unknown")
		case *into != "" || into == &h.Authority && noAuthority:
			return nil, malformed("a pseudo-field is repeated")
		case f.Value == "" && f.Name != ":authority":
			return nil, malformed("a pseudo-field is empty")
		case !plainValue(f.Value):
			return nil, malformed("a pseudo-field has characters that it must not have")
		}
		*into = f.Value
		noAuthority = noAuthority || into == &h.Authority && f.Value == ""
	}
	return nil, nil
}

// parseStatus returns 0 for what is no status. Section 8.6: there is no 101.
func parseStatus(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 3 || n < 100 || n == 101 {
		return 0
	}
	return n
}

// regular checks the other fields and takes what h has a place for. It works in place.
func (h *Head) regular(fields []hpack.Field, request bool) ([]hpack.Field, error) {
	kept, cookie, host, hasHost := fields[:0], -1, "", false
	var cookies strings.Builder // from the second on
	for _, f := range fields {
		if err := checkField(f); err != nil {
			return nil, err
		}
		switch f.Name {
		case "content-length":
			n, err := strconv.ParseUint(f.Value, 10, 63)
			if err != nil || f.Value[0] == '+' || h.Length >= 0 && h.Length != int64(n) {
				return nil, malformed("Content-Length is not one number")
			}
			if h.Length >= 0 {
				continue // the same again
			}
			h.Length = int64(n)
		case "host":
			if !request {
				break
			}
			// section 8.3.1: it must not differ from :authority
			if hasHost || h.Authority != "" && !strings.EqualFold(f.Value, h.Authority) {
				return nil, malformed("Host is repeated, or differs from :authority")
			}
			host, hasHost = f.Value, true
			continue
		case "cookie":
			if request && cookie >= 0 { // section 8.2.3
				if cookies.Len() == 0 {
					cookies.WriteString(kept[cookie].Value)
				}
				cookies.WriteString("; " + f.Value)
				continue
			}
			cookie = len(kept)
		case "priority":
			h.Priority = ParsePriority(f.Value)
		}
		kept = append(kept, f)
	}
	if cookies.Len() > 0 {
		kept[cookie].Value = cookies.String()
	}
	if h.Authority == "" {
		h.Authority = host
	}
	return kept, nil
}

// checkTarget is section 8.3.1, 8.5 and RFC 8441 section 4.
func (h *Head) checkTarget() error {
	switch {
	case h.Method == "" || !httpguts.ValidHeaderFieldName(h.Method):
		return malformed(":method is missing, or no token")
	case strings.Contains(h.Authority, "@") || !httpguts.ValidHostHeader(h.Authority):
		return malformed("the authority is malformed")
	case h.Protocol != "" && h.Method != "CONNECT":
		return malformed(":protocol without CONNECT")
	case h.Method == "CONNECT" && h.Protocol == "":
		if h.Scheme != "" || h.Path != "" || h.Authority == "" {
			return malformed("CONNECT has :scheme or :path, or no :authority")
		}
		return nil
	case h.Scheme == "" || h.Path == "":
		return malformed(":scheme or :path is missing")
	case h.Path == "*" && h.Method == "OPTIONS":
	case h.Path[0] != '/':
		return malformed(":path does not begin with a slash")
	}
	return nil
}

// checkField is section 8.2: names in lower case, plain values, and no field that belongs to a
// connection of HTTP/1.
func checkField(f hpack.Field) error {
	if !validName(f.Name) {
		return malformed("a field's name is empty, not in lower case, or no token")
	}
	if !validValue(f.Value) {
		return malformed("a field's value has characters that it must not have")
	}
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return malformed("a field belongs to a connection of HTTP/1")
	case "te":
		if !strings.EqualFold(f.Value, "trailers") {
			return malformed("TE is not trailers")
		}
	}
	return nil
}

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			return false
		}
	}
	return httpguts.ValidHeaderFieldName(s)
}

// validValue is section 8.2.1, and RFC 9110 section 5.5: no control characters.
func validValue(s string) bool {
	if s == "" {
		return true
	}
	if blank(s[0]) || blank(s[len(s)-1]) {
		return false
	}
	return httpguts.ValidHeaderFieldValue(s)
}

func blank(b byte) bool { return b == ' ' || b == '\t' }

// plainValue reports whether a pseudo-field has visible characters only.
func plainValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}
