// Package centrifuge is the door for the Centrifuge client protocol v2, in JSON and Protobuf, over
// WebSockets and over responses that do not end.
//
// commands.go turns what clients send into operations of a session. centrifuge.go has the paths,
// and the forms in which clients get publications. socket.go and stream.go are the transports. The
// codec is package push/internal/centrifuge.
//
// Not implemented: map subscriptions and shared polls.
package centrifuge

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/server/push/internal/fossil"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// A Door is the Centrifuge client protocol over its transports.
type Door struct{}

// New returns the door.
func New() Door { return Door{} }

// Forms implements Door.
func (Door) Forms() []hub.Form {
	return []hub.Form{
		form{centrifuge.JSON, inSocket, false},
		form{centrifuge.Protobuf, inSocket, false},
		form{centrifuge.JSON, inResponse, false},
		form{centrifuge.Protobuf, inResponse, false},
		form{centrifuge.JSON, inEvents, false},
		form{centrifuge.JSON, inSocket, true},
		form{centrifuge.Protobuf, inSocket, true},
		form{centrifuge.JSON, inResponse, true},
		form{centrifuge.JSON, inEvents, true},
	}
}

// Open implements Door. The paths are below /connection/, and /emulation.
func (Door) Open(h *hub.Hub) (clients, admin func(*http.ServeMux)) {
	sockets, streams := newSockets(h), newStreams(h)
	h.MoveStreams(streams)
	return func(mux *http.ServeMux) {
		for path, serve := range map[string]http.HandlerFunc{
			"/connection/websocket":       sockets.serve,
			"/connection/uni_websocket":   sockets.serveUni,
			"/connection/http_stream":     streams.serveResponse,
			"/connection/sse":             streams.serveEvents,
			"/connection/uni_http_stream": streams.serveUniResponse,
			"/connection/uni_sse":         streams.serveUniEvents,
		} {
			mux.HandleFunc(path, h.UnlessDraining(h.LimitConnections(servesAll(path, serve))))
		}
		mux.HandleFunc("/emulation", h.UnlessDraining(streams.serveEmulation))
	}, nil
}

// parameters are those of the protocol in a query, with the values that the server serves. A client
// that asks for another one would wait for what does not come.
var parameters = map[string][]string{
	"cf_protocol": {"json", "protobuf"}, "cf_protocol_version": {"v2"}, "format": {"json", "protobuf"},
}

// servesAll answers 400 to a request with a parameter of the protocol that the server does not
// serve at that path. Other parameters are the application's.
func servesAll(path string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			served, known := parameters[name]
			switch {
			case !known && !strings.HasPrefix(name, "cf_"), values[0] == "":
			case name == "cf_connect" && strings.HasSuffix(path, "sse"): // the first commands
			case !slices.Contains(served, values[0]):
				answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code,
					fmt.Sprintf("the parameter %s=%s is not served",
						name,
						values[0]))
				return
			}
		}
		next(w, r)
	}
}

// A framing is how messages stand in a connection.
type framing uint8

const (
	inSocket   framing = iota // a message is a WebSocket message
	inResponse                // a message is a line of a response; in Protobuf it has its length before it
	inEvents                  // a message is an event of Server-Sent Events
)

// A form writes replies and pushes.
type form struct {
	codec   centrifuge.Codec
	framing framing
	uni     bool // clients send nothing after connect, and read pushes without replies around them
}

func (f form) Publications(channel string, list []bus.Publication) []byte {
	dst := make([]byte, 0, hub.EncodedSize(channel, list))
	for i := range list {
		shown := f.shown(&list[i])
		dst = f.appendPush(dst, &centrifuge.Push{Channel: channel, Publication: &shown})
	}
	return f.frame(dst)
}

// Deltas implements DeltaForm. In JSON the data of such a publication is a string: the delta, or
// the text of the whole data.
func (f form) Deltas(channel string, list []bus.Publication, base *bus.Publication) []byte {
	dst := make([]byte, 0, hub.EncodedSize(channel, list))
	for i := range list {
		shown := f.shown(&list[i])
		if whole := shown.Data; base != nil {
			before := f.shown(base)
			shown.Data = fossil.Append(nil, before.Data, whole)
			if shown.Delta = len(shown.Data) < len(whole) && f.carries(shown.Data); !shown.Delta {
				shown.Data = whole
			}
		}
		f.quote(&shown)
		base = &list[i]
		dst = f.appendPush(dst, &centrifuge.Push{Channel: channel, Publication: &shown})
	}
	return f.frame(dst)
}

// carries reports whether data can be in a message.
func (f form) carries(data []byte) bool {
	return f.codec == centrifuge.Protobuf || utf8.Valid(data)
}

// quote turns the data of a publication into the string that clients expect that get deltas.
func (f form) quote(p *centrifuge.Publication) {
	if f.codec == centrifuge.JSON {
		p.Data = centrifuge.AppendString(nil, p.Data)
	}
}

