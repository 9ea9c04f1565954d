package retryafter

import (
	"fmt"
	"strings"
	"time"
)

// ContentType is that of a stream of Server-Sent Events.
const ContentType = "text/event-stream"

// IsEventSource reports whether the client of a request reads Server-Sent Events and nothing else.
// An EventSource says so in its fields Accept (WHATWG HTML section 9.2.2). It gives up after any
// other status than 200 (section 9.2.3), so it is refused by a stream: see AppendStream. A client
// that accepts anything else, too, does not give up, and may take a status 200 for its answer.
func IsEventSource(method string, accept []string) bool {
	asks := false
	for _, field := range accept {
		for one := range strings.SplitSeq(field, ",") {
			one, _, _ = strings.Cut(one, ";")
			one = strings.Trim(one, " \t")
			switch {
			case one == "": // an empty element of a list (RFC 9110 section 5.6.1.2)
			case !strings.EqualFold(one, ContentType):
				return false
			default:
				asks = true
			}
		}
	}
	return asks && method == "GET"
}

// AppendStream appends a whole stream of events, which tells an EventSource to come back after
// wait. message is for people who read it.
func AppendStream(dst []byte, message string, wait time.Duration) []byte {
	dst = append(append(dst, ": "...), strings.NewReplacer("\r", " ", "\n", " ").Replace(message)...)
	return AppendRetry(append(dst, '\n'), wait)
}

// AppendRetry appends the field of Server-Sent Events after which a client that has lost its stream
// waits that long before it opens the next one.
func AppendRetry(dst []byte, wait time.Duration) []byte {
	return fmt.Appendf(dst, "retry: %d\n\n", (wait+time.Millisecond-1)/time.Millisecond)
}
