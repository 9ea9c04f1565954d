package h1

import "bytes"

// A Field is one line of a head or trailer section, as views of the input.
type Field struct {
	Name  []byte // a token, as received
	Value []byte // without whitespace around it; no control character but the tab
}

// Is reports whether the field has the name lower, in any case. lower holds lower-case letters,
// digits and hyphens only.
func (f Field) Is(lower string) bool { return fold(f.Name, lower) }

// A Form says how a request names its target (RFC 9112 section 3.2).
type Form uint8

const (
	Origin    Form = iota // "/path?query"
	Absolute              // "http://host/path"
	Authority             // "host:port", with CONNECT only
	Asterisk              // "*"
)

// Head is the head of a request. Its slices are views of the parsed bytes and valid as long as
// those; the slice Fields is used again by the next parse into the same Head. If FieldsCached is
// set, Host is valid until the next CacheFields.
type Head struct {
	Method, Target []byte
	Host           []byte // of the target if that has one, as RFC 9112 section 3.2.2 demands, else the Host field
	Fields         []Field
	Framing
	Form         Form
	Expect100    bool // the client waits for 100 Continue before it sends the body; never in HTTP/1.0
	ExpectNot    bool // an expectation that is not known: answer 417
	FieldsCached bool // the fields are those of CacheFields, and Fields is empty
	LineCached   bool // the request line is that of CacheLine, too
	Section      int  // where the fields begin: how many bytes are before them
	cache        headCache
}

// Framing is what the fields say about the message's body and the connection after it.
type Framing struct {
	Major, Minor  int   // 1 and 0 to 9
	ContentLength int64 // -1: none was given
	Chunked       bool  // then ContentLength is -1
	KeepAlive     bool  // the peer will go on after this message
	Upgrade       bool  // the peer offers or announces what the Upgrade field names; never in HTTP/1.0
}

// Limits bounds one head or one trailer section. The zero value means the defaults; a negative
// value counts as zero. Beyond HeadBytes or Fields a head is refused with 431, beyond LineBytes
// with 414, as soon as that is certain.
type Limits struct {
	HeadBytes int // all of the head with its final CRLF; default DefaultHeadBytes, at most MaxHeadBytes
	LineBytes int // the request or status line without CRLF; default DefaultLineBytes
	Fields    int // field lines; default DefaultFields
}

const (
	DefaultHeadBytes = 64 << 10
	DefaultLineBytes = 16 << 10 // RFC 9112 section 3 asks for 8,000 at least
	DefaultFields    = 256
	MaxHeadBytes     = 64 << 20 // what a larger Limits.HeadBytes is cut to

	MaxEmptyLines = 4 // before a request line; the fifth is refused with ErrEmptyLines
)

func (l Limits) orDefaults() Limits {
	if l.HeadBytes <= 0 {
		l.HeadBytes = DefaultHeadBytes
	}
	if l.LineBytes <= 0 {
		l.LineBytes = DefaultLineBytes
	}
	if l.Fields <= 0 {
		l.Fields = DefaultFields
	}
	l.HeadBytes = min(l.HeadBytes, MaxHeadBytes)
	return l
}

// Reset drops all views, so that a Head kept for later does not hold the input.
func (h *Head) Reset() {
	clear(h.Fields[:cap(h.Fields)])
	*h = Head{Fields: h.Fields[:0]}
}

// ParseRequest parses the request head at the start of p into h. n > 0: the head took n bytes. n ==
// 0 and err == nil: all of p belongs to a head that is not complete. err is always an *Error. h is
// of use only with n > 0.
func ParseRequest(p []byte, lim Limits, h *Head) (n int, err error) {
	h.Fields, h.FieldsCached, h.LineCached = h.Fields[:0], false, false
	if n := h.cachedHead(p, lim); n > 0 {
		return n, nil
	}
	var s Scan
	n, e := s.request(p, lim, h)
	if e != nil {
		return 0, e
	}
	return n, nil
}

// Preface is the head of an HTTP/2 connection preface (RFC 9113 section 3.4); "SM", CRLF and CRLF
// follow it.
const Preface = "PRI * HTTP/2.0\r\n\r\n"

