package web

import (
	"strings"
)

const (
	get      = "GET / HTTP/1.1\r\nHost: h\r\n"
	post     = "POST / HTTP/1.1\r\nHost: h\r\n"
	chunked  = post + "Transfer-Encoding: chunked\r\n\r\n"
	smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
)

// statusOf is the status of the first answer.
func statusOf(answer string) string {
	if fields := strings.Fields(answer); len(fields) > 1 {
		return fields[1]
	}
	return ""
}
