package h2

import "strings"

// A Priority is RFC 9218's: streams of a lower Urgency are served first, incremental ones of the
// same urgency in turns.
type Priority struct {
	Urgency     uint8 // 0 to 7
	Incremental bool
}

// DefaultPriority is that of a request that says nothing (RFC 9218 section 4).
var DefaultPriority = Priority{Urgency: 3}

var unsaidPriority = Priority{DefaultPriority.Urgency, true}

// ParsePriority reads the value of a Priority field or a PRIORITY_UPDATE. Parameters that are
// unknown, out of range or of another type are ignored, and leave what the default is (section 4).
func ParsePriority(s string) Priority {
	p := DefaultPriority
	for len(s) > 0 {
		var member string
		member, s = cutMember(s)
		member, _, _ = strings.Cut(member, ";") // parameters have no meaning
		key, value, has := strings.Cut(strings.Trim(member, " \t"), "=")
		switch {
		case key == "u" && len(value) == 1 && value[0] >= '0' && value[0] <= '7':
			p.Urgency = value[0] - '0'
		case key == "i" && (!has || value == "?1"):
			p.Incremental = true
		case key == "i" && value == "?0":
			p.Incremental = false
		}
	}
	return p
}

// cutMember cuts at the first comma that is not in a string.
func cutMember(s string) (member, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			quoted = !quoted
		case '\\':
			if quoted {
				i++
			}
		case ',':
			if !quoted {
				return s[:i], s[i+1:]
			}
		}
	}
	return s, ""
}
