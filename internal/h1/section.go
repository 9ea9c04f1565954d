package h1

// A section is what the fields of a head said, so that they need not be read again when they come
// behind another request line: a client that asks often asks with the same fields most of the time,
// and so do others of its kind.
type section struct {
	text   string // the field lines and the empty line behind them; "": nothing is remembered
	fields int    // lines
	host   []byte
	Framing
	expect100, expectNot bool

	line           string // a request line before them, with its CRLF; "": none is remembered
	method, target int    // how long these are in it
}

// Remember has ParseRequest know the fields of h, which it has just parsed, when they come again:
// then it sets Repeats instead of Fields. text is the bytes from h.Section to the end of the head.
// It reports false, and has forgotten what it knew, for the rare head whose fields could mean
// something else behind another request line.
func (h *Head) Remember(text string) bool {
	k := &h.known
	if k.text, k.line = "", ""; !h.mayRepeat() || len(h.Fields) == 0 {
		return false
	}
	k.text, k.fields, k.host = text, len(h.Fields), append(k.host[:0], h.Host...)
	k.Framing, k.expect100, k.expectNot = h.Framing, h.Expect100, h.ExpectNot
	return true
}

// mayRepeat reports whether the fields mean the same behind each request line of their version for
// which it is true.
func (h *Head) mayRepeat() bool { return h.Form == Origin && string(h.Method) != "CONNECT" }

// repeated fills h in, if it is there, when the fields that follow the request line are known, and
// returns where they end; else 0.
func (s *Scan) repeated(p []byte, lim Limits, h *Head) (n int) {
	if h == nil {
		return 0
	}
	k := &h.known
	n = s.line + len(k.text)
	if k.text == "" || k.fields > lim.Fields || n > len(p) || string(p[s.line:n]) != k.text ||
		k.Minor != int(s.minor) || !h.mayRepeat() {
		return 0
	}
	h.repeat()
	return n
}

// RememberLine has ParseRequest know the head again that it has just parsed, for which it has set
// Repeats, when all of it comes again: then it sets Again, too. line is the bytes before h.Section.
func (h *Head) RememberLine(line string) {
	k := &h.known
	k.line, k.method, k.target = line, len(h.Method), len(h.Target)
	if line[0] == '\r' { // an empty line
		k.line = ""
	}
}

// again fills h in if p begins with the head that is known, and returns where it ends; else 0.
func (h *Head) again(p []byte, lim Limits) (n int) {
	k := &h.known
	line := len(k.line)
	n = line + len(k.text)
	if line == 0 || n > len(p) || string(p[:line]) != k.line || string(p[line:n]) != k.text {
		return 0
	}
	if lim = lim.orDefaults(); n > lim.HeadBytes || line-len("\r\n") > lim.LineBytes || k.fields > lim.Fields {
		return 0
	}
	h.Method, h.Target = p[:k.method], p[k.method+1:][:k.target]
	h.Section, h.Form, h.Again = line, Origin, true
	h.repeat()
	return n
}

// repeat fills in what the fields say that are known.
func (h *Head) repeat() {
	k := &h.known
	h.Host, h.Framing, h.Expect100, h.ExpectNot, h.Repeats = k.host, k.Framing, k.expect100, k.expectNot, true
}
