package h1

// A section is what the fields of a head said, so that they need not be read again when they come behind another request line: a client
// that asks often asks with the same fields most of the time, and so do others of its kind.
type section struct {
	text   string // the field lines and the empty line behind them; "": nothing is remembered
	fields int    // lines
	host   []byte
	Framing
	expect100, expectNot bool
}

// Remember has ParseRequest know the fields of h, which it has just parsed, when they come again: then it sets Repeats instead of Fields. text
// is the bytes from h.Section to the end of the head. It reports false, and has forgotten what it knew, for the rare head whose fields could
// mean something else behind another request line.
func (h *Head) Remember(text string) bool {
	k := &h.known
	if k.text = ""; !h.mayRepeat() || len(h.Fields) == 0 {
		return false
	}
	k.text, k.fields, k.host = text, len(h.Fields), append(k.host[:0], h.Host...)
	k.Framing, k.expect100, k.expectNot = h.Framing, h.Expect100, h.ExpectNot
	return true
}

// mayRepeat reports whether the fields mean the same behind each request line of their version for which it is true.
func (h *Head) mayRepeat() bool { return h.Form == Origin && string(h.Method) != "CONNECT" }

// repeated fills h in, if it is there, when the fields that follow the request line are known, and returns where they end; else 0.
func (s *Scan) repeated(p []byte, lim Limits, h *Head) (n int) {
	if h == nil {
		return 0
	}
	h.Section = s.line
	k := &h.known
	n = s.line + len(k.text)
	if k.text == "" || k.fields > lim.Fields || n > len(p) || string(p[s.line:n]) != k.text || k.Minor != int(s.minor) || !h.mayRepeat() {
		return 0
	}
	h.Host, h.Framing, h.Expect100, h.ExpectNot, h.Repeats = k.host, k.Framing, k.expect100, k.expectNot, true
	return n
}
