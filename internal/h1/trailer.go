package h1

// ParseTrailer parses the trailer section after a last chunk (RFC 9112 section 7.1.2), with its
// final CRLF, and appends its fields to fields. n and err are as with ParseRequest; a section
// without fields takes two bytes. Limits.LineBytes has no meaning here. Fields that must not be in
// a trailer section are left out.
func ParseTrailer(p []byte, lim Limits, fields []Field) (n int, all []Field, err error) {
	s := Scan{}
	start := len(fields)
	n, e := s.trailers(p, lim, &fields)
	if e != nil {
		return 0, fields[:start], e
	}
	if n == 0 {
		return 0, fields[:start], nil
	}
	return n, fields, nil
}

// Trailer is to ParseTrailer what Scan.Request is to ParseRequest.
func (s *Scan) Trailer(p []byte, lim Limits) (ready bool, err error) {
	n, e := s.trailers(p, lim, nil)
	if e != nil {
		return false, e
	}
	return n > 0, nil
}

func (s *Scan) trailers(p []byte, lim Limits, out *[]Field) (n int, err *Error) {
	lim = lim.orDefaults()
	if len(p) > lim.HeadBytes {
		p = p[:lim.HeadBytes]
	}
	s.trailer = true
	return s.fields(p, lim, out)
}

// forbiddenTrailer tells the fields of framing, routing, request modifiers, authentication,
// response control and content (RFC 9110 section 6.5.1), the list that
// golang.org/x/net/http/httpguts has.
func forbiddenTrailer(name []byte) bool {
	if len(name) > 3 && fold(name[:3], "if-") {
		return true
	}
	switch CanonicalName(name) {
	case "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
		"Content-Type", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Range", "Realm", "Te", "Trailer", "Transfer-Encoding",
		"Www-Authenticate":
		return true
	}
	return false
}