// ParsePreface is ParseRequest for input that has made that return ErrPreface, for a server that
// leaves HTTP/2 to its handlers: it gives a head with the method "PRI" and no fields. n and err are
// as with ParseRequest.
func ParsePreface(p []byte, h *Head) (n int, err error) {
	if got := min(len(p), len(Preface)); string(p[:got]) != Preface[:got] {
		return 0, ErrPreface
	} else if got < len(Preface) {
		return 0, nil
	}
	*h = Head{Method: p[:3:3], Target: p[4:5:5], Form: Asterisk, Fields: h.Fields[:0],
		Framing: Framing{Major: 2, ContentLength: -1}}
	return len(Preface), nil
}

// EmptyLines returns how many bytes of complete empty lines p starts with. ParseRequest skips up to
// MaxEmptyLines of them before a request line (RFC 9112 section 2.2). A server that discards them
// at once keeps nothing for a client that ends its body with a CRLF too many; it counts them itself
// then.
func EmptyLines(p []byte) int {
	n := 0
	for len(p) >= n+2 && p[n] == '\r' && p[n+1] == '\n' {
		n += 2
	}
	return n
}

// request reads on from where s stands. h may be nil; then the head is only checked.
func (s *Scan) request(p []byte, lim Limits, h *Head) (n int, err *Error) {
	lim = lim.orDefaults()
	if len(p) > lim.HeadBytes {
		p = p[:lim.HeadBytes]
	}
	if !s.started {
		line, err := s.firstLine(p, lim)
		if err == errControl && s.line == 0 {
			err = helloOr(err, p, lim)
		}
		if line == nil || err != nil {
			return 0, err
		}
		if err := s.requestLine(line, h); err != nil {
			return 0, err
		}
		if h != nil {
			h.Section = s.line
		}
		if s.bare {
			return s.line, s.finishRequest(h)
		}
		if n := s.cachedFields(p, lim, h); n > 0 {
			return n, nil
		}
	}
	var fields *[]Field
	if h != nil {
		fields = &h.Fields
	}
	n, err = s.fields(p, lim, fields)
	if n == 0 || err != nil {
		return 0, err
	}
	return n, s.finishRequest(h)
}

// helloOr is err, or ErrTLS if p begins as a TLS client does: with a record of type handshake (22)
// of version 3.x (RFC 8446 section 5.1). It is nil while p may still become one.
func helloOr(err *Error, p []byte, lim Limits) *Error {
	const handshake, major = 22, 3
	switch {
	case p[0] != handshake:
	case len(p) > 1 && p[1] == major:
		return ErrTLS
	case len(p) == 1 && lim.HeadBytes > 1:
		return nil
	}
	return err
}

// requestLine = method SP request-target SP HTTP-version (RFC 9112 section 3), exactly one SP each.
func (s *Scan) requestLine(line []byte, h *Head) *Error {
	sp := 0
	for sp < len(line) && class[line[sp]]&isToken != 0 {
		sp++
	}
	if sp == 0 || sp == len(line) || line[sp] != ' ' {
		return errMethod
	}
	method, rest := line[:sp], line[sp+1:]
	sp = bytes.IndexByte(rest, ' ')
	if sp <= 0 {
		return errRequestLine
	}
	target, version := rest[:sp], rest[sp+1:]
	if err := s.version(version); err != nil {
		if err == errVersionNew && s.atStart && string(line) == "PRI * HTTP/2.0" {
			return ErrPreface
		}
		return err
	}
	s.connect = string(method) == "CONNECT"
	form, host, err := targetForm(method, target)
	if err != nil {
		return err
	}
	if h != nil {
		h.Method, h.Target, h.Form, h.Host = method, target, form, host
	}
	return nil
}

// version reads HTTP-version (RFC 9112 section 2.3), which is case-sensitive and has one digit
// each. A higher minor version is served as what it must be compatible with (RFC 9110 section 2.5).
func (s *Scan) version(v []byte) *Error {
	if string(v) == "HTTP/1.1" {
		s.minor = 1
		return nil
	}
	if len(v) != len("HTTP/1.1") || string(v[:5]) != "HTTP/" || v[6] != '.' || !isDigit(v[5]) || !isDigit(v[7]) {
		return errVersion
	}
	if v[5] != '1' {
		return errVersionNew
	}
	s.minor = v[7] - '0'
	return nil
}

