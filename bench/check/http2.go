package check

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/myriad-go/myriad/bench/load"
)

// An asker asks a server over one HTTP/2 connection.
type asker struct {
	fr   *http2.Framer
	next uint32
}

// An exchange is what came back on a stream.
type exchange struct {
	head, trailer map[string]string
	body          []byte
}

// HTTP2 is for servers that answer a small request over HTTP/2, so many streams at a time.
func HTTP2(streams int) Check { return plain2(dial, "http", streams) }

// HTTP2S is the same through TLS 1.3, where ALPN chooses HTTP/2.
func HTTP2S(streams int) Check {
	ask := plain2(dialALPN, "https", streams)
	return func(addr string) (load.Talk, error) {
		talk, err := ask(addr)
		talk.TLS = true
		return talk, err
	}
}

func plain2(dial func(addr string) (net.Conn, error), scheme string, streams int) Check {
	one := headersFrame(true, ":method", "GET", ":scheme", scheme, ":path", path, ":authority", "localhost",
		"user-agent", "bench")
	return muxed(dial, one, streams, len(answer), func(x exchange) error {
		length := x.head["content-length"]
		switch kind := x.head["content-type"]; {
		case string(x.body) != answer:
			return fmt.Errorf("the body is %.100q, not %q", x.body, answer)
		case length != fmt.Sprint(len(answer)):
			return fmt.Errorf("the Content-Length is %q", length)
		case kind != "" && !strings.HasPrefix(kind, contentType): // nghttpd serves a file without one
			return fmt.Errorf("the Content-Type is %q, not %q", kind, contentType)
		}
		if _, err := http.ParseTime(x.head["date"]); err != nil {
			return fmt.Errorf("the Date, which RFC 9110 §6.6.1 demands, is %q", x.head["date"])
		}
		return nil
	})
}

// GRPC is for servers of the method /bench.Echo/Say, which sends its message back.
func GRPC(streams int) Check {
	message := []byte("\x00\x00\x00\x00\x0f\x0a\x0d" + answer) // a google.protobuf.StringValue
	call := headersFrame(false, ":method", "POST", ":scheme", "http", ":path", "/bench.Echo/Say", ":authority",
		"localhost", "content-type", "application/grpc", "te", "trailers", "user-agent", "grpc-bench")
	call = append(call, frames(func(fr *http2.Framer) error { return fr.WriteData(1, true, message) })...)
	return muxed(dial, call, streams, len(message), func(x exchange) error {
		switch status := x.trailer["grpc-status"]; {
		case !bytes.Equal(x.body, message):
			return fmt.Errorf("the message is %.100q, not %q", x.body, message)
		case x.head["content-type"] != "application/grpc":
			return fmt.Errorf("the Content-Type is %q", x.head["content-type"])
		case status != "0":
			return fmt.Errorf("the status in the trailers is %q", status)
		}
		return nil
	})
}

// muxed asks so many times at once, twice, and judges all that comes back. one is the frames of a
// request on stream 1.
func muxed(dial func(addr string) (net.Conn, error), one []byte, streams, size int, judge func(exchange) error) Check {
	return func(addr string) (load.Talk, error) {
		talk := load.Talk{
			Preface: frames(func(fr *http2.Framer) error {
				return fr.WriteSettings(http2.Setting{ID: http2.SettingEnablePush})
			}),
			Request: bytes.Repeat(one, streams), Requests: streams,
			Reply: load.Reply{Size: size, Framing: load.Streams},
		}
		talk.Preface = append([]byte(http2.ClientPreface), talk.Preface...)
		talk.Preface = append(talk.Preface, frames(func(fr *http2.Framer) error {
			if err := fr.WriteSettingsAck(); err != nil {
				return err
			}
			return fr.WriteWindowUpdate(0, 1<<31-1-65535) // so that a driver need not send any
		})...)
		c, err := dial(addr)
		if err != nil {
			return talk, err
		}
		defer c.Close()
		if _, err := c.Write(talk.Preface); err != nil {
			return talk, err
		}
		a := &asker{fr: http2.NewFramer(c, c), next: 1}
		a.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		for range 2 {
			bodies, err := a.ask(c, one, streams, judge)
			if err != nil {
				return talk, err
			}
			talk.Reply.Prefix = bodies
		}
		return talk, nil
	}
}