// shown returns p as clients see it. JSON has no bytes, so that other kinds of data become strings.
func (f form) shown(p *bus.Publication) centrifuge.Publication {
	data := p.Data
	if f.codec == centrifuge.JSON {
		data = hub.JSONOf(p)
	}
	return centrifuge.Publication{Data: data, Client: p.Client, User: p.User, Offset: p.Offset, Tags: p.Tags}
}

// listed returns publications for a reply.
func (f form) listed(list []bus.Publication) []centrifuge.Publication {
	shown := make([]centrifuge.Publication, len(list))
	for i := range list {
		shown[i] = f.shown(&list[i])
	}
	return shown
}

func (f form) Notice(channel string, n bus.Notice) []byte {
	push, info := centrifuge.Push{Channel: channel}, centrifuge.ClientInfo(n.ClientInfo)
	if n.Joined {
		push.Join = &info
	} else {
		push.Leave = &info
	}
	return f.frame(f.appendPush(nil, &push))
}

func (f form) Unsubscribed(channel string, why answer.Unsubscription) []byte {
	told := centrifuge.Unsubscribed(why)
	return f.frame(f.appendPush(nil, &centrifuge.Push{Channel: channel, Unsubscribe: &told}))
}

func (f form) Ping() (payload []byte, answered bool) {
	return f.frame([]byte(f.codec.Ping())), !f.uni
}

// Subscribed implements form. The push has no place for publications that the client has missed:
// they follow it, and the position is the one before them.
func (f form) Subscribed(channel string, hello hub.Welcome) []byte {
	told := centrifuge.SubscribeResult{Recoverable: hello.Recoverable, Position: centrifuge.Position(hello.At),
		Data: f.answerData(hello.Data)}
	if len(hello.Publications) > 0 {
		told.Offset = hello.Publications[0].Offset - 1
	}
	dst := f.appendPush(nil, &centrifuge.Push{Channel: channel, Subscribe: &told})
	for i := range hello.Publications {
		shown := f.shown(&hello.Publications[i])
		dst = f.appendPush(dst, &centrifuge.Push{Channel: channel, Publication: &shown})
	}
	return f.frame(dst)
}

func (f form) Refreshed(ttl uint32) []byte {
	told := centrifuge.RefreshResult{Expires: ttl > 0, TTL: ttl}
	return f.frame(f.appendPush(nil, &centrifuge.Push{Refresh: &told}))
}

// lastMessage says why a response ends. A WebSocket's close frame says it by itself.
func (f form) lastMessage(why answer.Disconnect) []byte {
	told := centrifuge.Disconnect(why)
	return f.frame(f.appendPush(nil, &centrifuge.Push{Disconnect: &told}))
}

func (f form) Share(payload []byte) hub.Shared {
	switch {
	case f.framing != inSocket:
		return web.NewChunk(payload)
	case f.codec == centrifuge.Protobuf:
		return hub.PrepareMessage(websocket.OpBinary, payload)
	}
	return hub.PrepareMessage(websocket.OpText, payload)
}

// socket returns the transport for a WebSocket.
func (f form) socket(c *websocket.Conn) hub.Transport {
	if f.codec == centrifuge.Protobuf {
		return hub.BinarySocket{TextSocket: hub.TextSocket{Conn: c}}
	}
	return hub.TextSocket{Conn: c}
}

func (f form) OneWay() bool { return f.uni }

// IsEvents implements hub.EventForm.
func (f form) IsEvents() bool { return f.framing == inEvents }

func (f form) Kind() (transport, protocol string) {
	transport = [...]string{"websocket", "http_stream", "sse"}[f.framing]
	if f.uni {
		transport = "uni_" + transport
	}
	if f.codec == centrifuge.Protobuf {
		return transport, "protobuf"
	}
	return transport, "json"
}

// contentType is the type of a response.
func (f form) contentType() string {
	switch {
	case f.framing == inEvents:
		return "text/event-stream"
	case f.codec == centrifuge.Protobuf:
		return octetStream
	}
	return "application/json"
}

const octetStream = "application/octet-stream"

func (f form) appendPush(dst []byte, push *centrifuge.Push) []byte {
	if f.uni {
		return f.codec.AppendPush(dst, push)
	}
	return f.codec.AppendReply(dst, &centrifuge.Reply{Push: push})
}

// frame makes messages of the replies that the codec has appended. It may change them.
func (f form) frame(replies []byte) []byte {
	switch {
	case f.framing == inResponse && f.codec == centrifuge.JSON:
		return append(replies, '\n')
	case f.framing == inEvents:
		var events []byte
		for line := range bytes.SplitSeq(replies, []byte("\n")) {
			events = append(append(append(events, "data: "...), line...), "\n\n"...)
		}
		return events
	}
	return replies
}
