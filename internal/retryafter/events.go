package retryafter

import (
	"fmt"
	"strings"
	"time"
)

// ContentType is that of a stream of Server-Sent Events.
const ContentType = "text/event-stream"

// IsEventSource reports whether the client of a request reads Server-Sent Events and nothing else.
// An EventSource says so in Accept (WHATWG HTML section 9.2.2). It gives up after any other status
// than 200 (section 9.2.3), so it is refused by a stream: see AppendStream.
func IsEventSource(method, accept string) bool {
	return method == "GET" && strings.Contains(strings.ToLower(accept), ContentType)
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
