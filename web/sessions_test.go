package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/httpscript"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file plays sessions of testdata over sockets: with net/http's server and with this one, or
// with this one alone. Each of these commands is a connection:
//
//	ask METHOD TARGET [HTTP/1.0] [FIELD...] [TEXT...]   requests, and one for "/last" that ends it
//	ask            the same in each of everyWay
//	only ...       requests without the last
//	half ...       requests, behind which the client ends its side
//	expect CLIENT HEAD   a request that expects 100 Continue, see continued
//	exact ..., onlyexact ..., halfexact ...   the same, and shows the bytes that come
//
// These are about one connection, which the first of them makes:
//
//	say ...        requests, or other bytes
//	head, answer   reads the head of an answer, or a whole one
//	fin, reset     the client ends its side, or resets the connection
//	end            reads to the end of the connection
//
// The words of a request may be a Go string with all its bytes. Handlers have the steps of
// likeVerbs and userVerbs, too.

// everyWay are requests that are answered in different ways.
var everyWay = []string{
	`GET /`, `HEAD /`, `GET / HTTP/1.0`, `GET / HTTP/1.0 "Connection: keep-alive"`, `GET / "Connection: close"`,
	`POST / "Content-Length: 5" hello`, `POST / "Transfer-Encoding: chunked" "5\r\nhello\r\n0\r\n\r\n"`,
}

// in11 are those whose client understands 1xx.
var in11 = []int{0, 1, 4, 5, 6}

// A likeSession is a case that is being played on one of the two servers.
type likeSession struct {
	t      *testing.T
	f      *fixture
	h      *httpscript.Handler
	logged int // bytes of the log that were shown

	conn    net.Conn
	in      *bufio.Reader
	methods []string // of requests that are not answered
}

func playLikeNetHTTP(t *testing.T, file string) { playOnSockets(t, file, "net/http", "here") }

func playOnSockets(t *testing.T, file string, servers ...string) {
	httpscript.Run(t, "testdata/"+file, func(t *testing.T, server string, c httpscript.Settings,
		h *httpscript.Handler) httpscript.Player {
		t.Parallel()
		s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/last" {
				io.WriteString(w, "last")
				return
			}
			h.ServeHTTP(w, r)
		})}
		configure(t, s, c)
		prepareHandler(t, h)
		begin := serve
		if server == "net/http" {
			begin = serveStandard
		}
		return &likeSession{t: t, f: begin(t, s), h: h}
	}, servers...)
}

// prepareHandler gives h the steps of these sessions.
func prepareHandler(t *testing.T, h *httpscript.Handler) {
	h.Now, h.Go, h.Verbs = time.Now, func(f func()) { go f() }, maps.Clone(likeVerbs)
	for name, verb := range userVerbs(t) {
		h.Verbs[name] = func(c *httpscript.Call, _ []string) error { verb(c, c.W, c.R); return nil }
	}
}

// Do runs a command.
func (x *likeSession) Do(c *httpscript.Command) (lines []string, err error) {
	if c.Verb == "expect" {
		e := expecting[c.Args[1]]
		lines = continued(x.t, x.f, e.head, e.body, patience(c.Args[0]))
	}
	for _, r := range requestsOf(c) {
		came := x.connection(r.text, strings.HasPrefix(c.Verb, "half"), strings.HasSuffix(c.Verb, "exact"))
		if r.name != "" {
			lines = append(lines, r.name)
			for i := range came {
				came[i] = "  " + came[i]
			}
		}
		lines = append(lines, came...)
	}
	if len(lines) > 0 {
		return append(lines, x.noted()...), nil
	}
	return x.step(c)
}

