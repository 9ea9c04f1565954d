package httpscript

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Handler does what the steps of a case say, and notes what comes of them. A request for which
// there are no steps is answered with its path.
//
// A route begins with a path, a method, both or "*", and a colon; steps are separated by
// semicolons. Steps of net/http's methods:
//
//	set, add, del NAME VALUE   the header; add does not change the name, and nil and none NAME have no values
//	status N, write TEXT, copy, error N TEXT, redirect N URL, duplex, hijack
//	flush, tryflush            http.Flusher's, which says nothing, and http.ResponseController's
//	readdeadline, writedeadline D   from now on; "none" lifts it
//	read N, readfull N, readall, reads N, discard, close   the body; reads N reads to its end
//	limit N                    puts http.MaxBytesReader in front of it
//	panic TEXT, panic error TEXT, panic, abort, exit   none of them returns
//
// Other steps:
//
//	piece TEXT                 a write and a flush, and what came of both
//	10 times STEP, go STEP     a step often, or beside the next
//	try STEP                   and the panic that it ends with
//	failed STEP, unfailed STEP if a read has failed, or has not
//	done                       waits for the end of the context
//	show WORD...               notes what Call.show says
//	conn write TEXT, conn readall, conn close   a hijacked connection
//
// Reads note what they return. Of other steps only what fails is noted.
type Handler struct {
	Now   func() time.Time
	Go    func(func())
	Verbs map[string]Verb // of the test itself

	routes []route

	mu            sync.Mutex
	notes         []note
	running, most int
}

// A note is a line about a request.
type note struct{ path, text string }

// A Verb is a step that a test adds.
type Verb func(c *Call, args []string) error

type route struct {
	method, path string // "": any
	steps        [][]string
}

// A Call is one request that a Handler handles.
type Call struct {
	W    http.ResponseWriter
	R    *http.Request
	h    *Handler
	err  error    // of the last read
	conn net.Conn // hijacked
	rw   *bufio.ReadWriter
}

// add adds a route: "POST /path: step; step".
func (h *Handler) add(text string) error {
	pattern, steps, found := strings.Cut(text, ":")
	if !found {
		return fmt.Errorf("no colon in %q", text)
	}
	var r route
	for _, word := range strings.Fields(pattern) {
		switch {
		case word[0] == '/':
			r.path = word
		case word != "*":
			r.method = word
		}
	}
	all, err := Words(steps)
	if err != nil {
		return err
	}
	step := []string{}
	for _, word := range all {
		ends := strings.HasSuffix(word, ";") && !strings.ContainsAny(word, " \r\n")
		if word = strings.TrimSuffix(word, map[bool]string{true: ";"}[ends]); word != "" || !ends {
			step = append(step, word)
		}
		if ends {
			r.steps, step = append(r.steps, step), nil
		}
	}
	if len(step) > 0 {
		r.steps = append(r.steps, step)
	}
	h.routes = append(h.routes, r)
	return nil
}

// Note adds a line about a path, which the next command shows.
func (h *Handler) Note(path, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, note{path, Plain(path + " " + fmt.Sprintf(format, args...))})
}

// Notes returns the lines that came since the last call: those of each path together, because which
// of several handlers came first is chance.
func (h *Handler) Notes() (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.notes, func(a, b note) int {
		return cmp.Or(cmp.Compare(len(a.path), len(b.path)), strings.Compare(a.path, b.path))
	})
	for _, n := range h.notes {
		lines = append(lines, n.text)
	}
	h.notes = nil
	return lines
}

// Running is how many handlers run.
func (h *Handler) Running() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// Most is how many handlers have run at a time.
func (h *Handler) Most() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.running++
	h.most = max(h.most, h.running)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.running--
		h.mu.Unlock()
	}()
	c := &Call{W: w, R: r, h: h}
	for _, route := range h.routes {
		if route.method != "" && route.method != r.Method || route.path != "" && route.path != r.URL.Path {
			continue
		}
		for _, step := range route.steps {
			if err := c.Do(step); err != nil {
				c.Note("step %q: %v", step, err)
				return
			}
		}
		return
	}
	_, _ = io.WriteString(w, r.URL.Path)
}

// Note is Handler.Note, with the path of the request in front.
func (c *Call) Note(format string, args ...any) {
	c.h.Note(c.R.URL.Path, format, args...)
}

// failed notes an error.
func (c *Call) failed(what string, err error) error {
	if err != nil {
		c.Note("%s: %v", what, err)
	}
	return nil
}

