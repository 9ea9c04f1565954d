package wire

import (
	"cmp"
	"math"
	"strings"
)

var (
	errArrayLine     = &ProtocolError{"too big mbulk count string"}
	errArrayLength   = &ProtocolError{"invalid multibulk length"}
	errStrangerArray = &ProtocolError{"unauthenticated multibulk length"}
	errBulkLine      = &ProtocolError{"too big bulk count string"}
	errBulkLength    = &ProtocolError{"invalid bulk length"}
	errStrangerBulk  = &ProtocolError{"unauthenticated bulk length"}
	errInlineLine    = &ProtocolError{"too big inline request"}
	errQuotes        = &ProtocolError{"unbalanced quotes in request"}
)

// ParseCommand parses the first command of p with the grammar of a connection that may send
// everything, as Grammar.Parse does.
func ParseCommand(p []byte, args [][]byte, l Limits) (n int, _ [][]byte, err error) {
	g := NewGrammar(l, false)
	return g.Parse(p, args)
}

// A Grammar is what commands of a connection must keep to.
type Grammar struct {
	Limits
	// counts is how many arguments may be announced, and early says that no more bytes than Bytes
	// may be. Limits that are defaults refuse what comes, not what is announced, as Redis allows
	// more.
	counts int
	early  bool
	// stranger says that the connection has to authenticate first.
	stranger bool
}

// NewGrammar makes a Grammar. A stranger has to authenticate first: until then a command has at
// most 10 arguments of at most 16 KiB.
func NewGrammar(l Limits, stranger bool) Grammar {
	return Grammar{Limits: l.filled(), counts: cmp.Or(l.Args, math.MaxInt32), early: l.Bytes > 0, stranger: stranger}
}

// Parse parses the first command of p: an array of strings, or an inline command, which is a line
// of words. It appends the arguments to args. They are views on p, except those of a line that have
// quotes. n is how many bytes the command takes; 0 says that it is incomplete. Without arguments it
// is to be skipped: an empty line, or an array without elements. The errors are *ProtocolError.
func (g *Grammar) Parse(p []byte, args [][]byte) (n int, _ [][]byte, err error) {
	if len(p) == 0 {
		return 0, args, nil
	}
	if p[0] != '*' {
		return parseInline(p, args)
	}
	count, pos := shortArray(p)
	if pos == 0 || count > g.counts {
		if count, pos, err = g.arrayHeader(p); pos == 0 || err != nil {
			return 0, args, err
		}
	}
	before := args
	for ; count > 0; count-- {
		if len(args)-len(before) == g.Args {
			return 0, before, errArrayLength
		}
		size, n := shortBulk(p[pos:])
		if n == 0 || size > g.Bulk || size > g.Bytes-pos-n-2 {
			if size, n, err = g.bulkHeader(p[pos:], pos); err != nil {
				return 0, before, err
			}
			if n == 0 {
				return 0, before, g.incomplete(p)
			}
		}
		pos += n
		end := pos + size
		if len(p)-2 < end {
			return 0, before, g.incomplete(p)
		}
		if end > g.Bytes-2 {
			return 0, before, errBulkLength
		}
		args = append(args, p[pos:end:end])
		pos = end + 2
	}
	return pos, args, nil
}

// incomplete refuses p, the part of a command that has come, if it is as long as a whole one may
// be.
func (g *Grammar) incomplete(p []byte) error {
	if len(p) >= g.Bytes {
		return errBulkLength
	}
	return nil
}

// shortArray reads the first line of a command of 1 to 9 arguments, which a stranger may send, too.
// n is 0 for any other line.
func shortArray(p []byte) (count, n int) {
	if len(p) < 4 || p[2] != '\r' || p[1]-'1' > 8 {
		return 0, 0
	}
	return int(p[1] - '0'), 4
}

// shortBulk reads the line in front of an argument of less than 100 bytes, which a stranger may
// send, too. n is 0 for any other line.
func shortBulk(p []byte) (size, n int) {
	if len(p) < 5 || p[0] != '$' {
		return 0, 0
	}
	tens, ones := p[1]-'0', p[2]-'0'
	switch {
	case tens > 9:
	case p[2] == '\r':
		return int(tens), 4
	case tens > 0 && ones <= 9 && p[3] == '\r':
		return int(tens)*10 + int(ones), 5
	}
	return 0, 0
}

// arrayHeader reads the first line of a command that is an array. n is its length, 0: incomplete.
func (g *Grammar) arrayHeader(p []byte) (count, n int, err error) {
	v, n, ok := header(p)
	switch {
	case n == 0 && len(p) > maxLine:
		return 0, 0, errArrayLine
	case n == 0:
		return 0, 0, nil
	case !ok || v > int64(g.counts):
		return 0, 0, errArrayLength
	case v > strangerArgs && g.stranger:
		return 0, 0, errStrangerArray
	}
	return int(max(v, 0)), n, nil
}

