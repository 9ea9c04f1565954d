package load

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A feeder is what a talk does with bytes.
type feeder interface {
	replies(p []byte) (done, refused int64, reason string, err error)
}

type redisFeeder struct{ redisReplies }

func (f *redisFeeder) replies(p []byte) (int64, int64, string, error) { return f.take(p) }

// outcome feeds p in pieces of the given size, and says what came out.
func outcome(f feeder, p []byte, size int) string {
	var done, refused int64
	for len(p) > 0 {
		n := min(size, len(p))
		d, r, _, err := f.replies(p[:n])
		done, refused, p = done+d, refused+r, p[n:]
		if err != nil {
			return "error"
		}
	}
	return fmt.Sprintf("%d done, %d refused", done, refused)
}

var responses = []struct{ name, input, want string }{
	{"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "1 done, 0 refused"},
	{"two", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny",
		"2 done, 0 refused"},
	{"no body", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "2 done, 0 refused"},
	{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "1 done, 0 refused"},
	{"trailer",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n" +
			"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
		"2 done, 1 refused"},
	{"interim", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
		"1 done, 1 refused"},
	{"incomplete", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "0 done, 0 refused"},
	{"garbage", "SSH-2.0-x\r\n\r\n", "error"},
}

func TestResponsesInPieces(t *testing.T) {
	for _, test := range responses {
		for size := 1; size <= len(test.input); size++ {
			if got := outcome(newHTTPTalk(nil, 1, false), []byte(test.input), size); got != test.want {
				t.Errorf("%s in pieces of %d: %s, want %s", test.name, size, got, test.want)
			}
		}
	}
}

func FuzzResponses(f *testing.F) {
	for _, test := range responses {
		f.Add([]byte(test.input), 3)
	}
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		whole := outcome(newHTTPTalk(nil, 1, false), p, max(1, len(p)))
		if got := outcome(newHTTPTalk(nil, 1, false), p, 1+max(size, 0)%64); got != whole {
			t.Errorf("in pieces: %s; whole: %s", got, whole)
		}
	})
}

func TestBodyThatEndsWithItsConnection(t *testing.T) {
	talk := newHTTPTalk(nil, 1, false)
	if done, _, _, err := talk.replies([]byte("HTTP/1.0 200 OK\r\n\r\nhello")); done != 0 || err != nil {
		t.Fatalf("%d replies, error %v before the end", done, err)
	}
	if done, err := talk.ends(); done != 1 || err != nil || !talk.closing() {
		t.Errorf("%d replies, error %v at the end, closing %v", done, err, talk.closing())
	}
	short := newHTTPTalk(nil, 1, false)
	_, _, _, _ = short.replies([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"))
	if _, err := short.ends(); err == nil {
		t.Error("a body that was cut off counts as whole")
	}
}

var redisReply = []struct{ name, input, want string }{
	{"simple", "+OK\r\n:1\r\n", "2 done, 0 refused"},
	{"bulk", "$5\r\nhello\r\n$-1\r\n$0\r\n\r\n", "3 done, 0 refused"},
	{"error", "-ERR no\r\n", "1 done, 1 refused"},
	{"array", "*3\r\n:1\r\n$1\r\nx\r\n*2\r\n+a\r\n+b\r\n+OK\r\n", "2 done, 0 refused"},
	{"empty", "*0\r\n*-1\r\n", "2 done, 0 refused"},
	{"map", "%1\r\n+a\r\n*1\r\n:1\r\n_\r\n#t\r\n,1.5\r\n(12\r\n", "5 done, 0 refused"},
	{"attribute", "|1\r\n+ttl\r\n:5\r\n$1\r\nx\r\n", "1 done, 0 refused"},
	{"incomplete", "*2\r\n:1\r\n", "0 done, 0 refused"},
	{"garbage", "HTTP/1.1 400\r\n", "error"},
	{"length", "$x\r\n", "error"},
}

func TestRedisRepliesInPieces(t *testing.T) {
	for _, test := range redisReply {
		for size := 1; size <= len(test.input); size++ {
			if got := outcome(&redisFeeder{}, []byte(test.input), size); got != test.want {
				t.Errorf("%s in pieces of %d: %s, want %s", test.name, size, got, test.want)
			}
		}
	}
}

func FuzzRedisReplies(f *testing.F) {
	for _, test := range redisReply {
		f.Add([]byte(test.input), 3)
	}
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		whole := outcome(&redisFeeder{}, p, max(1, len(p)))
		if got := outcome(&redisFeeder{}, p, 1+max(size, 0)%64); got != whole {
			t.Errorf("in pieces: %s; whole: %s", got, whole)
		}
	})
}

