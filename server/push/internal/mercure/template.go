package mercure

import (
	"errors"
	"strconv"
	"strings"
)

// A template is a URI template (RFC 6570). A topic matches it if some values of the variables
// expand the template to the topic. The template is a small automaton, whose steps for one topic
// are at most maxProgram for each byte: no template makes a match take longer than that.
type template struct {
	prefix string // what precedes the first expression
	code   []step
	begin  int
}

// maxProgram bounds the steps of one template. The text before the first expression is free.
const maxProgram = 256

var errProgram = errors.New("mercure: the URI template has too many variables: use fewer, or shorter prefixes")

// A step accepts one byte, or branches without a byte.
type step struct {
	kind  stepKind
	value byte // of stepByte
	class class
	next  int
	other int // of stepBranch
}

type stepKind uint8

const (
	stepMatch stepKind = iota
	stepByte
	stepClass
	stepBranch
)

// A class is a set of bytes that values expand to. Percent-encoded bytes need only the percent
// sign, because hexadecimal digits are in every class.
type class uint8

const (
	unreserved class = iota // RFC 6570 §1.5, and the comma between the elements of a list
	reserved                // the same and the reserved characters
	pairs                   // unreserved and the equals sign, for the names in a map
)

func (c class) has(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	case c == reserved:
		return strings.IndexByte("-._~%,:/?#[]@!$&'()*+;=", b) >= 0
	case c == pairs && b == '=':
		return true
	}
	return strings.IndexByte("-._~%,", b) >= 0
}

// An operator is a row of the table in RFC 6570, appendix A.
type operator struct {
	first, separator string
	named            bool
	empty            string // follows the name of a variable without a value
	values           class
}

var operators = map[byte]operator{
	'+': {"", ",", false, "", reserved},
	'#': {"#", ",", false, "", reserved},
	'.': {".", ".", false, "", unreserved},
	'/': {"/", "/", false, "", unreserved},
	';': {";", ";", true, "", unreserved},
	'?': {"?", "&", true, "=", unreserved},
	'&': {"&", "&", true, "=", unreserved},
}

// A variable is one varspec of an expression (RFC 6570 §2.3).
type variable struct {
	name    string
	explode bool
	longest int // characters; 0: any
}

// An expression is the part in braces.
type expression struct {
	operator
	variables []variable
}

// parseTemplate returns nil if text is no URI template, or has no expression.
func parseTemplate(text string) (*template, error) {
	var literals []string
	var expressions []expression
	for rest := text; ; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			literals = append(literals, rest)
			break
		}
		if rest[open] == '}' {
			return nil, nil
		}
		inside, after, closed := strings.Cut(rest[open+1:], "}")
		e, ok := parseExpression(inside)
		if !closed || !ok {
			return nil, nil
		}
		literals, expressions = append(literals, rest[:open]), append(expressions, e)
		rest = after
	}
	if len(expressions) == 0 {
		return nil, nil
	}
	return newTemplate(literals, expressions)
}

func parseExpression(text string) (e expression, ok bool) {
	e.operator = operator{"", ",", false, "", unreserved}
	if text != "" {
		if o, is := operators[text[0]]; is {
			e.operator, text = o, text[1:]
		}
	}
	for one := range strings.SplitSeq(text, ",") {
		var v variable
		one, v.explode = strings.CutSuffix(one, "*")
		name, longest, limited := strings.Cut(one, ":")
		if limited {
			n, err := strconv.Atoi(longest)
			if err != nil || n < 1 || n > 9999 || v.explode {
				return e, false
			}
			v.longest = n
		}
		if v.name = name; !isName(name) {
			return e, false
		}
		e.variables = append(e.variables, v)
	}
	return e, true
}

// isName reports whether text is a varname (RFC 6570 §2.3).
func isName(text string) bool {
	for i := range len(text) {
		b := text[i]
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '_' || b == '%' ||
			b == '.') {
			return false
		}
	}
	return text != "" && text[0] != '.'
}

// newTemplate builds the automaton from its end.
func newTemplate(literals []string, expressions []expression) (*template, error) {
	t := &template{prefix: literals[0]}
	next := t.add(step{kind: stepMatch})
	for i := len(expressions) - 1; i >= 0; i-- {
		next = t.literal(literals[i+1], next)
		next = t.expression(expressions[i], next)
		if len(t.code) > maxProgram {
			return nil, errProgram
		}
	}
	t.begin = next
	return t, nil
}

