package client

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// A framing is what a server of HTTP/2 sends for the first request of a connection.
type framing struct {
	name   string
	method string // "": GET
	act    func(fr *http2.Framer, id uint32)
	// differs: by a row of docs/net-http.md, or by a fault of http.Transport.
	differs bool
}

// replies is a response with a body of two bytes, whose head is pairs.
func replies(pairs ...string) func(*http2.Framer, uint32) {
	return func(fr *http2.Framer, id uint32) {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(pairs...), EndHeaders: true})
		fr.WriteData(id, true, []byte("hi"))
	}
}

// empty is the same without a body.
func empty(pairs ...string) func(*http2.Framer, uint32) {
	return func(fr *http2.Framer, id uint32) {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(pairs...), EndHeaders: true,
			EndStream: true})
	}
}

// behind is a response behind a frame. Stream 1 of payload is the request's.
func behind(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*http2.Framer, uint32) {
	return func(fr *http2.Framer, id uint32) {
		fr.WriteRawFrame(kind, flags, stream, []byte(payload))
		replies(":status", "200")(fr, id)
	}
}

func resetBy(code http2.ErrCode) func(*http2.Framer, uint32) {
	return func(fr *http2.Framer, id uint32) { fr.WriteRSTStream(id, code) }
}

// trailed is a response with trailers.
func trailed(pairs ...string) func(*http2.Framer, uint32) {
	return func(fr *http2.Framer, id uint32) {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			BlockFragment: fields(":status", "200", "trailer", "x-a")})
		fr.WriteData(id, false, []byte("hi"))
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(pairs...), EndHeaders: true,
			EndStream: true})
	}
}