func TestPublicationsAreFoundInMessages(t *testing.T) {
	due := time.Unix(1764000000, 123456789)
	one := appendPublication(nil, 41, due, 128)
	if len(one) != 128 {
		t.Errorf("%d bytes, want 128", len(one))
	}
	message := bytes.Join([][]byte{[]byte(`{"push":{"channel":"x","pub":{"data":`), one, []byte(`,"offset":7}}}`),
		appendPublication(nil, 42, due, 64), []byte(`{"seq":9}`)}, nil)
	var got []string
	eachNumber(message, func(number, at int64) { got = append(got, fmt.Sprint(number, at == due.UnixNano())) })
	if fmt.Sprint(got) != "[41 true 42 true]" {
		t.Errorf("found %v", got)
	}
}

// A mould takes exactly the messages that a server sends for one publication. What it does not
// take, eachNumber finds.
func TestMouldsTakeWhatTheyDescribe(t *testing.T) {
	due := time.Unix(1764000000, 123456789)
	for _, size := range []int{smallestPublication, 128, 4096} {
		m := newMould(`lo"ad0`, size)
		message := func(number int64) string {
			data := appendPublication(nil, number, due, size)
			return `{"push":{"channel":"lo\"ad0","pub":{"data":` + string(data) + `}}}`
		}
		for _, number := range []int64{1, 42, 1_000_000} {
			got, at, ok := m.parse([]byte(message(number)))
			if got != number || at != due.UnixNano() || !ok {
				t.Errorf("%d bytes: number %d, due %d, %t of %s", size, got, at, ok, message(number))
			}
		}
		whole := message(42)
		for i := range whole {
			if _, _, ok := m.parse([]byte(whole[:i])); ok {
				t.Errorf("%q is taken", whole[:i])
			}
			for _, other := range []byte{'y', '"', '}', '0' - 1} {
				damaged := []byte(whole)
				if damaged[i] == other || '0' <= damaged[i] && damaged[i] <= '9' && i > len(m.before)-1 {
					continue
				}
				damaged[i] = other
				if number, _, ok := m.parse(damaged); ok {
					t.Errorf("%q is taken, with number %d", damaged, number)
				}
			}
		}
		for _, other := range []string{whole + "}", whole + "\n" + whole, strings.Replace(whole, `}}}`,
			`,"offset":7}}}`, 1),
			strings.Replace(message(42), `"xx`, `"x`, 1), strings.Replace(message(42), `:42,`, `:0,`, 1)} {
			if _, _, ok := m.parse([]byte(other)); ok {
				t.Errorf("%q is taken", other)
			}
		}
	}
}

// A message of several lines, with and without offsets, is taken in whole.
func TestMessagesOfSeveralLines(t *testing.T) {
	a := newAudience(&part{Plan: Plan{Kind: Push, Connections: 1, Channels: 1, Size: 64}.withDefaults()})
	s := &a.subscribers[0]
	now := time.Now()
	line := func(number int64, more string) string {
		return `{"push":{"channel":"load0","pub":{"data":` + string(appendPublication(nil, number, now,
			64)) + more + `}}}`
	}
	text := line(1, "") + "\n" + line(2, `,"offset":7`) + "\n\n" + line(3, "") + "\n"
	s.messages(nil, nil, []byte(text), now)
	if p := a.collect(); p.Deliveries != 3 || p.Missing != 0 || p.Duplicates != 0 || s.offset != 7 {
		t.Errorf("%d deliveries, %d missing, %d twice, offset %d", p.Deliveries, p.Missing, p.Duplicates, s.offset)
	}
}