func (t *template) add(s step) int {
	if len(t.code) <= maxProgram { // a longer one is refused
		t.code = append(t.code, s)
	}
	return len(t.code) - 1
}

func (t *template) literal(text string, next int) int {
	for i := len(text) - 1; i >= 0; i-- {
		next = t.add(step{kind: stepByte, value: text[i], next: next})
	}
	return next
}

// repeat accepts what body accepts, any number of times. body gets the step that follows it.
func (t *template) repeat(next int, body func(next int) int) int {
	loop := t.add(step{kind: stepBranch, other: next})
	t.code[loop].next = body(loop)
	return loop
}

// run accepts bytes of a class: any number, or at most longest.
func (t *template) run(c class, longest, next int) int {
	if longest == 0 {
		return t.repeat(next, func(loop int) int { return t.add(step{kind: stepClass, class: c, next: loop}) })
	}
	for range min(longest, maxProgram) {
		one := t.add(step{kind: stepClass, class: c, next: next})
		// a percent-encoded byte counts as one character
		last := t.add(step{kind: stepClass, class: c, next: next})
		hex := t.add(step{kind: stepClass, class: c, next: last})
		encoded := t.add(step{kind: stepByte, value: '%', next: hex})
		next = t.add(step{kind: stepBranch, next: t.add(step{kind: stepBranch, next: one, other: encoded}),
			other: next})
	}
	return next
}

// expression accepts any subset of the variables, in their order: a variable may be undefined.
func (t *template) expression(e expression, next int) int {
	begun, fresh := next, next // where to go on behind a defined variable, and without one
	for i := len(e.variables) - 1; i >= 0; i-- {
		v := e.variables[i]
		item := t.item(e.operator, v, begun)
		fresh = t.add(step{kind: stepBranch, next: t.literal(e.first, item), other: fresh})
		begun = t.add(step{kind: stepBranch, next: t.literal(e.separator, item), other: begun})
	}
	return fresh
}

// item accepts one defined variable.
func (t *template) item(o operator, v variable, next int) int {
	switch {
	case v.explode:
		values := o.values
		if values == unreserved {
			values = pairs
		}
		more := t.repeat(next, func(loop int) int { return t.literal(o.separator, t.run(values, 0, loop)) })
		return t.run(values, 0, more)
	case !o.named:
		return t.run(o.values, v.longest, next)
	}
	value := t.literal("=", t.run(o.values, v.longest, next))
	if o.empty == "" {
		value = t.add(step{kind: stepBranch, next: value, other: next})
	}
	return t.literal(v.name, value)
}

// A stateSet is the steps that a match may continue with.
type stateSet struct {
	has  [maxProgram/64 + 1]uint64
	list [maxProgram + 1]uint16
	size int
}

// enter adds a step, and those that it branches to.
func (t *template) enter(set *stateSet, at int) {
	for {
		if set.has[at/64]&(1<<(at%64)) != 0 {
			return
		}
		set.has[at/64] |= 1 << (at % 64)
		s := &t.code[at]
		if s.kind != stepBranch {
			set.list[set.size] = uint16(at)
			set.size++
			return
		}
		t.enter(set, s.next)
		at = s.other
	}
}

// matches reports whether topic is an expansion of the template.
func (t *template) matches(topic string) bool {
	rest, ok := strings.CutPrefix(topic, t.prefix)
	if !ok {
		return false
	}
	var sets [2]stateSet
	now, then := &sets[0], &sets[1]
	t.enter(now, t.begin)
	for i := range len(rest) {
		then.has, then.size = [maxProgram/64 + 1]uint64{}, 0
		for _, at := range now.list[:now.size] {
			s := &t.code[at]
			if s.kind == stepByte && s.value == rest[i] || s.kind == stepClass && s.class.has(rest[i]) {
				t.enter(then, s.next)
			}
		}
		if then.size == 0 {
			return false
		}
		now, then = then, now
	}
	return now.has[0]&1 != 0 // stepMatch is the first step
}
