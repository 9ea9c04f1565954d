package h1

// ResponseHead is the head of a response, with the same rules for its slices as Head.
type ResponseHead struct {
	Status int    // 100 to 999
	Reason []byte // as it came, with its blanks; nil: not even the space before it came
	Fields []Field
	// Framing.ContentLength is -1 and Chunked false for a body that ends with the connection.
	// Whether there is a body at all depends on the request's method too: see NoBody.
	Framing
	NoBody bool // by its status (1xx, 204, 304), whatever the fields say; nor has an answer to HEAD a body
}

// Reset drops all views, so that a ResponseHead kept for later does not hold the input.
func (h *ResponseHead) Reset() {
	clear(h.Fields[:cap(h.Fields)])
	*h = ResponseHead{Fields: h.Fields[:0]}
}

// ParseResponse parses the response head at the start of p into h, and is used as ParseRequest is.
// Error.Status means nothing to a client, except that 431 and 414 tell of a limit. It is as strict
// as ParseRequest: obs-fold, bare LF and a Content-Length beside Transfer-Encoding are refused,
// which RFC 9112 allows a client to repair.
func ParseResponse(p []byte, lim Limits, h *ResponseHead) (n int, err error) {
	*h = ResponseHead{Fields: h.Fields[:0]}
	var s Scan
	n, e := s.response(p, lim, h)
	if e != nil {
		return 0, e
	}
	return n, nil
}

// Response is to ParseResponse what Scan.Request is to ParseRequest.
func (s *Scan) Response(p []byte, lim Limits) (ready bool, err error) {
	n, e := s.response(p, lim, nil)
	if e != nil {
		return false, e
	}
	return n > 0, nil
}

func (s *Scan) response(p []byte, lim Limits, h *ResponseHead) (n int, err *Error) {
	lim = lim.orDefaults()
	if len(p) > lim.HeadBytes {
		p = p[:lim.HeadBytes]
	}
	if !s.started {
		line, err := s.firstLine(p, lim)
		if line == nil || err != nil {
			return 0, err
		}
		if err := s.statusLine(line, h); err != nil {
			return 0, err
		}
	}
	var fields *[]Field
	if h != nil {
		fields = &h.Fields
	}
	n, err = s.fields(p, lim, fields)
	if n > 0 && err == nil && s.chunked && s.badTrailer {
		return 0, errTrailerKey
	}
	if n > 0 && err == nil && h != nil {
		h.Framing = s.framing()
		h.NoBody = h.Status < 200 || h.Status == 204 || h.Status == 304
	}
	return n, err
}

// statusLine = HTTP-version SP status-code SP [ reason-phrase ] (RFC 9112 section 4). Servers in
// use leave out the second SP when they have no reason.
func (s *Scan) statusLine(line []byte, h *ResponseHead) *Error {
	const code = len("HTTP/1.1 ")
	if !s.atStart || len(line) < code+3 || line[code-1] != ' ' || len(line) > code+3 && line[code+3] != ' ' {
		return errStatusLine
	}
	if err := s.version(line[:code-1]); err != nil {
		return err
	}
	status := 0
	for _, c := range line[code : code+3] {
		if !isDigit(c) {
			return errStatusLine
		}
		status = status*10 + int(c-'0')
	}
	if status < 100 {
		return errStatusLine
	}
	if h == nil {
		return nil
	}
	if h.Status = status; len(line) > code+3 {
		h.Reason = line[code+4:]
	}
	return nil
}
