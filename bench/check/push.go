package check

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/myriad-go/myriad/bench/load"
)

// channel is the channel of all subscribers; publishers use POST with {"channel": "news",
// "data": …}.
const channel = "news"

// publication is the data of size bytes that is published: a JSON string.
func publication(size int) string { return `"` + string(payload(size-2)) + `"` }

// Servers with the app push-pinging ping each subscriber so often, as far as its protocol has
// pings, and want the answer within so long.
const (
	PingEvery  = time.Second
	PongWithin = time.Second / 2
)

// Servers with the app push-recovery keep the last HistorySize publications of each channel for
// HistoryAge. A subscriber that comes back is given those that it has missed.
const (
	HistorySize = 100
	HistoryAge  = 5 * time.Minute
)

// Push is a way in which a push server is subscribed to.
type Push struct {
	hello   string
	welcome string
	join    []byte
	joined  string
	deliver func(data string) load.Reply // a publication, without what frames it
	framing load.Framing
	publish func(addr, data string) (load.Talk, error) // nil: publishes
}

var (
	// Events are Server-Sent Events, chunk by chunk (RFC 9112 §7.1). The first chunk says that the
	// subscription stands.
	Events = Push{
		hello:   "GET /events?channel=" + channel + " HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
		welcome: "HTTP/1.1 200 ", joined: "\n\n\r\n",
		deliver: func(data string) load.Reply { return whole([]byte("data: " + data + "\n\n")) },
		framing: load.Chunks,
	}
	// Mercure is the Mercure protocol, whose events have ids that the hub makes. Publishers send
	// forms to the same path.
	Mercure = Push{
		hello: "GET " + hub + "?topic=" + channel + " HTTP/1.1\r\nHost: localhost\r\n" +
			"Accept: text/event-stream\r\n\r\n",
		welcome: "HTTP/1.1 200 ", joined: "\n\n\r\n",
		deliver: func(data string) load.Reply {
			const begin = "id: urn:uuid:"
			end := "\ndata: " + data + "\n\n"
			return load.Reply{Size: len(begin) + 36 + len(end), Prefix: []byte(begin), Suffix: []byte(end)}
		},
		framing: load.Chunks, publish: publishesForms,
	}
	// Redis is Pub/Sub of the Redis protocol, for publishers, too.
	Redis = Push{
		join:    command("SUBSCRIBE", channel),
		joined:  string(command("subscribe", channel))[len("*2"):] + ":1\r\n",
		deliver: func(data string) load.Reply { return whole(command("message", channel, data)) },
		publish: publishesCommands,
	}
	// Centrifuge is the Centrifuge client protocol over WebSocket, in JSON.
	Centrifuge = Push{
		hello: strings.Replace(hello, "GET /", "GET /connection/websocket", 1), welcome: "HTTP/1.1 101 ",
		join: append(load.ClientFrame([]byte(`{"id":1,"connect":{}}`)),
			load.ClientFrame([]byte(`{"id":2,"subscribe":{"channel":"`+channel+`"}}`))...),
		joined: `{"id":2,"subscribe":{}}`,
		deliver: func(data string) load.Reply {
			return whole([]byte(`{"push":{"channel":"` + channel + `","pub":{"data":` + data + `}}}`))
		},
		framing: load.Lines,
	}
	// Protobuf is the same protocol in Protobuf: a message has its length before it.
	Protobuf = Push{
		hello:   strings.Replace(hello, "GET /", "GET /connection/websocket?cf_protocol=protobuf", 1),
		welcome: "HTTP/1.1 101 ",
		join: append(load.ClientFrame([]byte("\x04\x08\x01\x22\x00")),
			load.ClientFrame([]byte("\x0a\x08\x02\x2a\x06"+string(field(1, channel))))...),
		joined: "\x04\x08\x02\x32\x00",
		deliver: func(data string) load.Reply {
			push := append(field(2, channel), field(4, string(field(4, data)))...)
			return whole(field(0, string(field(4, string(push))))[1:])
		},
		framing: load.Messages,
	}
	// Tokens is Centrifuge for a server that wants a token for the connection and another one for
	// the subscription.
	Tokens = func() Push {
		p := Centrifuge
		connect := token(`{"sub":"ann"}`)
		subscribe := token(`{"sub":"ann","channel":"` + channel + `"}`)
		p.join = append(load.ClientFrame([]byte(`{"id":1,"connect":{"token":"`+connect+`"}}`)),
			load.ClientFrame([]byte(`{"id":2,"subscribe":{"channel":"`+channel+`","token":"`+subscribe+`"}}`))...)
		return p
	}()
	// Plain is a WebSocket whose every message is a publication's data, without asking for a
	// channel.
	Plain = Push{
		hello: hello, welcome: "HTTP/1.1 101 ", framing: load.Lines,
		deliver: func(data string) load.Reply { return whole([]byte(data)) },
	}
)

