package mux

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// A violation is something that a peer must not do, or may, and what our end does then.
type violation struct {
	name string
	send func(r *rig)
	want []string // each frame begins like this
}

func (r *rig) check(v violation) {
	r.t.Helper()
	v.send(r)
	got := r.sent()
	for i, want := range v.want {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			r.t.Errorf("our end has sent %q, want %q", got, v.want)
			return
		}
	}
	if len(got) > len(v.want) {
		r.t.Errorf("our end has sent %q, want %q", got, v.want)
	}
	fatal := len(v.want) > 0 && strings.HasPrefix(v.want[len(v.want)-1], "GOAWAY")
	if closing := r.conn.state == failed; closing != fatal {
		r.t.Errorf("the connection has failed: %v, want %v", closing, fatal)
	}
}

// send makes a violation of frames.
func send(frames ...[]byte) func(r *rig) { return func(r *rig) { r.write(frames...) } }

// each opens stream 1, which has no body yet, before the frames.
func open1(frames ...[]byte) func(r *rig) {
	return func(r *rig) {
		r.write(headers(1, getBlock, false))
		r.write(frames...)
	}
}

// half opens stream 1 and ends the peer's side.
func half1(frames ...[]byte) func(r *rig) {
	return func(r *rig) {
		r.write(headers(1, getBlock, true))
		r.write(frames...)
	}
}

func get(extra ...string) []byte {
	return append(append([]byte{}, getBlock...), block(extra...)...)
}

func priorityOf(stream uint32, depends string) []byte {
	return frame(h2.PriorityFrame, 0, stream, depends+"\x10")
}

