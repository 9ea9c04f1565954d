package check

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/myriad-go/myriad/bench/load"
)

const (
	path        = "/plaintext"
	answer      = "Hello, World!"
	contentType = "text/plain"
)

// HTTP is for servers that answer a small request, sent depth times in one write on a connection that is kept.
func HTTP(depth int) Check {
	request := []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return func(addr string) (load.Talk, error) {
		talk := load.Talk{Request: bytes.Repeat(request, depth), Requests: depth}
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
			if p := raw.Bytes()[one*size:][:size]; !bytes.HasPrefix(p, talk.Reply.Prefix) || !bytes.HasSuffix(p, talk.Reply.Suffix) {
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
