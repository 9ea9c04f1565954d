package httpscript

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An Answer is what a client gets for a request, or a part of it.
type Answer struct {
	*http.Response
	Text []byte // the body as far as it came
	Err  error  // of reading the body
}

var methods = regexp.MustCompile(`([A-Z]+) [^\r\n]* HTTP/1`)

// Methods are those of pipelined requests.
func Methods(requests string) (all []string) {
	for _, m := range methods.FindAllStringSubmatch(requests, -1) {
		all = append(all, m[1])
	}
	return all
}

// Requests are what the words of a command ask: METHOD PATH begins a request, behind which HTTP/1.0
// may stand. Words with ": " in them are its fields, and those behind its body. Words in front of
// any request are bytes as they are.
func Requests(words []string) string { return strings.Join(Each(words), "") }

// Each is Requests, one by one.
func Each(words []string) (all []string) {
	var last []string // what the words are about
	body := false
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case begins(words[i:]):
			all, body = append(all, last...), false
			last = targets(words[i+1])
			version := "HTTP/1.1"
			if i++; i+1 < len(words) && words[i+1] == "HTTP/1.0" {
				version = "HTTP/1.0"
				i++
			}
			for j, target := range last {
				last[j] = fmt.Sprintf("%s %s %s\r\nHost: h\r\n\r\n", word, target, version)
			}
		case !body && last != nil && field.MatchString(word):
			name, value, _ := strings.Cut(word, ": ")
			for j, head := range last {
				last[j] = strings.TrimSuffix(head, "\r\n") + name + ": " + Text(value) + "\r\n\r\n"
			}
		default:
			if body = true; last == nil {
				last = []string{""} // bytes as they are
			}
			for j := range last {
				last[j] += Text(word)
			}
		}
	}
	return append(all, last...)
}

// targets are those of a word: /0..9 are ten, and /quick*3 is three times the same.
func targets(word string) (all []string) {
	from, to := 0, 0
	if n, err := fmt.Sscanf(word, "/%d..%d", &from, &to); n == 2 && err == nil {
		for ; from <= to; from++ {
			all = append(all, fmt.Sprint("/", from))
		}
		return all
	}
	path, times, _ := strings.Cut(word, "*")
	if n, err := strconv.Atoi(times); err == nil {
		return slices.Repeat([]string{path}, n)
	}
	return []string{word}
}

var (
	method = regexp.MustCompile(`^[A-Z]+$`)
	field  = regexp.MustCompile(`^[^\r\n]+: [^\r\n]*$`)
)

// begins reports whether the words begin with a method and its target.
func begins(words []string) bool {
	return len(words) > 1 && method.MatchString(words[0]) && (words[0] == "CONNECT" || words[1] == "*" ||
		strings.HasPrefix(words[1], "/") || strings.HasPrefix(words[1], "http://"))
}

// Together joins lines that are the same.
func Together(lines []string) (all []string) {
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		if line := lines[i]; n > 2 {
			all = append(all, fmt.Sprintf("%d times: %s", n, line))
		} else {
			all = append(all, lines[i:i+n]...)
		}
		i += n
	}
	return all
}

// Answers reads what came for requests of these methods, and returns what follows that is no
// answer, or not the whole head of one. A missing method is GET.
func Answers(came string, methods ...string) (all []Answer, rest string) {
	in := bufio.NewReader(strings.NewReader(came))
	for read := 0; ; {
		method := "GET"
		if len(methods) > 0 {
			method = methods[0]
		}
		began := came[read:]
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return all, began
		}
		text, err := io.ReadAll(resp.Body)
		all = append(all, Answer{resp, text, err})
		if read = len(came) - in.Buffered(); resp.StatusCode >= 200 && len(methods) > 0 {
			methods = methods[1:]
		}
		if resp.StatusCode == http.StatusSwitchingProtocols || err != nil {
			return all, came[read:]
		}
	}
}

// ReadAnswer reads an answer to a request of that method.
func ReadAnswer(in *bufio.Reader, method string) (Answer, error) {
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return Answer{}, err
	}
	text, err := io.ReadAll(resp.Body)
	return Answer{resp, text, err}, nil
}

// String is the status, whether the answer ends the connection, its body and its trailer.
func (a Answer) String() string {
	s := fmt.Sprint(a.StatusCode)
	if a.Close {
		s += " close"
	}
	if len(a.Text) > 0 || a.StatusCode >= 200 {
		text := string(a.Text)
		if len(text) < 16<<10 {
			text = Plain(text)
		}
		s += " " + Quote(text)
	}
	if a.Err != nil {
		s += " " + a.Err.Error()
	}
	if len(a.Trailer) > 0 {
		s += " trailer " + Fields(a.Trailer)
	}
	return s
}

// Whole is String with the version, the framing, and all fields in the order of their names.
func (a Answer) Whole() string {
	if a.Header.Get("Date") != "" {
		a.Header.Set("Date", "#")
	}
	s := fmt.Sprintf("%s %s", a.Proto, a.Status)
	if a.ContentLength >= 0 {
		s += fmt.Sprint(" length ", a.ContentLength)
	}
	for _, coding := range a.TransferEncoding {
		s += " " + coding
	}
	rest := strings.TrimPrefix(a.String(), fmt.Sprint(a.StatusCode))
	return Plain(fmt.Sprintf("%s %s%s", s, Fields(a.Header), rest))
}

// Quote is s as a Go string, or what it is if it is long.
func Quote(s string) string {
	if len(s) <= 200 {
		return fmt.Sprintf("%q", s)
	}
	if strings.Trim(s, s[:1]) == "" {
		return fmt.Sprintf("%d*%q", len(s), s[:1])
	}
	return fmt.Sprintf("%d bytes with the checksum %08x", len(s), crc32.ChecksumIEEE([]byte(s)))
}

// Fields are a header's, in the order of their names.
func Fields(h http.Header) string {
	var all []string
	for name, values := range h {
		text := fmt.Sprintf("%q", values)
		if len(text) > 1000 {
			text = Quote(text)
		}
		all = append(all, name+"="+text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

var chance = regexp.MustCompile(`[0-9a-f]{60}|127\.0\.0\.1:\d+|0x[0-9a-f]+|goroutine \d+|(Date: )[^\r\n]* GMT`)

// Plain is s without what chance and the system have chosen.
func Plain(s string) string { return chance.ReplaceAllString(s, "${1}#") }

// Headed is what a server has sent, with the fields of each head in the order of their names.
func Headed(sent string) string {
	parts := strings.SplitAfter(Plain(sent), "\r\n\r\n")
	for i, part := range parts {
		if lines := strings.Split(strings.TrimSuffix(part, "\r\n\r\n"), "\r\n"); strings.HasSuffix(part, "\r\n\r\n") &&
			strings.Contains(lines[0], "HTTP/1.") {
			slices.Sort(lines[1:])
			parts[i] = strings.Join(lines, "\r\n") + "\r\n\r\n"
		}
	}
	return strings.Join(parts, "")
}