// step runs a command about the one connection.
func (x *likeSession) step(c *httpscript.Command) (lines []string, err error) {
	if x.conn == nil {
		x.conn = dial(x.t, x.f)
		x.in = bufio.NewReader(x.conn)
	}
	method := "GET"
	if len(x.methods) > 0 {
		method = x.methods[0]
	}
	switch c.Verb {
	case "say":
		text := httpscript.Requests(c.Args)
		x.methods = append(x.methods, httpscript.Methods(text)...)
		_, _ = io.WriteString(x.conn, text) // whether all is taken shows in what comes
		return nil, nil
	case "fin":
		closeWrite(x.conn)
		return nil, nil
	case "reset":
		_ = x.conn.(*net.TCPConn).SetLinger(0)
		x.conn.Close()
		return x.noted(), nil
	case "head":
		for line := ""; line != "\r\n" && err == nil; {
			line, err = x.in.ReadString('\n')
			lines = append(lines, httpscript.Plain(strings.TrimSpace(line)))
		}
		return []string{strings.Join(lines, " | ")}, err
	case "answer":
		a, err := httpscript.ReadAnswer(x.in, method)
		if err != nil {
			return []string{httpscript.Plain(err.Error())}, nil
		}
		if a.StatusCode >= 200 && len(x.methods) > 0 {
			x.methods = x.methods[1:]
		}
		return []string{a.Whole()}, nil
	case "end":
		got, err := io.ReadAll(x.in)
		x.conn.Close()
		return append(described(string(got), err, x.methods), x.noted()...), nil
	}
	return nil, fmt.Errorf("no command %q", c.Verb)
}

// A request is what is sent on one connection; name tells it from others of its command.
type request struct{ name, text string }

// requestsOf are those of a command.
func requestsOf(c *httpscript.Command) (all []request) {
	ways := everyWay
	switch {
	case slices.Contains([]string{"only", "half", "onlyexact", "halfexact"}, c.Verb):
		return []request{{"", httpscript.Requests(c.Args)}}
	case c.Verb != "ask" && c.Verb != "exact":
		return nil
	case len(c.Args) == 1 && c.Args[0] == "1.1":
		ways = nil
		for _, i := range in11 {
			ways = append(ways, everyWay[i])
		}
	case len(c.Args) > 0:
		return []request{{"", httpscript.Requests(c.Args) + last}}
	}
	for _, way := range ways {
		words, err := httpscript.Words(way)
		if err != nil {
			panic(err)
		}
		text := httpscript.Requests(words)
		if !strings.Contains(way, "close") && (!strings.Contains(way, "1.0") || strings.Contains(way, "keep-alive")) {
			text += last
		}
		all = append(all, request{way, text})
	}
	return all
}

// connection is what comes of requests on a connection of their own.
func (x *likeSession) connection(text string, fin, exact bool) (lines []string) {
	got, err := sent(x.t, x.f, text, fin)
	if exact { // net/http may reset behind its last answer
		if got = httpscript.Headed(got); len(got) > 2000 {
			return []string{httpscript.Quote(got)}
		}
		return []string{fmt.Sprintf("%q", got)}
	}
	return described(got, err, httpscript.Methods(text))
}

// described is what came for requests of these methods, and how the connection ended.
func described(got string, err error, methods []string) (lines []string) {
	all, rest := httpscript.Answers(got, methods...)
	for _, a := range all {
		if a.String() == `200 close "last"` {
			lines = append(lines, "last")
		} else {
			lines = append(lines, a.Whole())
		}
	}
	if rest != "" {
		lines = append(lines, "then "+fmt.Sprintf("%.1000q", httpscript.Headed(rest)))
	}
	if err != nil {
		lines = append(lines, "then "+httpscript.Plain(err.Error()))
	}
	if len(lines) == 0 {
		lines = []string{"nothing"}
	}
	return lines
}

var callerInLog = regexp.MustCompile(` from [^ ]* \([^)]*\)`)