// Do does a step.
func (c *Call) Do(step []string) (err error) {
	verb, args := step[0], step[1:]
	if verb == "go" {
		c.h.Go(func() { _ = c.Do(args) })
		return nil
	}
	if n, err := strconv.Atoi(verb); err == nil && len(args) > 1 && args[0] == "times" {
		for range n {
			if err := c.Do(args[1:]); err != nil {
				return err
			}
		}
		return nil
	}
	if own := c.h.Verbs[verb]; own != nil {
		return own(c, args)
	}
	arg := func(i int) string {
		if i < len(args) {
			return Text(args[i])
		}
		return ""
	}
	number, _ := strconv.Atoi(arg(0))
	control := http.NewResponseController(c.W)
	switch verb {
	case "set":
		c.W.Header().Set(arg(0), arg(1))
	case "add":
		c.W.Header()[arg(0)] = append(c.W.Header()[arg(0)], arg(1))
	case "nil":
		c.W.Header()[arg(0)] = nil
	case "none":
		c.W.Header()[arg(0)] = []string{}
	case "del":
		c.W.Header().Del(arg(0))
	case "status":
		c.W.WriteHeader(number)
	case "write":
		n, err := io.WriteString(c.W, arg(0))
		if err != nil {
			c.Note("write: %s, %v", partOf(n, len(arg(0))), err)
		}
	case "piece":
		n, err := io.WriteString(c.W, arg(0))
		c.Note("piece: %s of %d, %v, %v", partOf(n, len(arg(0))), len(arg(0)), err, control.Flush())
	case "copy":
		n, err := io.Copy(c.W, c.R.Body)
		c.Note("copy: %d, %v", n, err)
	case "flush":
		c.W.(http.Flusher).Flush()
	case "tryflush":
		return c.failed("flush", control.Flush())
	case "error":
		http.Error(c.W, arg(1), number)
	case "duplex":
		return c.failed("duplex", control.EnableFullDuplex())
	case "readdeadline":
		return c.failed("readdeadline", control.SetReadDeadline(c.deadline(args)))
	case "writedeadline":
		return c.failed("writedeadline", control.SetWriteDeadline(c.deadline(args)))
	case "limit":
		c.R.Body = http.MaxBytesReader(c.W, c.R.Body, int64(number))
	case "read", "readfull", "readall", "reads", "discard", "close":
		c.body(verb, number)
	case "done":
		<-c.R.Context().Done()
	case "hijack", "conn":
		return c.hijacked(verb, args)
	case "redirect":
		http.Redirect(c.W, c.R, arg(1), number)
	case "try":
		defer func() { c.Note("recovered: %v", recover()) }()
		return c.Do(args)
	case "failed":
		if c.err != nil {
			return c.Do(args)
		}
	case "unfailed":
		if c.err == nil {
			return c.Do(args)
		}
	case "panic":
		if len(args) == 0 {
			panic(nil)
		}
		if arg(0) == "error" {
			panic(errors.New(arg(1)))
		}
		panic(arg(0))
	case "abort":
		panic(http.ErrAbortHandler)
	case "exit":
		runtime.Goexit()
	case "show":
		for _, word := range args {
			c.show(word)
		}
	default:
		return errors.New("no such step")
	}
	return nil
}

// partOf says how many of the bytes n are. The size of a part depends on how much sockets hold.
func partOf(n, all int) string {
	switch n {
	case 0:
		return "none"
	case all:
		return "all"
	}
	return "a part"
}

// deadline is so far from now.
func (c *Call) deadline(args []string) (at time.Time) {
	if len(args) == 0 || args[0] == "none" {
		return at
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		panic(err)
	}
	return c.h.Now().Add(d)
}

// body reads, or closes, and notes what came of it.
func (c *Call) body(verb string, n int) {
	var p []byte
	var err error
	switch verb {
	case "read":
		p = make([]byte, n)
		n, err = c.R.Body.Read(p)
		p = p[:n]
	case "readfull":
		p = make([]byte, n)
		n, err = io.ReadFull(c.R.Body, p)
		p = p[:n]
	case "readall":
		p, err = io.ReadAll(c.R.Body)
	case "discard":
		_, _ = io.Copy(io.Discard, c.R.Body)
		return
	case "reads":
		all := 0
		for p = make([]byte, n); err == nil; all += n {
			n, err = c.R.Body.Read(p)
		}
		c.Note("reads: %d bytes, %v", all, err)
		return
	case "close":
		_ = c.failed("close", c.R.Body.Close())
		return
	}
	if c.err = err; err == io.EOF {
		c.err = nil
	}
	c.Note("%s: %s, %v", verb, Quote(string(p)), err)
}

func (c *Call) hijacked(verb string, args []string) (err error) {
	switch {
	case verb == "hijack":
		c.conn, c.rw, err = http.NewResponseController(c.W).Hijack()
		return c.failed("hijack", err)
	case len(args) == 0 || c.conn == nil:
		return nil // hijack has failed
	case args[0] == "write":
		_, err = io.WriteString(c.conn, Text(args[1]))
		return c.failed("conn write", err)
	case args[0] == "readall":
		p, err := io.ReadAll(c.rw)
		c.Note("conn readall: %s, %v", Quote(string(p)), err)
	case args[0] == "close":
		return c.failed("conn close", c.conn.Close())
	}
	return nil
}

// show notes what a word asks for.
func (c *Call) show(word string) {
	switch word {
	case "begins", "ends":
		c.Note("%s", word)
	case "context":
		c.Note("context: %v", c.R.Context().Err())
	case "error":
		c.Note("error: %T %v, a line too long: %t", c.err, c.err, errors.Is(c.err, http.ErrLineTooLong))
	case "notrailer":
		clear(c.R.Trailer)
	case "trailer":
		c.Note("trailer: %s", Fields(c.R.Trailer))
	case "header":
		c.Note("header: %s", Fields(c.W.Header()))
	case "request":
		c.Note("%s %q %s host %q url %q length %d %q close %t fields %s", c.R.Method, c.R.RequestURI, c.R.Proto,
			c.R.Host,
			c.R.URL, c.R.ContentLength, c.R.TransferEncoding, c.R.Close, Fields(c.R.Header))
	default:
		panic("show " + word)
	}
}
