package web

import (
	"net/http"
	"strconv"
)

// errorText is the body of an answer that the server gives itself.
func errorText(status int, reason string) string {
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	if reason != "" {
		text += ": " + reason
	}
	return text
}