// hub is where a Mercure hub is.
const hub = "/.well-known/mercure"

// command is an array of strings in the Redis protocol.
func command(words ...string) []byte {
	text := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(word), word)
	}
	return text
}

// field is a field of Protobuf with a length.
func field(number int, text string) []byte {
	return append(binary.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(text))), text...)
}

// TokenSecret is the secret of the tokens in Tokens.
const TokenSecret = "a-secret-of-thirty-two-bytes-000"

// token is a JSON Web Token with claims, signed by HS256 (RFC 7515 §3.1).
func token(claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, []byte(TokenSecret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// receive reads a publication that is framed as when there is no other to join it.
func (p Push) receive(c net.Conn, want load.Reply) error {
	end := ""
	switch p.framing {
	case load.Chunks:
		end = "\r\n"
		if err := receive(c, fmt.Appendf(nil, "%x\r\n", want.Size)); err != nil {
			return err
		}
	case load.Lines, load.Messages:
		framed := load.ServerFrame(make([]byte, want.Size))
		if p.framing == load.Messages {
			framed[0] = 0x82 // FIN and the opcode of binary
		}
		if err := receive(c, framed[:len(framed)-want.Size]); err != nil {
			return err
		}
	}
	got := make([]byte, want.Size)
	if n, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, want.Size, err)
	}
	if !bytes.HasPrefix(got, want.Prefix) || !bytes.HasSuffix(got, want.Suffix) {
		return fmt.Errorf("it is %.300q, not %.150q … %.150q", got, want.Prefix, want.Suffix)
	}
	return receive(c, []byte(end))
}

// Pushed is for servers that deliver publications of size bytes to subscribers of p.
func Pushed(p Push, size int) Check {
	data := publication(size)
	return func(addr string) (load.Talk, error) {
		find := p.publish
		if find == nil {
			find = publishes
		}
		publish, err := find(addr, data)
		if err != nil {
			return load.Talk{}, err
		}
		talk := load.Talk{
			Hello: []byte(p.hello), Welcome: []byte(p.welcome), Join: p.join, Joined: []byte(p.joined),
			Reply: p.deliver(data), Publication: &publish,
		}
		talk.Reply.Framing = p.framing
		return talk, p.deliveries(addr, talk)
	}
}

// publishesCommands finds out whether PUBLISH is answered with the number of subscribers.
func publishesCommands(addr, data string) (load.Talk, error) {
	talk := load.Talk{Request: command("PUBLISH", channel, data), Requests: 1,
		Reply: load.Reply{Prefix: []byte(":"), Suffix: []byte("\r\n"), Framing: load.Numbers}}
	c, err := dial(addr)
	if err != nil {
		return talk, err
	}
	defer c.Close()
	for range 2 {
		if err := expect(c, talk.Request, []byte(":0\r\n")); err != nil {
			return talk, fmt.Errorf("PUBLISH: %w", err)
		}
	}
	return talk, quiet(c)
}

