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
	// Fields are in order, with names in lower case, without pseudo-fields and Host. Spaces and
	// tabs at the ends of values are cut off. The pieces of Cookie are one field.
	Fields []hpack.Field
	// Dropped are the fields of a response that belong to a connection of HTTP/1. They are not
	// among Fields.
	Dropped ConnectionFields
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

// Response fills h by the fields of a response, and refuses what is malformed, except for fields of
// a connection: these are Dropped. It changes fields.
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

// Trailers refuses trailers that are malformed (sections 8.1 and 8.2), of a request or a response.
// It changes fields, and returns those to keep. dropped is as Head.Dropped.
func Trailers(fields []hpack.Field, request bool) (kept []hpack.Field, dropped ConnectionFields, err error) {
	kept = fields[:0]
	for _, f := range fields {
		if strings.HasPrefix(f.Name, ":") {
			return nil, 0, malformed("a trailer is a pseudo-field")
		}
		of, err := checkField(&f, request)
		if err != nil {
			return nil, 0, err
		}
		if dropped |= of; of == 0 {
			kept = append(kept, f)
		}
	}
	return kept, dropped, nil
}

// ConnectionFields is a set of fields that belong to a connection of HTTP/1 (section 8.2.2).
type ConnectionFields uint8

const (
	connection ConnectionFields = 1 << iota
	keepAlive
	proxyConnection
	transferEncoding
	upgrade
	te
)

// connectionField is the set of a field if it belongs to a connection of HTTP/1, and else empty. TE
// does unless it says "trailers".
func connectionField(f *hpack.Field) ConnectionFields {
	switch f.Name {
	case "connection":
		return connection
	case "keep-alive":
		return keepAlive
	case "proxy-connection":
		return proxyConnection
	case "transfer-encoding":
		return transferEncoding
	case "upgrade":
		return upgrade
	case "te":
		if f.Value != "" && !strings.EqualFold(f.Value, "trailers") {
			return te
		}
	}
	return 0
}

// OfConnection reports whether a field belongs to a connection of HTTP/1, so that no message of
// HTTP/2 may have it. name is in lower case. TE is not among them: a request may have it.
func OfConnection(name string) bool { return connectionField(&hpack.Field{Name: name}) != 0 }

// String lists the names, with commas between them.
func (s ConnectionFields) String() string {
	var names []string
	all := []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"}
	for i, name := range all {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
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
		of, err := checkField(&f, request)
		if err != nil {
			return nil, err
		}
		if of != 0 {
			h.Dropped |= of
			continue
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
// connection of HTTP/1. It cuts off spaces and tabs at the ends of the value, as RFC 9110 section
// 5.5 says; section 8.2.1 would refuse the message. In a response, drop is not 0 if the field
// belongs to a connection of HTTP/1.
func checkField(f *hpack.Field, request bool) (drop ConnectionFields, err error) {
	if !validName(f.Name) {
		return 0, malformed("a field's name is empty, not in lower case, or no token: " + quote(f.Name))
	}
	f.Value = trimBlanks(f.Value)
	if !httpguts.ValidHeaderFieldValue(f.Value) { // section 8.2.1, RFC 9110 section 5.5
		return 0, malformed("a field's value has characters that it must not have: " + quote(f.Name))
	}
	of := connectionField(f)
	if of != 0 && request {
		return 0, malformed("a field belongs to a connection of HTTP/1: " + f.Name)
	}
	return of, nil
}

// quote is the beginning of a name for an error.
func quote(name string) string {
	const most = 40
	if len(name) > most {
		return strconv.Quote(name[:most]) + "…"
	}
	return strconv.Quote(name)
}

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			return false
		}
	}
	return httpguts.ValidHeaderFieldName(s)
}

// trimBlanks cuts off spaces and tabs at the ends of a value. Most have none.
func trimBlanks(s string) string {
	if s == "" || !blank(s[0]) && !blank(s[len(s)-1]) {
		return s
	}
	return strings.Trim(s, " \t")
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
