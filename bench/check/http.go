package check

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/myriad-go/myriad/bench/load"
)

const (
	path        = "/plaintext"
	answer      = "Hello, World!"
	contentType = "text/plain"
)

// slow is how long a server takes for these, at least.
const (
	slowPath  = "/slow"
	sleepPath = path + "?sleep"
	burnPath  = path + "?burn"
	slow      = 5 * time.Millisecond
)

func get(path string) []byte { return []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n") }

// HTTP is for servers that answer a small request, sent depth times in one write on a connection
// that is kept.
func HTTP(depth int) Check { return requests(dial, path, depth) }

// HTTPS is the same through TLS 1.3.
func HTTPS(depth int) Check {
	ask := requests(dialTLS, path, depth)
	return func(addr string) (load.Talk, error) {
		talk, err := ask(addr)
		talk.TLS = true
		return talk, err
	}
}

// HTTPSlow is for servers that answer one path at once, and with the same answer another one after
// a while.
func HTTPSlow(addr string) (load.Talk, error) { return slowly(addr, slowPath) }

// HTTPTail is for those that take a while for the same path, if its query says so.
func HTTPTail(addr string) (load.Talk, error) { return slowly(addr, sleepPath) }

// HTTPBurn is for those that use the processor all that while.
func HTTPBurn(addr string) (load.Talk, error) { return slowly(addr, burnPath) }

func slowly(addr, target string) (load.Talk, error) {
	quick, err := HTTP(1)(addr)
	if err != nil {
		return quick, err
	}
	began := time.Now()
	late, err := requests(dial, target, 1)(addr)
	switch took := time.Since(began); {
	case err != nil:
		return quick, fmt.Errorf("the slow one: %w", err)
	case took < 2*slow: // it has been asked for twice
		return quick, fmt.Errorf("two slow answers took %v, not at least %v", took, 2*slow)
	case late.Reply.Size != quick.Reply.Size:
		return quick, fmt.Errorf("the slow answer has %d bytes, not %d", late.Reply.Size, quick.Reply.Size)
	}
	quick.Slow = late.Request
	return quick, nil
}

func requests(dial func(addr string) (net.Conn, error), path string, depth int) Check {
	return func(addr string) (load.Talk, error) {
		talk := load.Talk{Request: bytes.Repeat(get(path), depth), Requests: depth}
		c, err := dial(addr)
		if err != nil {
			return talk, err
		}
		defer c.Close()
		var raw bytes.Buffer
		r := bufio.NewReader(io.TeeReader(c, &raw))
		for range 2 {
			if _, err := c.Write(talk.Request); err != nil {
				return talk, err
			}
			for range depth {
				if err := readAnswer(r); err != nil {
					return talk, err
				}
			}
		}
		if n := r.Buffered(); n > 0 {
			return talk, fmt.Errorf("%d bytes are behind the last reply", n)
		}
		// All answers have the same size, or this is not one of them.
		size := raw.Len() / (2 * depth)
		talk.Reply = load.Reply{Size: size, Prefix: []byte("HTTP/1.1 200 "), Suffix: []byte("\r\n\r\n" + answer)}
		for one := range 2 * depth {
			if p := raw.Bytes()[one*size:][:size]; !bytes.HasPrefix(p, talk.Reply.Prefix) ||
				!bytes.HasSuffix(p, talk.Reply.Suffix) {
				return talk, fmt.Errorf("answer %d does not have the size of the others, %d bytes: %q", one+1, size, p)
			}
		}
		return talk, quiet(c)
	}
}

func readAnswer(r *bufio.Reader) error {
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer's body: %w", err)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("the status is %q, not 200", res.Status)
	case string(body) != answer:
		return fmt.Errorf("the body is %.100q, not %q", body, answer)
	case res.ContentLength != int64(len(answer)):
		return fmt.Errorf("the answer is framed by %v and not by Content-Length", res.TransferEncoding)
	case !strings.HasPrefix(res.Header.Get("Content-Type"), contentType):
		return fmt.Errorf("the Content-Type is %q, not %q", res.Header.Get("Content-Type"), contentType)
	case res.Close || res.ProtoMinor != 1:
		return fmt.Errorf("the connection is not kept: %s with Connection %q", res.Proto, res.Header.Get("Connection"))
	}
	if _, err := http.ParseTime(res.Header.Get("Date")); err != nil {
		return fmt.Errorf("the Date, which RFC 9110 §6.6.1 demands, is %q", res.Header.Get("Date"))
	}
	return nil
}