// publishesForms is publishes for a Mercure hub.
func publishesForms(addr, data string) (load.Talk, error) {
	body := url.Values{"topic": {channel}, "data": {data}}.Encode()
	return posts(addr, hub, "application/x-www-form-urlencoded", body)
}

// publishes finds out how a publication by the HTTP API is answered.
func publishes(addr, data string) (load.Talk, error) {
	return posts(addr, "/api/publish", "application/json", `{"channel":"`+channel+`","data":`+data+`}`)
}

// posts finds out how a request is answered: always alike, with status 200.
func posts(addr, path, kind, body string) (load.Talk, error) {
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: "+
		"%d\r\n\r\n%s", path, kind, len(body), body)
	talk := load.Talk{Request: request, Requests: 1}
	c, err := dial(addr)
	if err != nil {
		return talk, err
	}
	defer c.Close()
	var raw bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &raw))
	for i := range 2 {
		if _, err := c.Write(request); err != nil {
			return talk, err
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return talk, fmt.Errorf("publishing: %w", err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK || res.Close {
			return talk, fmt.Errorf("a publication is answered with %q, closing %v: %w", res.Status, res.Close, err)
		}
		if i == 0 {
			talk.Reply = load.Reply{Size: raw.Len(), Prefix: []byte("HTTP/1.1 200 ")}
		}
	}
	if raw.Len() != 2*talk.Reply.Size {
		return talk, fmt.Errorf("two publications are answered by %d bytes, the first one by %d", raw.Len(),
			talk.Reply.Size)
	}
	return talk, quiet(c)
}

// deliveries subscribes twice, publishes twice, and reads what comes.
func (p Push) deliveries(addr string, talk load.Talk) error {
	members, leave, err := p.members(addr)
	if err != nil {
		return err
	}
	defer leave()
	publisher, err := dial(addr)
	if err != nil {
		return err
	}
	defer publisher.Close()
	for range 2 {
		if _, err := publisher.Write(talk.Publication.Request); err != nil {
			return err
		}
		for _, c := range members {
			if err := p.receive(c, talk.Reply); err != nil {
				return fmt.Errorf("a publication: %w", err)
			}
		}
	}
	return errors.Join(quiet(members[0]), quiet(members[1]))
}

// joining is how long a server that says nothing has for noting a subscriber.
const joining = 50 * time.Millisecond

// members subscribes twice, and gives the server, or the other nodes, time to note it: not every
// protocol says that a subscription stands.
func (p Push) members(addr string) (list []net.Conn, leave func(), err error) {
	leave = func() {
		for _, c := range list {
			c.Close()
		}
	}
	for range 2 {
		c, err := p.subscribe(addr)
		if err != nil {
			leave()
			return nil, nil, fmt.Errorf("subscribing: %w", err)
		}
		list = append(list, c)
	}
	time.Sleep(joining)
	return list, leave, nil
}

// subscribe reads byte by byte, so as to leave what comes later.
func (p Push) subscribe(addr string) (net.Conn, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	if err := p.greet(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (p Push) greet(c net.Conn) error {
	if p.hello != "" {
		if _, err := io.WriteString(c, p.hello); err != nil {
			return err
		}
		head, err := upTo(c, "\r\n\r\n")
		if err != nil || !strings.HasPrefix(head, p.welcome) {
			return fmt.Errorf("the answer is %.300q: %w", head, err)
		}
	}
	if _, err := c.Write(p.join); err != nil {
		return err
	}
	if p.joined == "" {
		return nil
	}
	_, err := upTo(c, p.joined)
	return err
}

func upTo(c net.Conn, end string) (string, error) {
	var text []byte
	for one := make([]byte, 1); !bytes.HasSuffix(text, []byte(end)); text = append(text, one[0]) {
		if len(text) > 8<<10 {
			return "", fmt.Errorf("%.300q goes on without %q", text, end)
		}
		if _, err := c.Read(one); err != nil {
			return string(text), fmt.Errorf("no %q in %.300q: %w", end, text, err)
		}
	}
	return string(text), nil
}