func isDigit(c byte) bool { return c-'0' < 10 }

// finishRequest checks what only the whole head can tell, and fills in h.
func (s *Scan) finishRequest(h *Head) *Error {
	// "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message
	// that lacks a Host header field" (RFC 9112 section 3.2). CONNECT carries the same in its
	// target; net/http lets it pass, so do we.
	if s.host == 0 && s.minor > 0 && !s.connect {
		return errHostMissing
	}
	if s.chunked && s.badTrailer {
		return errTrailerKey
	}
	if h == nil {
		return nil
	}
	if h.Host == nil && s.host > 0 {
		h.Host = h.Fields[s.host-1].Value
	}
	h.Framing = s.framing()
	h.Expect100 = s.expect100 && s.minor > 0
	h.ExpectNot = s.expectNot
	return nil
}

// A headCache is what the fields of the last cached head said. A client mostly sends the same
// fields with each request, and so do other clients of its kind: a byte-identical copy is not
// parsed again.
type headCache struct {
	text   string // the field lines and the empty line behind them; "": the cache is empty
	fields int    // lines
	host   []byte
	Framing
	expect100, expectNot bool

	line           string // a request line before them, with its CRLF; "": none is cached
	method, target int    // their lengths in line
}

// CacheFields makes ParseRequest recognise the fields of h, which it has just parsed: it then sets
// FieldsCached and leaves Fields empty. text is the bytes from h.Section to the end of the head. It
// returns false, and empties the cache, for a head whose fields could mean something else behind
// another request line.
func (h *Head) CacheFields(text string) bool {
	k := &h.cache
	if k.text, k.line = "", ""; !h.cacheable() || len(h.Fields) == 0 {
		return false
	}
	k.text, k.fields, k.host = text, len(h.Fields), append(k.host[:0], h.Host...)
	k.Framing, k.expect100, k.expectNot = h.Framing, h.Expect100, h.ExpectNot
	return true
}

// cacheable reports whether the fields of a head mean the same behind each cacheable request line
// of their version.
func (h *Head) cacheable() bool { return h.Form == Origin && string(h.Method) != "CONNECT" }

// cachedFields fills h in if the cached fields follow the request line, and returns where they end;
// otherwise it returns 0. h may be nil.
func (s *Scan) cachedFields(p []byte, lim Limits, h *Head) (n int) {
	if h == nil {
		return 0
	}
	k := &h.cache
	n = s.line + len(k.text)
	if k.text == "" || k.fields > lim.Fields || n > len(p) || string(p[s.line:n]) != k.text ||
		k.Minor != int(s.minor) || !h.cacheable() {
		return 0
	}
	h.fillCached()
	return n
}

// CacheLine makes ParseRequest recognise the whole head that it has just parsed, and for which it
// has set FieldsCached: it then sets LineCached, too. line is the bytes before h.Section.
func (h *Head) CacheLine(line string) {
	k := &h.cache
	k.line, k.method, k.target = line, len(h.Method), len(h.Target)
	if line[0] == '\r' { // an empty line
		k.line = ""
	}
}

// cachedHead fills h in if p begins with the cached head, and returns where it ends; otherwise it
// returns 0.
func (h *Head) cachedHead(p []byte, lim Limits) (n int) {
	k := &h.cache
	line := len(k.line)
	n = line + len(k.text)
	if line == 0 || n > len(p) || string(p[:line]) != k.line || string(p[line:n]) != k.text {
		return 0
	}
	if lim = lim.orDefaults(); n > lim.HeadBytes || line-len("\r\n") > lim.LineBytes || k.fields > lim.Fields {
		return 0
	}
	h.Method, h.Target = p[:k.method], p[k.method+1:][:k.target]
	h.Section, h.Form, h.LineCached = line, Origin, true
	h.fillCached()
	return n
}

// fillCached fills in what the cached fields say.
func (h *Head) fillCached() {
	k := &h.cache
	h.Host, h.Framing, h.FieldsCached = k.host, k.Framing, true
	h.Expect100, h.ExpectNot = k.expect100, k.expectNot
}
