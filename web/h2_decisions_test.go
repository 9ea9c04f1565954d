package web

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/h2"
)

// get returns the values of a field, or of a pseudo-field.
func (m *message) get(name string) (values []string) {
	for i := 0; i < len(m.head); i += 2 {
		if m.head[i] == name {
			values = append(values, m.head[i+1])
		}
	}
	return values
}

// one is the only value, or "".
func (m *message) one(name string) string { return strings.Join(m.get(name), " and ") }

// malformedBut reports whether this server has reset the stream of a message, in which has is so,
// and net/http has answered with a status.
func malformedBut(status string, has func(m *message) bool) func(d *difference) bool {
	return func(d *difference) bool {
		return d.ours.status == malformedStatus && strings.HasPrefix(d.std.status, status) &&
			has(translate(d.input))
	}
}

// ofHTTP1 reports whether a field is one of a connection of HTTP/1.
func ofHTTP1(name string) bool { return h2.OfConnection(strings.ToLower(name)) || name == "te" }

const malformedStatus = "reset PROTOCOL_ERROR"

// seenWithout is what a handler saw but for a part.
func (a answer) seenWithout(part string) string {
	return strings.Join(strings.Fields(strings.Replace(a.seen, part, "", 1)), " ")
}

// padded reports whether a value has spaces or tabs at an end.
func padded(s string) bool { return strings.Trim(s, " \t") != s }

// spaceless is what a handler saw without spaces and tabs.
func spaceless(seen string) string { return strings.NewReplacer(" ", "", `\t`, "").Replace(seen) }

// decisions2 are all the differences over HTTP/2. Sections without a number are of RFC 9113.
var decisions2 = []*decision{
	{why: "a field of a connection, or TE but for trailers, resets the stream (8.2.2); net/http answers 400",
		is: malformedBut("400", func(m *message) bool {
			return slices.ContainsFunc(m.head, ofHTTP1)
		})},
	{why: "nor may a trailer be a field of a connection (8.2.2)", is: malformedBut("200", func(m *message) bool {
		return slices.ContainsFunc(m.trailer, ofHTTP1)
	})},
	{why: "what follows a malformed head ends the connection with net/http, because it does not know the stream",
		is: func(d *difference) bool {
			m := translate(d.input)
			return d.ours.status == malformedStatus && d.std.status == "GOAWAY PROTOCOL_ERROR" &&
				(len(m.data) > 0 || m.trailer != nil)
		}},
	{why: "a method is a token (RFC 9110 section 9.1)", is: malformedBut("200", func(m *message) bool {
		return !httpguts.ValidHeaderFieldName(m.one(":method"))
	})},
	{why: ":path begins with a slash, or is \"*\" for OPTIONS (8.3.1), and has no space", is: malformedBut("200",
		func(m *message) bool {
			path := m.one(":path")
			return strings.Contains(path, " ") || m.one(":method") != "CONNECT" && !strings.HasPrefix(path, "/") &&
				(path != "*" || m.one(":method") != "OPTIONS")
		})},
	{why: "the authority is of the grammar, without user information (8.3.1), and visible",
		is: malformedBut("200", func(m *message) bool {
			host := m.one(":authority")
			return !httpguts.ValidHostHeader(host) || strings.ContainsAny(host, "@ ")
		})},
	{why: "Host must not differ from :authority, nor be repeated (8.3.1)", is: malformedBut("200",
		func(m *message) bool {
			return len(m.get("host")) > 0 && m.one("host") != m.one(":authority")
		})},
	{why: "spaces and tabs around a value are no part of it (RFC 9110 section 5.5); net/http keeps them",
		is: func(d *difference) bool {
			m := translate(d.input)
			return d.bothServed() && slices.ContainsFunc(append(m.head, m.trailer...), padded) &&
				spaceless(d.std.seen) == spaceless(d.ours.seen)
		}},
	{why: "the same holds for Content-Length, which net/http takes for no number then", is: func(d *difference) bool {
		return d.ours.served() && !d.std.served() &&
			slices.ContainsFunc(translate(d.input).get("content-length"), padded)
	}},
	{why: "a body that is shorter than Content-Length resets the stream (8.1.1); with net/http the Read fails",
		is: func(d *difference) bool {
			return d.ours.status == malformedStatus && d.std.cut() && translate(d.input).get("content-length") != nil
		}},
	{why: "Content-Length is one number, in digits (RFC 9110 section 8.6)", is: malformedBut("200",
		func(m *message) bool {
			return len(m.get("content-length")) > 0
		})},
	{why: "equal Content-Length fields are one, as with HTTP/1.1", is: func(d *difference) bool {
		_, after, _ := strings.Cut(d.std.seen, `Content-Length=[`)
		values, _, _ := strings.Cut(after, "]")
		first, rest, _ := strings.Cut(values, " ")
		return d.bothServed() && rest != "" && d.std.seenWithout(values) == d.ours.seenWithout(first)
	}},
	{why: "Request.Header has no Host, as with HTTP/1.1", is: func(d *difference) bool {
		host := `Host=["` + translate(d.input).one("host") + `"] `
		return d.bothServed() && d.std.seenWithout(host) == d.ours.seenWithout("")
	}},
	{why: "a trailer of framing, routing or authentication is dropped, as with HTTP/1.1 (RFC 9110 section 6.5.1); " +
		"net/http resets the stream if others were announced", is: func(d *difference) bool {
		m := translate(d.input)
		return d.ours.served() && d.std.status == malformedStatus && m.get("trailer") != nil &&
			slices.ContainsFunc(m.trailer, func(name string) bool { return !httpguts.ValidTrailerHeader(name) })
	}},
	{why: "an empty member of Trailer is none", is: func(d *difference) bool {
		return d.bothServed() && d.std.seenWithout("=[]") == d.ours.seenWithout("")
	}},
}
