package load

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Frames are found wherever the stream is cut, and what a peer may not send is refused.
func TestFraming(t *testing.T) {
	long := strings.Repeat("four", 20_000)
	for _, tt := range []struct {
		framing      Framing
		stream, want string // want: the replies of four bytes, or what is said of the stream
	}{
		{Bare, "pongpong", "pong pong"},
		{Lines, "\x81\x04pong\x81\x09ping\npong", "pong ping pong"},
		{Lines, string(ServerFrame([]byte("four" + strings.Repeat("\nfour", 50)))),
			"four" + strings.Repeat(" four", 50)},
		{Lines, "\x82\x04pong", "begins with 0x82"},
		{Lines, "\x01\x04pong", "begins with 0x1"},
		{Lines, "\x81\x84xxxxpong", "no unmasked message"},
		{Messages, "\x82\x04pong\x82\x08pingpong", "pong ping pong"},
		{Messages, "\x82\x05pong!", "does not consist of replies of 4"}, {Messages, "\x81\x04pong", "begins with 0x81"},
		{Lines, "\x81\x08pongpong", "does not consist of replies of 4"},
		{Lines, "\x81\x00", "does not consist of replies of 4"},
		{Lines, "\x81\x09pong.pong", `between two replies is ".pong"`},
		{Chunks, "4\r\npong\r\n8\r\npingpong\r\n", "pong ping pong"},
		{Chunks, fmt.Sprintf("%x\r\n%s\r\n", len(long), long), strings.TrimSpace(strings.Repeat("four ", 20_000))},
		{Chunks, "5\r\npong!\r\n", "does not consist of replies of 4"},
		{Chunks, "0\r\n\r\n", "a chunk begins with"},
		{Chunks, "4;x\r\npong\r\n", "a chunk begins with"},
		{Chunks, "4\npong\r\n", "a chunk begins with"},
		{Streams, "\x00\x00\x00\x04\x01\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x00\x01pong" +
			"\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x02\x01\x05\x00\x00\x00\x01xx" +
			"\x00\x00\x04\x00\x01\x00\x00\x00\x03ping",
			"pong ping"},
		{Streams, "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07", "the server ends a stream"},
		{Streams, "\x00\x00\x05\x00\x01\x00\x00\x00\x01pong!", "does not consist of replies of 4"},
		{Chunks, "000000000004\r\npong\r\n", "a chunk begins with"},
	} {
		cuts := []int{0, 1, 2, 3, 5, 7, 9, 11, len(tt.stream) - 1, len(tt.stream)}
		for _, cut := range cuts {
			got, err := takeOff(tt.framing, 4, tt.stream[:min(cut, len(tt.stream))], tt.stream)
			if err != nil && !strings.Contains(err.Error(), tt.want) || err == nil && got != tt.want {
				t.Errorf("%s %.30q, cut at %d: %.100q, %v, not %.100q", tt.framing, tt.stream, cut, got, err, tt.want)
			}
		}
	}
}

// Replies whose size changes are found, too.
func TestFramingOfAnySize(t *testing.T) {
	answers := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nDate: now\r\n\r\npong" +
		"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 0\r\n\r\n"
	for _, tt := range []struct {
		framing      Framing
		stream, want string
	}{
		{Lines, "\x81\x04pong\x81\x0api\n\nlonger", "pong pi  longer"},
		{Answers, answers, strings.Replace(answers, "pong", "pong ", 1)},
		{Numbers, ":1\r\n:15000\r\n", ":1\r\n :15000\r\n"}, {Numbers, strings.Repeat("1", 65), "more than 64 bytes"},
		{Answers, "HTTP/1.1 200 OK\r\n\r\n", "no Content-Length"},
		{Answers, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no Content-Length"},
	} {
		for cut := range len(tt.stream) + 1 {
			got, err := takeOff(tt.framing, 0, tt.stream[:cut], tt.stream)
			if err != nil && !strings.Contains(err.Error(), tt.want) || err == nil && got != tt.want {
				t.Errorf("%s %.30q, cut at %d: %.100q, %v, not %.100q", tt.framing, tt.stream, cut, got, err, tt.want)
			}
		}
	}
}

// takeOff returns the replies of a stream of which the beginning comes first.
func takeOff(f Framing, size int, beginning, stream string) (string, error) {
	var replies []string
	taken := 0
	for _, p := range []string{beginning, stream} {
		for taken < len(p) {
			one, err := f.next([]byte(p[taken:]), size)
			if errors.Is(err, errPartial) {
				break
			}
			if err == nil {
				err = one.each([]byte(p[taken:]), size, func(reply []byte) error {
					replies = append(replies, string(reply))
					return nil
				})
			}
			if err != nil {
				return "", err
			}
			taken += one.size
		}
	}
	if taken < len(stream) {
		return "", fmt.Errorf("%.30q is left", stream[taken:])
	}
	return strings.Join(replies, " "), nil
}
