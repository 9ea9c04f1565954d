package h1

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