// bulkHeader reads the line in front of an argument, which begins at pos in its command.
func (g *Grammar) bulkHeader(p []byte, pos int) (size, n int, err error) {
	v, n, ok := header(p)
	switch {
	case n == 0 && len(p) > maxLine && pos+maxLine < g.Bytes:
		return 0, 0, errBulkLine
	case n == 0:
		return 0, 0, nil
	case n > g.Bytes-pos:
		return 0, 0, errBulkLength
	case p[0] != '$':
		got := p[0]
		if got == '\r' || got == '\n' {
			got = ' ' // it would end the line of the answer
		}
		return 0, 0, &ProtocolError{"expected '$', got '" + string([]byte{got}) + "'"}
	case !ok || v < 0 || v > int64(g.Bulk) || g.early && v > int64(g.Bytes-pos-n-2):
		return 0, 0, errBulkLength
	case v > strangerBulk && g.stranger:
		return 0, 0, errStrangerBulk
	}
	return int(v), n, nil
}

// quickDigits is how many digits header reads without looking for the line's end first.
const quickDigits = 9

// header reads a line of a type byte and a number at the start of p. n is the length of the line
// with its end, 0: it has not come completely. As in Redis the byte behind the CR may be any.
func header(p []byte) (v int64, n int, ok bool) {
	i := 1
	for ; i < len(p) && i <= quickDigits && p[i]-'0' <= 9; i++ {
		v = v*10 + int64(p[i]-'0')
	}
	if i > 1 && i+1 < len(p) && p[i] == '\r' && p[0] != 0 && (p[1] != '0' || i == 2) {
		return v, i + 2, true
	}
	end, found := find('\r', p, 0)
	if !found || end+1 >= len(p) {
		return 0, 0, false
	}
	if end == 0 {
		return 0, 2, false
	}
	v, ok = ParseInt(p[1:end])
	return v, end + 2, ok
}

// find is the index of the first c in p, from from on, or where to search on when more has come. As
// in Redis a NUL before it hides it, and so does a line that is too long.
func find(c byte, p []byte, from int) (at int, found bool) {
	for at = from; at < len(p) && at <= maxLine; at++ {
		if p[at] == c {
			return at, true
		}
		if p[at] == 0 {
			break
		}
	}
	return at, false
}

// PeekName is the name of the command at the start of p. It is nil if the name has not come, is
// longer than most bytes, or is that of an inline command.
func PeekName(p []byte, most int) []byte {
	if len(p) == 0 || p[0] != '*' {
		return nil
	}
	_, n, ok := header(p)
	if n == 0 || !ok || n >= len(p) {
		return nil
	}
	size, m, ok := header(p[n:])
	if m == 0 || !ok || size < 0 || size > int64(most) || int64(len(p)-n-m) < size {
		return nil
	}
	return p[n+m:][:size]
}

// A CommandScan finds the end of a command that comes in parts, without looking at any byte twice.
// The zero value begins with a command.
type CommandScan struct {
	left     int // arguments still to come
	done     int // and those before
	pos      int // where the next line begins; it may lie behind what has come
	searched int // up to here from pos there is no end of the line
	begun    bool
}

// Complete reports whether p, which is all that has come of the command, has its end. It fails in
// the same cases as Grammar.Parse, and with the same errors. p must not be empty.
func (s *CommandScan) Complete(p []byte, g *Grammar) (bool, error) {
	if p[0] != '*' {
		var found bool
		s.searched, found = find('\n', p, s.searched)
		if !found && len(p) > maxLine {
			return false, errInlineLine
		}
		return found, nil
	}
	if !s.begun {
		if !s.line(p) && len(p) <= maxLine {
			return false, nil
		}
		count, n, err := g.arrayHeader(p)
		if n == 0 || err != nil {
			return false, err
		}
		s.left, s.pos, s.searched, s.begun = count, n, 0, true
	}
	for ; s.left > 0; s.left-- {
		switch {
		case s.pos > len(p):
			return false, g.incomplete(p)
		case s.pos > g.Bytes:
			return false, errBulkLength
		case s.done == g.Args:
			return false, errArrayLength
		}
		if s.pos == len(p) || !s.line(p[s.pos:]) && len(p)-s.pos <= maxLine {
			return false, g.incomplete(p)
		}
		size, n, err := g.bulkHeader(p[s.pos:], s.pos)
		if err != nil {
			return false, err
		}
		if n == 0 {
			return false, g.incomplete(p)
		}
		s.pos, s.searched = s.pos+n+size+2, 0
		s.done++
	}
	if s.pos > len(p) {
		return false, g.incomplete(p)
	}
	return true, nil
}

// line reports whether p has the end of its line.
func (s *CommandScan) line(p []byte) bool {
	at, found := find('\r', p, s.searched)
	s.searched = at
	return found && at+1 < len(p)
}

// parseInline parses a line of words, as people type it.
func parseInline(p []byte, args [][]byte) (n int, _ [][]byte, err error) {
	end, found := find('\n', p, 0)
	switch {
	case !found && len(p) > maxLine:
		return 0, args, errInlineLine
	case !found:
		return 0, args, nil
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
		word, rest, ok := unquote(append([]byte{}, line[:n]...), line[n+1:], line[n])
		if !ok || len(rest) > 0 && !isSpace(rest[0]) {
			return before, false
		}
		args, line = append(args, word), rest
	}
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
			c = line[1]
			if i := strings.IndexByte("nrtba", c); i >= 0 {
				c = "\n\r\t\b\a"[i]
			}
			word = append(word, c)
			line = line[2:]
		default:
			word = append(word, c)
			line = line[1:]
		}
	}
	return nil, nil, false
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
