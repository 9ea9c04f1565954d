package resp

import "math"

// ParseCommand parses the first command of p: an array of strings, or an inline command, which is a
// line of words. It appends the arguments to args. They are views on p, except those of a line that
// have quotes. n is how many bytes the command takes; 0 says that it is incomplete. Without
// arguments it is to be skipped: an empty line, or an array without elements.
//
// The grammar is what Redis accepts. Its errors are what Redis refuses, and in its words.
func ParseCommand(p []byte, args [][]byte, l Limits) (n int, _ [][]byte, err error) {
	g := newGrammar(l, false)
	return g.parse(p, args)
}

// A commandGrammar is what commands of a connection must keep to.
type commandGrammar struct {
	Limits
	// counts is how many arguments may be announced, and early says that no more bytes than Bytes
	// may be. Limits that are defaults refuse what comes, not what is announced, as Redis allows
	// more.
	counts int
	early  bool
	// stranger says that the connection has to authenticate first: it has smaller limits.
	stranger bool
}

func newGrammar(l Limits, stranger bool) commandGrammar {
	return commandGrammar{Limits: l.filled(), counts: or(l.Args, math.MaxInt32), early: l.Bytes > 0, stranger: stranger}
}

func (g *commandGrammar) parse(p []byte, args [][]byte) (n int, _ [][]byte, err error) {
	if len(p) == 0 {
		return 0, args, nil
	}
	if p[0] != '*' {
		return g.parseInline(p, args)
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
func (g *commandGrammar) incomplete(p []byte) error {
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
func (g *commandGrammar) arrayHeader(p []byte) (count, n int, err error) {
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
func (g *commandGrammar) bulkHeader(p []byte, pos int) (size, n int, err error) {
	v, n, ok := header(p)
	switch {
	case n == 0 && len(p) > maxLine && pos+maxLine < g.Bytes:
		return 0, 0, errBulkLine
	case n == 0:
		return 0, 0, nil
	case n > g.Bytes-pos:
		return 0, 0, errBulkLength
	case p[0] != '$':
		return 0, 0, notBulk(p[0])
	case !ok || v < 0 || v > int64(g.Bulk) || g.early && v > int64(g.Bytes-pos-n-2):
		return 0, 0, errBulkLength
	case v > strangerBulk && g.stranger:
		return 0, 0, errStrangerBulk
	}
	return int(v), n, nil
}

func notBulk(got byte) error {
	if got == '\r' || got == '\n' {
		got = ' ' // it would end the line of the answer
	}
	return &ProtocolError{"expected '$', got '" + string([]byte{got}) + "'"}
}

// A commandScan finds the end of a command that comes in parts, without looking at any byte twice.
// The zero value begins with a command.
type commandScan struct {
	left     int // arguments still to come
	done     int // and those before
	pos      int // where the next line begins; it may lie behind what has come
	searched int // up to here from pos there is no end of the line
	begun    bool
}

// complete reports whether p, which is all that has come of the command, has its end. An error is
// that of parse. In the same cases parse would say so, too.
func (s *commandScan) complete(p []byte, g *commandGrammar) (bool, error) {
	if p[0] != '*' {
		return s.inline(p)
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
func (s *commandScan) line(p []byte) bool {
	end := lineEnd(p, s.searched)
	if end >= 0 {
		s.searched = end
		return end+1 < len(p)
	}
	for s.searched < len(p) && s.searched <= maxLine && p[s.searched] != 0 {
		s.searched++
	}
	return false
}
