package load

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
)

// A redisTalk sends the same command again and again.
type redisTalk struct {
	all     []byte // the command, Plan.Pipeline times
	replier redisReplies
}

func newRedisTalk(p *part) *redisTalk {
	words := p.Command
	if len(words) == 0 {
		words = []string{"SET", "key:1", strings.Repeat("x", p.Size)}
	}
	one := []byte("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, word := range words {
		one = append(one, "$"+strconv.Itoa(len(word))+"\r\n"+word+"\r\n"...)
	}
	return &redisTalk{all: bytes.Repeat(one, p.Pipeline)}
}

func (t *redisTalk) request(time.Time) []byte { return t.all }

func (t *redisTalk) closing() bool { return false }

func (t *redisTalk) ends() (int64, error) { return 0, nil }

func (t *redisTalk) replies(p []byte) (done, refused int64, reason string, err error) {
	return t.replier.take(p)
}

// A redisReplies finds the ends of replies in a stream of bytes (RESP2 and RESP3). It keeps no
// value; of a line it keeps what has come.
type redisReplies struct {
	line  []byte  // an incomplete line
	skip  int64   // bytes of a bulk string that are still to come, with its CRLF
	wants []int64 // how many values each aggregate that is open still has, the innermost last
}

const (
	longestLine  = 64 << 10
	deepestReply = 32
)

var errRESP = errors.New("malformed reply")

// take takes in p. An error reply on its own is a refusal; reason is its first word.
func (r *redisReplies) take(p []byte) (done, refused int64, reason string, err error) {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, int64(len(p)))
			p = p[n:]
			if r.skip -= n; r.skip == 0 {
				done += r.value()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			r.line = append(r.line, p...)
			if len(r.line) > longestLine {
				return done, refused, reason, errRESP
			}
			break
		}
		line := append(r.line, p[:end]...)
		r.line, p = r.line[:0], p[end+1:]
		n, failed, err := r.header(bytes.TrimSuffix(line, []byte("\r")))
		if err != nil {
			return done, refused, reason, err
		}
		if done += n; failed != "" {
			refused, reason = refused+n, failed
		}
	}
	return done, refused, reason, nil
}

// header takes in the first line of a value.
func (r *redisReplies) header(line []byte) (done int64, failed string, err error) {
	if len(line) == 0 {
		return 0, "", errRESP
	}
	switch line[0] {
	case '-':
		word, _, _ := bytes.Cut(line[1:], []byte(" "))
		return r.value(), firstWords(string(word)), nil
	case '+', ':', '_', '#', ',', '(':
		return r.value(), "", nil
	case '$', '=', '!':
		n, err := strconv.ParseInt(string(line[1:]), 10, 64)
		if err != nil || n < -1 {
			return 0, "", errRESP
		}
		if n < 0 {
			return r.value(), "", nil
		}
		r.skip = n + 2
		return 0, "", nil
	case '*', '~', '%', '>', '|':
		return r.aggregate(line)
	}
	return 0, "", errRESP
}

// aggregate opens an array, a set, a map, a push or attributes.
func (r *redisReplies) aggregate(line []byte) (done int64, failed string, err error) {
	n, err := strconv.ParseInt(string(line[1:]), 10, 32)
	if err != nil || n < -1 || len(r.wants) == deepestReply {
		return 0, "", errRESP
	}
	if line[0] == '%' || line[0] == '|' {
		n *= 2
	}
	if line[0] == '|' {
		n++ // the value that they belong to
	}
	if n <= 0 {
		return r.value(), "", nil
	}
	r.wants = append(r.wants, n)
	return 0, "", nil
}

// value notes the end of a value, and returns 1 if that completes a reply.
func (r *redisReplies) value() int64 {
	for len(r.wants) > 0 {
		top := len(r.wants) - 1
		if r.wants[top]--; r.wants[top] > 0 {
			return 0
		}
		r.wants = r.wants[:top]
	}
	return 1
}