// noted is what handlers have noted, and the log, since the last call.
func (x *likeSession) noted() []string {
	within(x.t, "all handlers have returned", func() bool { return x.h.Running() == 0 })
	lines := httpscript.Together(x.h.Notes())
	all := x.f.log.String()
	for line := range strings.SplitSeq(all[x.logged:], "\n") {
		if strings.HasPrefix(line, "http: ") {
			lines = append(lines, "log: "+callerInLog.ReplaceAllString(httpscript.Plain(line), ""))
		}
	}
	x.logged = len(all)
	return lines
}

// likeVerbs are steps that take more than a call.
var likeVerbs = map[string]httpscript.Verb{
	// a TimeoutHandler with so much time
	"intime": func(c *httpscript.Call, _ []string) error {
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", "b")
			w.WriteHeader(201)
			io.WriteString(w, "hello")
			_, ok := r.Context().Deadline()
			c.Note("has a deadline: %t", ok)
		}), time.Hour, "late").ServeHTTP(c.W, c.R)
		return nil
	},
	"toolate": func(c *httpscript.Call, _ []string) error {
		answered, gone := make(chan struct{}), make(chan error, 1)
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", "b")
			<-answered // a TimeoutHandler that is held up finds both ended, the time and this, and chance decides
			_, err := io.WriteString(w, "hello")
			gone <- errors.Join(err, context.Cause(r.Context()))
		}), 5*time.Millisecond, "late").ServeHTTP(c.W, c.R)
		close(answered)
		c.Note("its time is over: %t", errors.Is(<-gone, context.DeadlineExceeded))
		return nil
	},
	"servecontent": func(c *httpscript.Call, _ []string) error {
		http.ServeContent(c.W, c.R, "a.txt", time.Unix(1e9, 0), strings.NewReader("0123456789"))
		return nil
	},
	"copies": func(c *httpscript.Call, args []string) error {
		_, _ = io.Copy(c.W, io.LimitReader(strings.NewReader(httpscript.Text(args[0])), 1000))
		return nil
	},
	"changemethod": func(c *httpscript.Call, args []string) error { c.R.Method = args[0]; return nil },
	// whether the context outlives a read deadline
	"goeson": func(c *httpscript.Call, _ []string) error {
		ended := "goes on"
		select {
		case <-c.R.Context().Done():
			ended = "ended"
		case <-time.After(hangs):
		case <-ours(c.W):
			time.Sleep(10 * time.Millisecond) // it can only fail to find the fault
		}
		io.WriteString(c.W, ended)
		return nil
	},
	"asked": func(c *httpscript.Call, _ []string) error {
		r := c.R
		fmt.Fprintf(c.W, "%s %s %q %s %v %t", r.Method, r.URL, r.Host, r.RequestURI, r.Header, r.Close)
		return nil
	},
	"mux": func(c *httpscript.Call, _ []string) error {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /item/{id}/{rest...}", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %q %q", r.Pattern, r.PathValue("id"), r.PathValue("rest"))
		})
		mux.ServeHTTP(c.W, c.R)
		return nil
	},
}

// ours is ready for this server's ResponseWriter.
func ours(w http.ResponseWriter) <-chan struct{} {
	ready := make(chan struct{})
	if _, yes := w.(*exchange.Given); yes {
		close(ready)
	}
	return ready
}

func TestAnswersLikeNetHTTP(t *testing.T) { playLikeNetHTTP(t, "written_answers.txt") }

func TestFailingBodiesLikeNetHTTP(t *testing.T) { playLikeNetHTTP(t, "failing_bodies.txt") }
func TestHalfClosedLikeNetHTTP(t *testing.T)    { playLikeNetHTTP(t, "half_closed.txt") }
func TestFullDuplexLikeNetHTTP(t *testing.T)    { playLikeNetHTTP(t, "full_duplex.txt") }
func TestDecidedAnswers(t *testing.T)           { playLikeNetHTTP(t, "decided.txt") }
func TestStrictness(t *testing.T)               { playOnSockets(t, "strict.txt") }
func TestFraming(t *testing.T)                  { playOnSockets(t, "framing.txt") }