// What a server from scratch gets wrong; sections are RFC 9113's unless a name says otherwise.
var serverViolations = []violation{
	// framing
	{"4.1: the reserved bit is ignored", send(frame(h2.Ping, 0, 1<<31, "12345678")), []string{"PING ACK 12345678"}},
	{"5.5: unknown types are ignored", send(frame(77, 255, 5, "abc")), nil},
	{"4.2: a frame that is too large", send(h2.AppendHeader(nil, 1<<14+1, h2.Data, 0, 1)),
		[]string{"GOAWAY 0 FRAME_SIZE_ERROR"}},
	{"4.2: SETTINGS that is too large", send(h2.AppendHeader(nil, 1<<14+2, h2.Settings, 0, 0)),
		[]string{"GOAWAY 0 FRAME_SIZE_ERROR"}},
	{"4.1: unknown flags are ignored", send(frame(h2.Headers, 0xd2|h2.EndHeaders|h2.EndStream, 1, string(getBlock)),
		data(1, "a", false)), []string{"RST_STREAM 1 STREAM_CLOSED"}},
	{"6.1: padding as long as the payload", open1(frame(h2.Data, h2.Padded, 1, "\x04abc")),
		[]string{"GOAWAY 1 PROTOCOL_ERROR"}},
	{"6.10: a block is interrupted by another type",
		send(frame(h2.Headers, 0, 1, ""), frame(h2.Ping, 0, 0, "12345678")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.10: a block is interrupted by an unknown type", send(frame(h2.Headers, 0, 1, ""), frame(77, 0, 1, "")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.10: a block continues on another stream", send(frame(h2.Headers, 0, 1, ""), frame(h2.Continuation, 4, 3, "")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.10: CONTINUATION alone", send(frame(h2.Continuation, 4, 1, "")), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.10: CONTINUATION behind the end of a block", open1(frame(h2.Continuation, 4, 1, "")),
		[]string{"GOAWAY 1 PROTOCOL_ERROR"}},

	// settings and windows
	{"6.5: ACK with a payload", send(frame(h2.Settings, h2.Ack, 0, "123456")), []string{"GOAWAY 0 FRAME_SIZE_ERROR"}},
	{"6.5: one ACK for each", send(h2.AppendSettings(nil), h2.AppendSettings(nil)),
		[]string{"SETTINGS ACK", "SETTINGS ACK"}},
	{"6.5: the last of two values holds", send(h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 5},
		h2.Setting{ID: h2.InitialWindowSize, Value: 1<<31 - 1})), []string{"SETTINGS ACK"}},
	{"6.5.2: a window that is too large",
		send(h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 31})),
		[]string{"GOAWAY 0 FLOW_CONTROL_ERROR"}},
	{"6.5.2: more settings than 32", send(h2.AppendSettings(nil, make([]h2.Setting, 33)...)),
		[]string{"GOAWAY 0 ENHANCE_YOUR_CALM"}},
	{"6.5.2: unknown settings are ignored", send(h2.AppendSettings(nil, h2.Setting{ID: 99, Value: 1 << 31})),
		[]string{"SETTINGS ACK"}},
	{"6.5.2: a client's ENABLE_PUSH of 2", send(h2.AppendSettings(nil, h2.Setting{ID: h2.EnablePush, Value: 2})),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.5.2: a client's ENABLE_PUSH of 1 is allowed",
		send(h2.AppendSettings(nil, h2.Setting{ID: h2.EnablePush, Value: 1})), []string{"SETTINGS ACK"}},
	{"6.5.2: a frame size that is too small",
		send(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxFrameSizeSetting, Value: 1<<14 - 1})),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"RFC 9218 2.1: NO_RFC7540_PRIORITIES of 2",
		send(h2.AppendSettings(nil, h2.Setting{ID: h2.NoRFC7540Priorities, Value: 2})),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"RFC 8441 3: ENABLE_CONNECT_PROTOCOL of 2",
		send(h2.AppendSettings(nil, h2.Setting{ID: h2.EnableConnectProtocol, Value: 2})),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.9.2: a setting makes a stream's window too large", open1(h2.AppendWindowUpdate(nil, 1, 1<<30),
		h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 1<<31 - 1})),
		[]string{"GOAWAY 1 FLOW_CONTROL_ERROR"}},
	{"6.9: WINDOW_UPDATE by 0 for the connection", send(h2.AppendWindowUpdate(nil, 0, 0)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.9: WINDOW_UPDATE by 0 for a stream", open1(h2.AppendWindowUpdate(nil, 1, 0)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"6.9.1: the connection's window overflows", send(h2.AppendWindowUpdate(nil, 0, 1<<31-1)),
		[]string{"GOAWAY 0 FLOW_CONTROL_ERROR"}},
	{"6.9.1: a stream's window overflows", open1(h2.AppendWindowUpdate(nil, 1, 1<<31-1)),
		[]string{"RST_STREAM 1 FLOW_CONTROL_ERROR"}},
	{"5.1: WINDOW_UPDATE for an idle stream", send(h2.AppendWindowUpdate(nil, 1, 1)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: WINDOW_UPDATE by 0 for an idle stream", send(h2.AppendWindowUpdate(nil, 1, 0)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: RST_STREAM for an idle stream", send(h2.AppendReset(nil, 1, h2.Cancel)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: RST_STREAM for a server's stream", send(h2.AppendReset(nil, 2, h2.Cancel)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: DATA for an idle stream", send(data(1, "a", false)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: PRIORITY for an idle stream is allowed", send(priorityOf(5, "\x00\x00\x00\x03")), nil},
	{"6.7: PING", send(frame(h2.Ping, 0, 0, "12345678")), []string{"PING ACK 12345678"}},
	{"6.7: a PING's ACK is not answered", send(frame(h2.Ping, h2.Ack, 0, "12345678")), nil},
	{"6.3: PRIORITY of a wrong length", open1(frame(h2.PriorityFrame, 0, 1, "1234")),
		[]string{"RST_STREAM 1 FRAME_SIZE_ERROR"}},
	{"RFC 7540 5.3.1: PRIORITY on itself", open1(priorityOf(1, "\x00\x00\x00\x01")),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"RFC 7540 5.3.1: HEADERS on themselves",
		send(frame(h2.Headers, h2.EndHeaders|h2.HasWeight, 1, "\x00\x00\x00\x01\x10"+
			string(getBlock))), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},

	// HPACK
	{"RFC 7541 2.3.3: an index in no table", send(headers(1, []byte{0xff, 0x00}, true)),
		[]string{"GOAWAY 0 COMPRESSION_ERROR"}},
	{"RFC 7541 4.2: a size update behind a field", send(headers(1, append(get(), 0x20), true)),
		[]string{"GOAWAY 0 COMPRESSION_ERROR"}},
	{"RFC 7541 6.3: a size update above the setting",
		send(headers(1, append([]byte{0x3f, 0xe2, 0x1f}, getBlock...), true)),
		[]string{"GOAWAY 0 COMPRESSION_ERROR"}},
	{"a block that copies a name from entry to entry",
		send(headers(1, append(append([]byte("\x40\x7f\xa1\x1e"), strings.Repeat("n", 4000)...),
			strings.Repeat("\x00\x7e", 100)+"\x00"...), true)), []string{"GOAWAY 0 ENHANCE_YOUR_CALM"}},
	{"RFC 7541 5.2: EOS", send(headers(1, append(get(), 0, 0x84, 0xff, 0xff, 0xff, 0xfc, 0), true)),
		[]string{"GOAWAY 0 COMPRESSION_ERROR"}},

	// streams
	{"5.1.1: an even id", send(headers(2, getBlock, true)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1.1: an id that is skipped is closed", send(headers(5, getBlock, true), headers(3, getBlock, true)),
		[]string{"GOAWAY 5 STREAM_CLOSED"}},
	{"5.1: DATA after END_STREAM", half1(data(1, "a", false)), []string{"RST_STREAM 1 STREAM_CLOSED"}},
	{"5.1: HEADERS after END_STREAM", half1(headers(1, block("a", "b"), true)), []string{"RST_STREAM 1 STREAM_CLOSED"}},
	{"5.1: WINDOW_UPDATE, PRIORITY and RST_STREAM after END_STREAM are allowed",
		half1(h2.AppendWindowUpdate(nil, 1, 1), priorityOf(1, "\x00\x00\x00\x03"), h2.AppendReset(nil, 1, h2.Cancel)),
		nil},
	{"5.1: DATA after RST_STREAM", open1(h2.AppendReset(nil, 1, h2.Cancel), data(1, "a", false)),
		[]string{"RST_STREAM 1 STREAM_CLOSED"}},
	{"5.1: HEADERS after RST_STREAM", open1(h2.AppendReset(nil, 1, h2.Cancel), headers(1, getBlock, true)),
		[]string{"GOAWAY 1 STREAM_CLOSED"}},
	{"5.1: WINDOW_UPDATE and RST_STREAM after RST_STREAM are ignored", open1(h2.AppendReset(nil, 1, h2.Cancel),
		h2.AppendWindowUpdate(nil, 1, 1), h2.AppendReset(nil, 1, h2.Cancel)), nil},
	{"5.1: after our RST_STREAM frames are ignored, and one RST_STREAM is enough",
		open1(h2.AppendWindowUpdate(nil, 1, 0), data(1, "abc", false), headers(1, block("a", "b"), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1: trailers that do not end the stream", open1(headers(1, block("a", "b"), false)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1: a pseudo-field in trailers", open1(headers(1, block(":path", "/"), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.4: PUSH_PROMISE", send(frame(h2.PushPromise, 4, 1, "\x00\x00\x00\x02")), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"8.5: HEADERS behind a CONNECT", send(headers(1, block(":method", "CONNECT", ":authority", "h:1"), false),
		headers(1, block("a", "b"), true)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.5: RST_STREAM, WINDOW_UPDATE and PRIORITY behind a CONNECT are allowed",
		send(headers(1, block(":method", "CONNECT", ":authority", "h:1"), false), h2.AppendWindowUpdate(nil, 1, 1),
			priorityOf(1, "\x00\x00\x00\x03"), data(1, "a", false), h2.AppendReset(nil, 1, h2.Cancel)), nil},

	// fields
	{"8.1.1: more DATA than Content-Length", func(r *rig) {
		r.write(headers(1, get("content-length", "2"), false), data(1, "abc", false))
	}, []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: less DATA than Content-Length", func(r *rig) {
		r.write(headers(1, get("content-length", "4"), false), data(1, "abc", true))
	}, []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: less DATA than Content-Length, then trailers", func(r *rig) {
		r.write(headers(1, get("content-length", "4"), false), data(1, "abc", false), headers(1, block("a", "b"), true))
	}, []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: no DATA, but a Content-Length", send(headers(1, get("content-length", "4"), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"6.1: padding is no part of Content-Length", func(r *rig) {
		r.write(headers(1, get("content-length", "3"), false),
			frame(h2.Data, h2.Padded|h2.EndStream, 1, "\x02abc\x00\x00"))
	}, nil},
	{"8.2: upper case", send(headers(1, append(get(), []byte("\x00\x01A\x01b")...), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.2.2: Connection", send(headers(1, get("connection", "close"), true)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.3: :status", send(headers(1, get(":status", "200"), true)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.5: CONNECT with :path", send(headers(1, block(":method", "CONNECT", ":authority", "h", ":path", "/"), false)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"RFC 8441 3: :protocol that was not offered", send(headers(1, block(":method", "CONNECT", ":protocol", "websocket",
		":scheme", "https", ":authority", "h", ":path", "/"), false)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},

	// priorities
	{"RFC 9218 7.1: PRIORITY_UPDATE for an idle stream", send(h2.AppendPriorityUpdate(nil, 1, "u=1")), nil},
	{"RFC 9218 7.1: a value that is no priority", send(h2.AppendPriorityUpdate(nil, 1, "?")), nil},
	{"RFC 9218 7.1: PRIORITY_UPDATE for stream 0", send(h2.AppendPriorityUpdate(nil, 0, "u=1")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"RFC 9218 7.1: PRIORITY_UPDATE for a server's stream", send(h2.AppendPriorityUpdate(nil, 2, "u=1")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"RFC 9218 7.1: PRIORITY_UPDATE on a stream", send(frame(h2.PriorityUpdate, 0, 1, "\x00\x00\x00\x01u=1")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
}

func TestServerRules(t *testing.T) {
	for _, v := range serverViolations {
		t.Run(v.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.greet()
			r.check(v)
		})
	}
}

// Section 3.4: what comes first.
func TestServerPreface(t *testing.T) {
	for _, v := range []violation{
		{"no preface", send([]byte("GET / HTTP/1.1\r\n\r\n")),
			[]string{"SETTINGS", "WINDOW_UPDATE", "GOAWAY 0 PROTOCOL_ERROR"}},
		{"the beginning of one", send([]byte(h2.Preface[:20])), []string{"SETTINGS", "WINDOW_UPDATE"}},
		{"no SETTINGS", send([]byte(h2.Preface), h2.AppendPing(nil, [8]byte{}, false)),
			[]string{"SETTINGS", "WINDOW_UPDATE", "GOAWAY 0 PROTOCOL_ERROR"}},
		{"an ACK first", send([]byte(h2.Preface), h2.AppendSettingsAck(nil)),
			[]string{"SETTINGS", "WINDOW_UPDATE", "GOAWAY 0 PROTOCOL_ERROR"}},
		{"no ACK in time (6.5.3)", func(r *rig) {
			r.write([]byte(h2.Preface), h2.AppendSettings(nil))
			r.RunFor(handshakeTimeout)
		}, []string{"SETTINGS", "WINDOW_UPDATE", "SETTINGS ACK", "GOAWAY 0 SETTINGS_TIMEOUT"}},
		{"nothing in time", func(r *rig) { r.RunFor(handshakeTimeout) },
			[]string{"SETTINGS", "WINDOW_UPDATE", "GOAWAY 0 SETTINGS_TIMEOUT"}},
	} {
		t.Run(v.name, func(t *testing.T) { newRig(t, Config{}).check(v) })
	}
}

var okBlock = block(":status", "200")

// A client has opened stream 1 with a request, and the server answers like this.
var clientViolations = []violation{
	{"6.6: PUSH_PROMISE", send(frame(h2.PushPromise, 4, 1, "\x00\x00\x00\x02")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1.1: HEADERS for a stream of the server", send(headers(2, okBlock, true)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1.1: HEADERS for an idle stream", send(headers(3, okBlock, true)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: DATA for an idle stream", send(data(3, "a", false)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: DATA for a stream of the server", send(data(2, "a", false)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: RST_STREAM for an idle stream", send(h2.AppendReset(nil, 3, h2.Cancel)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: WINDOW_UPDATE for an idle stream", send(h2.AppendWindowUpdate(nil, 3, 1)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"5.1: DATA after END_STREAM", send(headers(1, okBlock, true), data(1, "a", false)),
		[]string{"RST_STREAM 1 STREAM_CLOSED"}},
	{"5.1: HEADERS after END_STREAM", send(headers(1, okBlock, true), headers(1, okBlock, true)),
		[]string{"GOAWAY 0 STREAM_CLOSED"}},
	{"5.1: WINDOW_UPDATE, PRIORITY and RST_STREAM after END_STREAM are allowed", send(headers(1, okBlock, true),
		h2.AppendWindowUpdate(nil, 1, 1), priorityOf(1, "\x00\x00\x00\x03"), h2.AppendReset(nil, 1, h2.Cancel)), nil},
	{"5.5: unknown types are ignored", send(frame(77, 255, 1, "abc")), nil},
	{"4.2: a frame that is too large", send(h2.AppendHeader(nil, 1<<14+1, h2.Data, 0, 1)),
		[]string{"GOAWAY 0 FRAME_SIZE_ERROR"}},
	{"4.3: a block that is no HPACK", send(headers(1, []byte{0xff, 0x00}, true)),
		[]string{"GOAWAY 0 COMPRESSION_ERROR"}},
	{"RFC 7541 6.3: a size update above the setting",
		send(headers(1, append([]byte{0x3f, 0xe2, 0x1f}, okBlock...), true)), []string{"GOAWAY 0 COMPRESSION_ERROR"}},
	{"6.10: a block is interrupted", send(frame(h2.Headers, 0, 1, ""), frame(h2.Ping, 0, 0, "12345678")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.10: CONTINUATION alone", send(frame(h2.Continuation, 4, 1, "")), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.10: a block that continues", send(frame(h2.Headers, h2.EndStream, 1, string(okBlock[:1])),
		frame(h2.Continuation, h2.EndHeaders, 1, string(okBlock[1:]))), nil},
	{"6.1: padding as long as the payload", send(headers(1, okBlock, false), frame(h2.Data, h2.Padded, 1, "\x04abc")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.5: one ACK for each", send(h2.AppendSettings(nil), h2.AppendSettings(nil)),
		[]string{"SETTINGS ACK", "SETTINGS ACK"}},
	{"6.5.2: unknown settings are ignored", send(h2.AppendSettings(nil, h2.Setting{ID: 99, Value: 1 << 31})),
		[]string{"SETTINGS ACK"}},
	{"6.5.2: a window that is too large",
		send(h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 31})),
		[]string{"GOAWAY 0 FLOW_CONTROL_ERROR"}},
	{"6.7: PING", send(frame(h2.Ping, 0, 0, "12345678")), []string{"PING ACK 12345678"}},
	{"6.7: a PING's ACK is not answered", send(frame(h2.Ping, h2.Ack, 0, "12345678")), nil},
	{"6.9: WINDOW_UPDATE by 0 for a stream", send(h2.AppendWindowUpdate(nil, 1, 0)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"6.9: WINDOW_UPDATE by 0 for the connection", send(h2.AppendWindowUpdate(nil, 0, 0)),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"6.9.1: a stream's window overflows", send(h2.AppendWindowUpdate(nil, 1, 1<<31-1)),
		[]string{"RST_STREAM 1 FLOW_CONTROL_ERROR"}},
	{"6.9.1: the connection's window overflows", send(h2.AppendWindowUpdate(nil, 0, 1<<31-1)),
		[]string{"GOAWAY 0 FLOW_CONTROL_ERROR"}},
	{"8.1: trailers that do not end the stream",
		send(headers(1, okBlock, false), headers(1, block("a", "b"), false)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1: a pseudo-field in trailers", send(headers(1, okBlock, false), headers(1, block(":status", "200"), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.2: upper case", send(headers(1, append(append([]byte{}, okBlock...), "\x00\x01A\x01b"...), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: HEAD with DATA", func(r *rig) {
		r.onLoop(r.s.WithoutBody)
		r.write(headers(1, block(":status", "200", "content-length", "3"), false), data(1, "abc", true))
	}, []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: HEAD with a Content-Length", func(r *rig) {
		r.onLoop(r.s.WithoutBody)
		r.write(headers(1, block(":status", "200", "content-length", "3"), true))
	}, nil},
	{"8.5: a CONNECT that is accepted has no Content-Length", func(r *rig) {
		r.onLoop(r.s.Tunnel)
		r.write(headers(1, block(":status", "200", "content-length", "1"), false), data(1, "abc", true))
	}, nil},
	{"8.5: HEADERS behind a CONNECT that is accepted", func(r *rig) {
		r.onLoop(r.s.Tunnel)
		r.write(headers(1, okBlock, false), data(1, "abc", false), headers(1, block("a", "b"), true))
	}, []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.5: a CONNECT that is refused is answered as any request", func(r *rig) {
		r.onLoop(r.s.Tunnel)
		r.write(headers(1, block(":status", "407", "content-length", "3"), false), data(1, "abc", false),
			headers(1, block("a", "b"), true))
	}, nil},
	{"8.1: DATA before HEADERS", send(data(1, "a", false)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1: an interim response that ends", send(headers(1, block(":status", "103"), true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.6: 101", send(headers(1, block(":status", "101"), false)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.3.2: no :status", send(headers(1, block("a", "b"), true)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: less than Content-Length", send(headers(1, block(":status", "200", "content-length", "3"), false),
		data(1, "ab", true)), []string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1.1: 304 with a Content-Length",
		send(headers(1, block(":status", "304", "content-length", "3"), true)), nil},
	{"8.1.1: 204 with DATA", send(headers(1, block(":status", "204"), false), data(1, "ab", true)),
		[]string{"RST_STREAM 1 PROTOCOL_ERROR"}},
	{"8.1: interim, final, data, trailers", send(headers(1, block(":status", "103"), false), headers(1, okBlock, false),
		data(1, "ab", false), headers(1, block("a", "b"), true)), nil},
	{"6.5.2: a server enables push", send(h2.AppendSettings(nil, h2.Setting{ID: h2.EnablePush, Value: 1})),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
	{"RFC 8441 3: the extended CONNECT is taken back", send(
		h2.AppendSettings(nil, h2.Setting{ID: h2.EnableConnectProtocol, Value: 1}),
		h2.AppendSettings(nil, h2.Setting{ID: h2.EnableConnectProtocol, Value: 0})),
		[]string{"SETTINGS ACK", "GOAWAY 0 PROTOCOL_ERROR"}},
	{"RFC 9218 7.1: PRIORITY_UPDATE", send(h2.AppendPriorityUpdate(nil, 1, "u=1")),
		[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
}

func TestClientRules(t *testing.T) {
	for _, v := range clientViolations {
		t.Run(v.name, func(t *testing.T) {
			r := newRig(t, Config{Client: true})
			r.greet()
			r.s = r.request(true)
			r.want("HEADERS 1 :method=GET")
			r.check(v)
		})
	}
}

// request opens a stream at a client.
func (r *rig) request(last bool) *testStream {
	r.t.Helper()
	s := r.openSoon(last)
	r.settle()
	return s
}

// openSoon has the loop open a stream.
func (r *rig) openSoon(last bool) *testStream {
	r.t.Helper()
	s := &testStream{r: r}
	s.in.Reset(r.conn.cfg.Window, true)
	s.Init(s)
	r.doOnLoop(func() {
		if err := r.conn.Open(&s.Stream); err != nil {
			r.t.Errorf("Open: %v", err)
		}
		head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
		if err := s.Put(head, nil, last); err != nil {
			r.t.Errorf("Put: %v", err)
		}
	})
	return s
}

// onLoop runs f on the loop.
func (r *rig) onLoop(f func()) {
	r.t.Helper()
	r.doOnLoop(f)
	r.settle()
}

// doOnLoop has f run on the loop.
func (r *rig) doOnLoop(f func()) {
	r.t.Helper()
	if err := r.conn.Conn.c.Loop().Do(f); err != nil {
		r.t.Fatal(err)
	}
}

// The dynamic table follows blocks for streams that take none (RFC 7541 section 2.2).
func TestTableFollowsRefusedStreams(t *testing.T) {
	r := newRig(t, Config{Streams: 1})
	r.greet()
	indexed := append(append([]byte{}, getBlock...), 0x40, 1, 'k', 1, 'v') // k: v, into the table
	reference := append(append([]byte{}, getBlock...), 0xbe)               // what came last into the table
	r.write(headers(1, getBlock, false), headers(3, indexed, true))
	r.want("RST_STREAM 3 REFUSED_STREAM")
	r.write(data(1, "", true))
	r.settle()
	reply(r.conn.streams[1], "")
	r.want("HEADERS 1 :status=200")
	r.write(headers(5, reference, true))
	r.settle()
	if got := r.conn.streams[5].head.Fields; len(got) != 1 || got[0] != (hpack.Field{Name: "k", Value: "v"}) {
		t.Errorf("fields %v", got)
	}
	if n := r.cfg.Counters.Refused.Load(); n != 1 {
		t.Errorf("%d refused", n)
	}
}
