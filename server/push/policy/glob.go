package policy

import (
	"fmt"
	"regexp"
	"strings"
)

// maxGlob bounds a glob, in bytes.
const maxGlob = 1024

// NewGlob returns an expression for the names that a glob matches. The empty glob matches all
// names. In a glob these have a meaning:
//
//   - "*": any text
//   - "?": any character
//   - "[a-c]": one of the characters a to c; "[!a-c]": any other one
//   - "{a,b}": what one of the globs a and b matches
//   - "\c": the character c, whatever it is
func NewGlob(glob string) (*regexp.Regexp, error) {
	if glob == "" {
		glob = "*"
	}
	if len(glob) > maxGlob {
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(glob), maxGlob)
	}
	var re strings.Builder
	re.WriteString(`(?s)\A`)
	depth := 0
	for rest := glob; rest != ""; {
		var c string
		c, rest = firstRune(rest)
		switch {
		case c == "*":
			re.WriteString(".*")
		case c == "?":
			re.WriteString(".")
		case c == "[":
			class, after, closed := strings.Cut(rest, "]")
			if !closed {
				return nil, fmt.Errorf("the pattern %q has [ without ]", glob)
			}
			re.WriteString(classOf(class))
			rest = after
		case c == "{":
			re.WriteString("(?:")
			depth++
		case c == "}" && depth > 0:
			re.WriteString(")")
			depth--
		case c == "," && depth > 0:
			re.WriteString("|")
		case c == `\` && rest != "":
			c, rest = firstRune(rest)
			fallthrough
		default:
			re.WriteString(regexp.QuoteMeta(c))
		}
	}
	if depth > 0 {
		return nil, fmt.Errorf("the pattern %q has { without }", glob)
	}
	made, err := regexp.Compile(re.String() + `\z`)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is not a glob: %w", glob, err)
	}
	return made, nil
}

// firstRune divides text after its first character, or after its first byte where it is not UTF-8.
func firstRune(text string) (first, rest string) {
	for i := range text {
		if i > 0 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// classOf returns the expression for the inside of brackets.
func classOf(inside string) string {
	inside, negated := strings.CutPrefix(inside, "!")
	inside = strings.NewReplacer(`\`, `\\`, "[", `\[`, "^", `\^`, "&", `\&`, "~", `\~`).Replace(inside)
	if negated {
		return "[^" + inside + "]"
	}
	return "[" + inside + "]"
}
