package resp

// parseInline parses a line of words, as people type it.
func (g *commandGrammar) parseInline(p []byte, args [][]byte) (n int, _ [][]byte, err error) {
	end := newline(p, 0)
	if end < 0 {
		if len(p) > maxLine {
			err = errInlineLine
		}
		return 0, args, err
	}
	line := p[:end]
	if end > 0 && line[end-1] == '\r' {
		line = line[:end-1]
	}
	args, ok := appendWords(args, line)
	if !ok {
		return 0, args, errQuotes
	}
	return end + 1, args, nil
}

// inline is complete for a line of words.
func (s *commandScan) inline(p []byte) (bool, error) {
	if newline(p, s.searched) >= 0 {
		return true, nil
	}
	for s.searched < len(p) && p[s.searched] != 0 && s.searched <= maxLine {
		s.searched++
	}
	if len(p) > maxLine {
		return false, errInlineLine
	}
	return false, nil
}

// newline is the index of the first LF in p, which lies at or behind from, or -1. As in Redis a NUL
// before it hides it.
func newline(p []byte, from int) int {
	for i := from; i < len(p) && i <= maxLine; i++ {
		if p[i] == '\n' {
			return i
		}
		if p[i] == 0 {
			break
		}
	}
	return -1
}

// appendWords splits a line as Redis does (sdssplitargs). Words in single or double quotes may have
// spaces and escapes. It returns false if a quote does not end, or if a word follows it without a
// space.
func appendWords(args [][]byte, line []byte) ([][]byte, bool) {
	before := args
	for {
		for len(line) > 0 && isSpace(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return args, true
		}
		n := 0
		for n < len(line) && !endsWord(line[n]) && line[n] != '"' && line[n] != '\'' {
			n++
		}
		if n == len(line) || endsWord(line[n]) {
			args = append(args, line[:n:n])
			line = line[n:]
			continue
		}
		word, rest, ok := quotedWord(line)
		if !ok {
			return before, false
		}
		args = append(args, word)
		line = rest
	}
}

// quotedWord reads a word that has quotes in it.
func quotedWord(line []byte) (word, rest []byte, ok bool) {
	word = []byte{}
	for len(line) > 0 && !endsWord(line[0]) {
		c := line[0]
		if c != '"' && c != '\'' {
			word = append(word, c)
			line = line[1:]
			continue
		}
		if word, line, ok = unquote(word, line[1:], c); !ok || len(line) > 0 && !isSpace(line[0]) {
			return nil, nil, false
		}
		return word, line, true
	}
	return word, line, true
}

// unquote appends what stands before the next quote, and returns what stands behind it.
func unquote(word, line []byte, quote byte) (_, rest []byte, ok bool) {
	for len(line) > 0 {
		c := line[0]
		switch {
		case c == quote:
			return word, line[1:], true
		case c == '\\' && quote == '"' && len(line) >= 4 && line[1] == 'x' && isHex(line[2]) && isHex(line[3]):
			word = append(word, hexValue(line[2])<<4|hexValue(line[3]))
			line = line[4:]
		case c == '\\' && len(line) > 1 && (quote == '"' || line[1] == '\''):
			word = append(word, unescape(line[1]))
			line = line[2:]
		default:
			word = append(word, c)
			line = line[1:]
		}
	}
	return nil, nil, false
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// endsWord is about a word without quotes, which may contain a vertical tab or a form feed.
func endsWord(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
