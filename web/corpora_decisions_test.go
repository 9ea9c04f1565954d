package web

import (
	"regexp"
	"slices"
	"strings"
)

// refused reports whether this server has refused a request for a reason, and net/http has not.
func refused(reason string) func(d *difference) bool {
	return func(d *difference) bool {
		return d.ours.seen == "" && strings.HasPrefix(d.ours.status, "400 close") &&
			strings.Contains(d.ours.body, reason)
	}
}

// served reports whether the handler has seen the request, or the server itself has answered it.
func (a answer) served() bool { return a.seen != "" || strings.HasPrefix(a.status, "200") }

// cut reports whether the handler could not read its body to the end.
func (a answer) cut() bool { return strings.Contains(a.seen, " failed true ") }

// upTo is what the handler saw, up to a word.
func (a answer) upTo(word string) string {
	s, _, _ := strings.Cut(a.seen, word)
	return s
}

// has reports whether the input has a match.
func (d *difference) has(pattern string) bool {
	return regexp.MustCompile(pattern).MatchString(d.input + probe)
}

// closes, keeps: whether the connection ends with the answer.
func (a answer) closes() bool { return strings.HasSuffix(a.status, " close") }

func (d *difference) bothServed() bool { return d.ours.served() && d.std.served() }
func (d *difference) bothRefused() bool {
	return !d.ours.served() && !d.std.served() && d.ours.closes() && d.std.closes()
}

// decisions are all the differences there are.
var decisions = []*decision{
	{why: "a bare LF ends no line (RFC 9112 section 2.2)", is: refused("LF without CR")},
	{why: "nor one of a chunked body (2.2)", is: func(d *difference) bool {
		return d.bothServed() && d.ours.cut() && d.ours.upTo(" body ") == d.std.upTo(" body ") && d.has(`chunked`) &&
			d.has(`[^\r]\n`) && !d.has(`[0-9a-f];`)
	}},
	{why: "a bare CR is not skipped before a request, as net/http does after a POST (2.2)",
		is: refused("CR without LF")},
	{why: "a folded line is refused (5.2)", is: refused("folded header line")},
	{why: "a folded value's first line is not a length or coding (5.2)", is: func(d *difference) bool {
		return d.has(`:[ \t]*\r\n[ \t]`) && (refused("invalid Content-Length")(d) ||
			refused("invalid Transfer-Encoding")(d))
	}},
	{why: "an absolute-form needs \"//\" and a host without user information (RFC 9110 section 4.2.4), CONNECT a " +
		"port (9.3.6)", is: refused("invalid request target")},
	{why: "a Host must be of the grammar (RFC 9112 section 3.2)", is: refused("malformed Host header")},
	{why: "nor may the target of CONNECT be empty (9112 section 3)", is: func(d *difference) bool {
		return refused("malformed request line")(d) && d.has(`CONNECT  HTTP`)
	}},
	{why: "both lengths are refused (6.3)", is: refused("both Content-Length and Transfer-Encoding")},
	{why: "a coding in HTTP/1.0 is refused (6.1)", is: refused("Transfer-Encoding in HTTP/1.0")},
	{why: "a coding that is empty, or chunked twice, is no unknown one: 400, not 501 (6.3)",
		is: func(d *difference) bool {
			return refused("invalid Transfer-Encoding")(d) && d.std.status == "501 close"
		}},
	{why: "of several faults the first on the wire is named, and an expectation before a bad URL",
		is: func(d *difference) bool {
			return d.bothRefused() && slices.Contains([]string{"501 400", "400 501", "417 400", "505 400"},
				d.ours.status[:3]+" "+d.std.status[:3])
		}},
	{why: "empty lines before a request are skipped, up to four (2.2); net/http does so after a POST only",
		is: func(d *difference) bool {
			return d.ours.served() && d.std.status == "400 close" &&
				d.has(`(^(\r\n)+|\r\n\r\n(\r\n)+|\r\n\r\n[a-z0-9\s]{1,6}(\r\n)+|\w\r\n)\S+ \S* HTTP/1`)
		}},
	{why: "an answer behind a body that ended too soon says that the connection closes", is: func(d *difference) bool {
		return d.bothServed() && d.ours.seen == d.std.seen && d.ours.cut() && d.ours.closes() && !d.std.closes()
	}},
	{why: "close wins over keep-alive, also in HTTP/1.0 (9.3)", is: func(d *difference) bool {
		return d.bothServed() && d.ours.seen == d.std.seen && d.ours.closes() && !d.std.closes() &&
			d.has(`HTTP/1.0\r\n(.*\r\n)*(?i:Connection: .*close)`)
	}},
	{why: "the members of a list are separated by commas (RFC 9110 section 5.6.1); net/http takes spaces as well",
		is: func(d *difference) bool {
			if d.has(`Expect:.* 100-continue`) && d.ours.status == "417 close" {
				return d.std.status == "100" || d.std.served()
			}
			return d.bothServed() && d.ours.seen == d.std.seen &&
				d.has(`Connection:[^\r]*[^\s,:][ \t]+keep-alive|Connection:.*:[ \t]+keep-alive`)
		}},
	{why: "a \"close\" that counts is in Request.Close, too, if there are but spaces about it",
		is: func(d *difference) bool {
			return d.bothServed() && d.ours.closes() && d.ours.seen == strings.Replace(d.std.seen, " close false ",
				" close true ", 1) &&
				d.has(`Connection:.*(close[ \t]+[^,\s]|[^,\s][ \t]+close)`)
		}},
	{why: "all Connection fields of an HTTP/1.0 request count (RFC 9110 section 5.3), not the first alone",
		is: func(d *difference) bool {
			return d.bothServed() && d.ours.seen == d.std.seen && !d.ours.closes() &&
				d.has(`HTTP/1.0\r\n(.*\r\n)*Connection:.*\r\n(.*\r\n)*Connection: keep-alive`)
		}},
	{why: "trailer fields of framing, routing and authentication are dropped (RFC 9110 section 6.5.1)",
		is: func(d *difference) bool {
			return d.bothServed() && d.ours.status == d.std.status &&
				d.ours.upTo(" trailer") == d.std.upTo(" trailer") &&
				len(d.ours.seen) < len(d.std.seen)
		}},
	{why: "chunk extensions must be of the grammar (7.1.1)", is: func(d *difference) bool {
		return d.bothServed() && d.ours.cut() && d.ours.upTo(" body ") == d.std.upTo(" body ") && d.has(`[0-9a-f];`)
	}},
	{why: "whitespace before the \";\" of a chunk extension is allowed (7.1.1)", is: func(d *difference) bool {
		return d.bothServed() && d.std.cut() && d.ours.upTo(" body ") == d.std.upTo(" body ") && d.has(`[ \t];`)
	}},
	{why: "a trailer with a space in its name or before its colon, or folded, is refused (5.1, 5.2)",
		is: func(d *difference) bool {
			return d.bothServed() && d.ours.cut() && d.ours.upTo(" failed ") == d.std.upTo(" failed ") &&
				d.has(`0\r\n[^\n]*(\w [^\r:]*:|\r\n[ \t])`)
		}},
	{why: "a chunk of 2^63 bytes or more is refused", is: func(d *difference) bool {
		return d.bothServed() && d.ours.cut() && d.std.cut() && d.ours.upTo(" body ") == d.std.upTo(" body ") &&
			d.has(`\r\n[89a-f][0-9a-f]{15}\r\n`)
	}},
	{why: "the preface of HTTP/2 has no fields", is: func(d *difference) bool {
		return d.ours.status == "505 close" && d.has(`^PRI \* HTTP/2.0\r\n\w`)
	}},
}