func framings() []framing {
	const (
		settings, ping, goAway = http2.FrameSettings, http2.FramePing, http2.FrameGoAway
		window, reset          = http2.FrameWindowUpdate, http2.FrameRSTStream
	)
	return []framing{
		{name: "plain", act: replies(":status", "200", "content-length", "2")},
		{name: "status of two digits", act: replies(":status", "20"), differs: true},
		{name: "status of four digits", act: replies(":status", "2000"), differs: true},
		{name: "status that is no number", act: replies(":status", "abc")},
		{name: "status 999", act: replies(":status", "999")},
		{name: "101", act: empty(":status", "101")},
		{name: "no status", act: replies("x", "y")},
		{name: "status twice", act: replies(":status", "200", ":status", "200")},
		{name: "status behind a field", act: replies("x", "y", ":status", "200")},
		{name: "pseudo-field of a request", act: replies(":status", "200", ":path", "/")},
		{name: "unknown pseudo-field", act: replies(":status", "200", ":x", "/")},
		{name: "name in upper case", act: replies(":status", "200", "Upper", "x")},
		{name: "name with a space", act: replies(":status", "200", "a b", "x")},
		{name: "empty name", act: replies(":status", "200", "", "x")},
		{name: "value with a line end", act: replies(":status", "200", "a", "b\nc")},
		{name: "value with NUL", act: replies(":status", "200", "a", "b\x00c")},
		{name: "value of Latin-1", act: replies(":status", "200", "a", "\xe9")},
		{name: "blanks around a value", act: replies(":status", "200", "a", " b "), differs: true},
		{name: "two cookies", act: replies(":status", "200", "set-cookie", "a", "set-cookie", "b")},
		{name: "fields of a connection", act: replies(":status", "200", "connection", "close"), differs: true},
		{name: "no-cache", act: replies(":status", "200", "pragma", "no-cache")},

		{name: "too short a body", act: replies(":status", "200", "content-length", "3")},
		{name: "too long a body", act: replies(":status", "200", "content-length", "1")},
		{name: "no body for a length", act: empty(":status", "200", "content-length", "3")},
		{name: "no body", act: empty(":status", "200")},
		{name: "length that is no number", act: replies(":status", "200", "content-length", "x"), differs: true},
		{name: "negative length", act: replies(":status", "200", "content-length", "-1"), differs: true},
		{name: "length twice", act: replies(":status", "200", "content-length", "2", "content-length", "2"),
			differs: true},
		{name: "lengths that differ", act: replies(":status", "200", "content-length", "2", "content-length", "3"),
			differs: true},
		{name: "HEAD", method: "HEAD", act: empty(":status", "200", "content-length", "3")},
		{name: "HEAD with a body", method: "HEAD", act: replies(":status", "200"), differs: true},
		{name: "204", act: empty(":status", "204")},
		{name: "204 with a body", act: replies(":status", "204"), differs: true},
		{name: "304 with a length", act: empty(":status", "304", "content-length", "3"), differs: true},
		{name: "304 with a body", act: replies(":status", "304"), differs: true},

		{name: "103", act: func(fr *http2.Framer, id uint32) {
			answer(fr, id, "103", false)
			replies(":status", "200")(fr, id)
		}},
		{name: "103 ends", act: empty(":status", "103")},
		{name: "DATA behind 103", act: replies(":status", "103")},
		{name: "DATA alone", act: func(fr *http2.Framer, id uint32) { fr.WriteData(id, true, []byte("hi")) }},
		{name: "trailers", act: trailed("x-a", "1", "x-b", "2")},
		{name: "no trailers", act: trailed()},
		{name: "trailer of framing", act: trailed("content-length", "5")},
		{name: "trailer in upper case", act: trailed("X-A", "1")},
		{name: "trailer of a connection", act: trailed("connection", "close"), differs: true},
		{name: "padding", act: func(fr *http2.Framer, id uint32) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: status("200"), EndHeaders: true,
				PadLength: 50, Priority: http2.PriorityParam{Weight: 3}})
			fr.WriteDataPadded(id, true, []byte("hi"), make([]byte, 100))
		}},
		{name: "CONTINUATION", act: func(fr *http2.Framer, id uint32) {
			block := fields(":status", "200", "x", strings.Repeat("y", 100))
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1]})
			for i := 1; i < len(block); i++ {
				fr.WriteContinuation(id, i == len(block)-1, block[i:i+1])
			}
			fr.WriteData(id, true, []byte("hi"))
		}},
		{name: "reset with NO_ERROR", act: resetBy(http2.ErrCodeNo)},
		{name: "reset with an unknown code", act: resetBy(0x7777)},
		{name: "reset behind the end", act: func(fr *http2.Framer, id uint32) {
			replies(":status", "200")(fr, id)
			fr.WriteRSTStream(id, http2.ErrCodeNo)
		}},

		{name: "PING", act: behind(ping, 0, 0, "12345678")},
		{name: "PING of 7 bytes", act: behind(ping, 0, 0, "1234567")},
		{name: "SETTINGS again", act: behind(settings, 0, 0, "")},
		{name: "SETTINGS of 5 bytes", act: behind(settings, 0, 0, "12345")},
		{name: "unknown SETTINGS", act: behind(settings, 0, 0, "\x1a\x2a1234")},
		{name: "SETTINGS_ENABLE_PUSH", act: behind(settings, 0, 0, "\x00\x02\x00\x00\x00\x01"), differs: true},
		{name: "window of 2^31", act: behind(settings, 0, 0, "\x00\x04\x80\x00\x00\x00")},
		{name: "frames of one byte", act: behind(settings, 0, 0, "\x00\x05\x00\x00\x00\x01")},
		{name: "no table", act: behind(settings, 0, 0, "\x00\x01\x00\x00\x00\x00")},
		{name: "unknown frame", act: behind(0xb, 0x7f, 0, "grease")},
		{name: "ALTSVC", act: behind(0xa, 0, 0, "\x00\x00h2=\":443\"")},
		{name: "PRIORITY", act: behind(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x01")},
		{name: "PRIORITY_UPDATE", act: behind(0x10, 0, 0, "\x00\x00\x00\x01u=1"), differs: true},
		{name: "WINDOW_UPDATE by 0", act: behind(window, 0, 0, "\x00\x00\x00\x00")},
		{name: "the connection's window overflows", act: behind(window, 0, 0, "\x7f\xff\xff\xff")},
		{name: "WINDOW_UPDATE for an idle stream", act: behind(window, 0, 99, "\x00\x00\x00\x01"), differs: true},
		{name: "RST_STREAM for an idle stream", act: behind(reset, 0, 99, "\x00\x00\x00\x01"),
			differs: true},
		{name: "DATA for an idle stream", act: behind(http2.FrameData, 0, 99, "x")},
		{name: "PUSH_PROMISE", act: behind(http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02\x82")},
		{name: "CONTINUATION alone", act: behind(http2.FrameContinuation, 4, 1, "\x88")},
		{name: "no HPACK", act: behind(http2.FrameHeaders, 4, 1, "\xff\xff\xff\xff\xff")},
		{name: "GOAWAY behind the request", act: behind(goAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00")},
		{name: "GOAWAY of all streams", act: behind(goAway, 0, 0, "\x7f\xff\xff\xff\x00\x00\x00\x00")},
		{name: "GOAWAY of 7 bytes", act: behind(goAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00")},
	}
}

// What frames mean is the same to both Transports, and so is whether their connection is used
// again.
func TestFramesLikeNetHTTP(t *testing.T) {
	for _, f := range framings() {
		t.Run(f.name, func(t *testing.T) {
			std := &http.Transport{Protocols: new(http.Protocols)}
			std.Protocols.SetUnencryptedHTTP2(true)
			defer std.CloseIdleConnections()
			method := f.method
			if method == "" {
				method = "GET"
			}
			show := func(rt http.RoundTripper) string {
				var requests, conns atomic.Int32
				url := framed(t, func(fr *http2.Framer, got http2.Frame) {
					switch id := got.Header().StreamID; {
					case got.Header().Type == http2.FrameSettings && !got.Header().Flags.Has(http2.FlagSettingsAck):
						conns.Add(1)
						fr.AllowIllegalWrites = true
					case got.Header().Type == http2.FrameHeaders && requests.Add(1) == 1:
						f.act(fr, id)
					case got.Header().Type == http2.FrameHeaders:
						answer(fr, id, "204", true)
					}
				})
				first := meaning(t, rt, method, url)
				return fmt.Sprintf("%s, and then %s", first, meaning(t, rt, "GET", url))
			}
			if want, got := show(std), show(likeOf(t, std)); (got != want) != f.differs {
				t.Errorf("they differ: %v, want %v\nhttp.Transport: %s\n     Transport: %s", got != want, f.differs,
					want, got)
			}
		})
	}
}