// ask sends the request so many times, and returns the body, which all answers have.
func (a *asker) ask(c net.Conn, one []byte, streams int, judge func(exchange) error) (body []byte, err error) {
	open := map[uint32]*exchange{}
	for range streams {
		if _, err := c.Write(numbered(one, a.next)); err != nil {
			return nil, err
		}
		open[a.next] = &exchange{}
		a.next += 2
	}
	for len(open) > 0 {
		frame, err := a.fr.ReadFrame()
		if err != nil {
			return nil, fmt.Errorf("reading the answer: %w", err)
		}
		x, over, err := take(open[frame.Header().StreamID], frame)
		if err != nil {
			return nil, err
		}
		if over {
			if err := judge(*x); err != nil {
				return nil, err
			}
			body = x.body
			delete(open, frame.Header().StreamID)
		}
	}
	return body, nil
}

// take adds a frame to its exchange. It reports whether that is over.
func take(x *exchange, frame http2.Frame) (_ *exchange, over bool, err error) {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		if x == nil {
			return nil, false, fmt.Errorf("an answer on stream %d, which is not open", f.StreamID)
		}
		fields := map[string]string{}
		for _, field := range f.Fields {
			fields[field.Name] = field.Value
		}
		if x.head != nil {
			x.trailer = fields
		} else if x.head = fields; fields[":status"] != "200" {
			return nil, false, fmt.Errorf("the status is %q, not 200", fields[":status"])
		}
		return x, f.StreamEnded(), nil
	case *http2.DataFrame:
		if x == nil || x.head == nil {
			return nil, false, fmt.Errorf("data on stream %d without a head", f.StreamID)
		}
		if f.Length != uint32(len(f.Data())) {
			return nil, false, fmt.Errorf("data of stream %d is padded", f.StreamID)
		}
		x.body = append(x.body, f.Data()...)
		return x, f.StreamEnded(), nil
	case *http2.RSTStreamFrame:
		return nil, false, fmt.Errorf("stream %d is reset: %v", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		return nil, false, fmt.Errorf("the server ends the connection: %v %s", f.ErrCode, f.DebugData())
	}
	return nil, false, nil
}

// numbered is a request's frames with another stream.
func numbered(one []byte, stream uint32) []byte {
	p := bytes.Clone(one)
	for rest := p; len(rest) > 0; {
		rest[5], rest[6], rest[7], rest[8] = byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream)
		rest = rest[9+(int(rest[0])<<16|int(rest[1])<<8|int(rest[2])):]
	}
	return p
}

// frames is what write writes.
func frames(write func(*http2.Framer) error) []byte {
	var b bytes.Buffer
	if err := write(http2.NewFramer(&b, nil)); err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

// headersFrame is HEADERS on stream 1. Its fields are not indexed, so that it may be sent again.
func headersFrame(last bool, pairs ...string) []byte {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0)
	block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		if err := enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}); err != nil {
			panic(err) // a buffer takes everything
		}
	}
	return frames(func(fr *http2.Framer) error {
		return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true,
			EndStream: last})
	})
}

// dialALPN is dialTLS where HTTP/2 is chosen.
func dialALPN(addr string) (net.Conn, error) {
	c, err := dialTLSWith(addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return nil, err
	}
	if chosen := c.ConnectionState().NegotiatedProtocol; chosen != "h2" {
		c.Close()
		return nil, fmt.Errorf("ALPN has chosen %q, not h2", chosen)
	}
	return c, nil
}
