package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/httpscript"
)

// This file plays sessions of testdata in fake time, with a server of one loop in a world without
// faults. A client's commands are:
//
//	send METHOD PATH [HTTP/1.0] [FIELD...] [TEXT...]   requests; a FIELD has ": " in it
//	raw TEXT       bytes
//	run D [whole]  lets D pass, and shows what handlers noted and clients got
//	fin, reset, stop, resume   its side of the connection; stop stops reading
//	as NAME        the other commands are for that client, which connects
//	keepalives, shutdown, close   what the server's owner does
//	greet [SETTING...]   begins HTTP/2; the frames of httpscript.Frame are commands then. PINGs are
//	               answered when they are shown.
//	repeat N COMMAND ; COMMAND..., pass D   pass is run, unseen
//	flood MOST FRAME ; FRAME...   again and again, until the server has had enough. It sends no more
//	               than so many frames until then.
//	figures        which ones of HTTP/2 are not 0
//	every N D ...  send, N requests at a time, and lets D pass after each time
//	unsent         whether the server has left something unread
//	states         what ConnState was called with
//	hibernating    how many connections do; the setting "awake" says how many do not
//	most           how many handlers ran at a time
//
// Handlers have these steps besides:
//
//	wait D, time   the world's time
//	place, worker  whether the handler is on the loop or in the pool, and on which goroutine
//	upgrade        to a protocol that notes what it receives
//	detach, stream write TEXT, stream close   the last Stream of the session
//	queued         what the server's queue for the client holds
//	keep, kept STEP   a later request does a step with what an earlier one has kept
//	keepalives     switches them off
//	fieldsofconnection   sets those of HTTP/1, and X-Own, as fields and trailers

// A session is a case that is being played.
type session struct {
	*stage
	t       *testing.T
	s       *Server
	h       *httpscript.Handler
	began   time.Time
	clients []*sessionClient
	at      *sessionClient
	stream  *Stream // the last one
	kept    *httpscript.Call
	workers []uint64 // goroutines of handlers, as they come
}

// A sessionClient is a peer, with what it has asked and what was shown of its answers.
type sessionClient struct {
	*sim.Peer
	frames *httpscript.FrameReader // nil: it speaks HTTP/1
	came   []string                // frames
	name   string
	asked  string
	shown  []string
}

func playInFakeTime(t *testing.T, file string) {
	httpscript.Run(t, "testdata/"+file, func(t *testing.T, _ string, c httpscript.Settings,
		h *httpscript.Handler) httpscript.Player {
		s := &Server{Handler: h, Dispatch: DispatchPool}
		config := configure(t, s, c)
		w := newWorld(1, sim.Calm())
		s.ErrorLog = log.New(logged{h}, "", 0)
		x := &session{stage: newStage(t, w, w, s, config), t: t, s: s, h: h, began: w.Now()}
		h.Now, h.Go, h.Verbs = w.Now, w.Go, x.verbs()
		x.as("")
		t.Cleanup(func() {
			for _, c := range x.clients {
				c.Close()
			}
		})
		return x
	})
}

// logged notes the first line of each message.
type logged struct{ h *httpscript.Handler }

func (l logged) Write(p []byte) (int, error) {
	line, _, _ := strings.Cut(string(p), "\n")
	l.h.Note("log:", "%s", line)
	return len(p), nil
}

// configure sets what a case says, and returns what it says of its engine.
func configure(t testing.TB, s *Server, c httpscript.Settings) (engine myriad.Config) {
	t.Helper()
	for name, value := range c {
		n, err := strconv.Atoi(value)
		d, ofTime := time.ParseDuration(value)
		field := reflect.ValueOf(s).Elem().FieldByName(name)
		switch {
		case name == "WriteLimit" && err == nil:
			engine.WriteLimit = n
		case name == "Protocols" && value == "http2":
			s.Protocols = plainHTTP2()
		case strings.HasPrefix(name, "HTTP2."):
			configureHTTP2(t, s, name[len("HTTP2."):], value)
		case name == "ReadBuffer" && err == nil:
			engine.ReadBuffer = n
		case name == "awake" && err == nil:
			s.mostAwake = n
		case name == "Dispatch":
			s.Dispatch = map[string]Dispatch{"pool": DispatchPool, "inline": DispatchInline,
				"auto": DispatchAuto}[value]
		case name == "Overload":
			s.Overload = map[string]Overload{"queue": OverloadQueue, "refuse": OverloadRefuse,
				"pause": OverloadPause}[value]
		case field.IsValid() && field.Type() == reflect.TypeFor[time.Duration]() && ofTime == nil:
			field.SetInt(int64(d))
		case field.IsValid() && field.CanInt() && err == nil:
			field.SetInt(int64(n))
		default:
			t.Fatalf("no setting %s=%s", name, value)
		}
	}
	return engine
}

// configureHTTP2 sets a field of Server.HTTP2.
func configureHTTP2(t testing.TB, s *Server, name, value string) {
	t.Helper()
	if s.HTTP2 == nil {
		s.HTTP2 = new(http.HTTP2Config)
	}
	n, err := strconv.Atoi(value)
	d, ofTime := time.ParseDuration(value)
	field := reflect.ValueOf(s.HTTP2).Elem().FieldByName(name)
	switch {
	case name == "CountError" && value == "noted":
		h := s.Handler.(*httpscript.Handler)
		s.HTTP2.CountError = func(kind string) { h.Note("CountError:", "%s", kind) }
	case field.IsValid() && field.CanInt() && err == nil:
		field.SetInt(int64(n))
	case field.IsValid() && field.CanInt() && ofTime == nil:
		field.SetInt(int64(d))
	default:
		t.Fatalf("no setting HTTP2.%s=%s", name, value)
	}
}

func (x *session) as(name string) {
	for _, c := range x.clients {
		if c.name == name {
			x.at = c
			return
		}
	}
	x.at = &sessionClient{Peer: x.Dial(x.stage.at), name: name}
	x.clients = append(x.clients, x.at)
}

// Do runs a command of a client.
func (x *session) Do(c *httpscript.Command) ([]string, error) {
	lines, err := x.do(c.Verb, c.Args)
	return httpscript.Together(lines), err
}

func (x *session) do(verb string, args []string) ([]string, error) {
	arg := ""
	if len(args) > 0 {
		arg = args[0]
	}
	switch verb {
	case "as":
		x.as(arg)
	case "send":
		x.at.send(httpscript.Requests(args))
	case "raw":
		for _, word := range args {
			x.at.send(httpscript.Text(word))
		}
	case "fin":
		x.at.CloseWrite()
	case "reset":
		x.at.Reset()
	case "stop":
		x.at.StopReading()
	case "resume":
		x.at.Resume()
	case "keepalives":
		x.s.SetKeepAlivesEnabled(false)
	case "close":
		x.h.Note("Close:", "%v", x.s.Close())
	case "shutdown":
		x.Go(func() { x.h.Note("Shutdown:", "%v at %v", x.s.Shutdown(context.Background()), x.time()) })
	case "every":
		n, err := strconv.Atoi(arg)
		d, err2 := time.ParseDuration(args[1])
		for all := httpscript.Each(args[2:]); len(all) > 0; all = all[min(n, len(all)):] {
			x.at.send(strings.Join(all[:min(n, len(all))], ""))
			x.RunFor(d)
		}
		return nil, errors.Join(err, err2)
	case "states":
		return []string{fmt.Sprint(x.states)}, nil
	case "hibernating":
		return []string{fmt.Sprint(x.engine.Stats().Hibernating)}, nil
	case "most":
		return []string{fmt.Sprint(x.h.Most())}, nil
	case "unsent":
		return []string{fmt.Sprint(x.at.Unsent() > 0)}, nil
	case "run":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return nil, err
		}
		x.RunFor(d)
		lines := x.h.Notes()
		for _, client := range x.clients {
			lines = append(lines, client.news(slices.Contains(args, "whole"))...)
		}
		return lines, nil
	case "greet":
		settings, err := httpscript.FrameSettings(args)
		x.at.frames = new(httpscript.FrameReader)
		x.at.Write(h2.AppendSettingsAck(h2.AppendSettings([]byte(h2.Preface), settings...)))
		return nil, err
	case "pass":
		d, err := time.ParseDuration(arg)
		x.RunFor(d)
		return nil, err
	case "repeat":
		return httpscript.Repeat(args, x.do)
	case "flood":
		return x.flood(args)
	case "figures":
		return x.figures(), nil
	default:
		p, err := httpscript.Frame(verb, args)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", verb, err)
		}
		x.at.Write(p)
	}
	return nil, nil
}

// figuresOf returns the figures of HTTP/2 by name.
func figuresOf(e *myriad.Engine) map[string]int64 {
	all := map[string]int64{}
	for _, f := range e.Figures() {
		if f.Title == "web: HTTP/2" {
			for _, c := range f.Counts {
				all[c.Name] = c.Count
			}
		}
	}
	return all
}

// flood repeats frames until the connection ends, and shows how.
func (x *session) flood(args []string) ([]string, error) {
	most, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	for i := 0; i < 1<<15; i += 50 {
		round := append([]string{fmt.Sprint(i, "..", i+49)}, args[1:]...)
		if _, err := httpscript.Repeat(round, x.do); err != nil {
			return nil, err
		}
		x.RunFor(time.Millisecond)
		came := x.at.read(false)
		if last := len(came) - 1; last >= 0 && strings.HasPrefix(came[last], "GOAWAY") {
			if last > most {
				err = fmt.Errorf("%d frames come before the end", last)
			}
			x.at.came = nil
			_, code, _ := strings.Cut(came[last][len("GOAWAY "):], " ")
			return []string{"GOAWAY " + code}, err
		}
	}
	return []string{"no end"}, nil
}

// figures are those that are not 0. How many connections were ended is told exactly.
func (x *session) figures() (lines []string) {
	all := figuresOf(x.engine)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case name == "connections ended for floods":
			lines = append(lines, fmt.Sprint(name, ": ", all[name]))
		case all[name] != 0:
			lines = append(lines, name)
		}
	}
	return lines
}

func (c *sessionClient) send(bytes string) {
	c.asked += bytes
	c.Write([]byte(bytes))
}

var dateField = regexp.MustCompile(` date=[^=]* GMT`)

// read returns the frames that have come, and answers PINGs if pongs is set.
func (c *sessionClient) read(pongs bool) []string {
	c.frames.Add(c.TakeReceived())
	for {
		text, f, err := c.frames.Next()
		if err != nil {
			text = err.Error()
		}
		if text == "" {
			return c.came
		}
		if c.came = append(c.came, dateField.ReplaceAllString(text, "")); err != nil {
			return c.came
		}
		if pongs && f.Type == h2.Ping && !f.Has(h2.Ack) {
			c.Write(h2.AppendPing(nil, f.Ping(), true))
		}
	}
}

// news is what has come that was not shown, and whether the connection is over.
func (c *sessionClient) news(whole bool) (lines []string) {
	if c.frames != nil {
		return c.unseen(slices.Clone(c.read(true)))
	}
	all, rest := httpscript.Answers(string(c.Received()), httpscript.Methods(c.asked)...)
	for _, a := range all {
		if a.Err != nil && !c.Ended() && !c.Closed() {
			a.Err = errors.New("so far")
		}
		if whole {
			lines = append(lines, a.Whole())
		} else {
			lines = append(lines, a.String())
		}
	}
	if rest != "" {
		lines = append(lines, "then "+httpscript.Quote(rest))
	}
	return c.unseen(lines)
}

// unseen adds the state of the connection, and returns what was not shown.
func (c *sessionClient) unseen(lines []string) []string {
	switch {
	case c.Ended():
		lines = append(lines, "the connection has ended")
	case c.Closed():
		lines = append(lines, fmt.Sprint("the connection is broken: ", c.Err()))
	}
	if c.name != "" {
		for i := range lines {
			lines[i] = c.name + ": " + lines[i]
		}
	}
	for i, line := range lines {
		if i >= len(c.shown) || c.shown[i] != line {
			c.shown = lines
			return lines[i:]
		}
	}
	return nil
}

// place is where the caller runs.
func (x *session) place() string {
	return map[bool]string{true: "on the loop", false: "in the pool"}[x.onLoop()]
}

// worker tells the goroutines of handlers apart, in the order in which they come.
func (x *session) worker() string {
	me := driver.Goroutine()
	if !slices.Contains(x.workers, me) {
		x.workers = append(x.workers, me)
	}
	return fmt.Sprint("worker ", slices.Index(x.workers, me))
}

// time is how long the session has taken.
func (x *session) time() time.Duration { return x.Now().Sub(x.began).Round(time.Millisecond) }

func (x *session) verbs() map[string]httpscript.Verb {
	return map[string]httpscript.Verb{
		"wait": func(_ *httpscript.Call, args []string) error {
			d, err := time.ParseDuration(args[0])
			x.wait(d)
			return err
		},
		"done": func(c *httpscript.Call, _ []string) error {
			for c.R.Context().Err() == nil {
				x.wait(time.Millisecond)
			}
			return nil
		},
		"place": func(c *httpscript.Call, _ []string) error {
			c.Note("%s", x.place())
			return nil
		},
		"worker": func(c *httpscript.Call, _ []string) error {
			c.Note("%s", x.worker())
			return nil
		},
		"fieldsofconnection": func(c *httpscript.Call, _ []string) error {
			h := c.W.Header()
			for _, name := range []string{"Connection", "connection", "Keep-Alive", "KEEP-ALIVE", "Proxy-Connection",
				"Transfer-Encoding", "transfer-encoding", "Upgrade", "upgrade", "Te", "te", "X-Own"} {
				h[name], h[http.TrailerPrefix+name] = []string{"trailers"}, []string{"trailers"}
			}
			return nil
		},
		"queued": func(c *httpscript.Call, _ []string) error {
			c.Note("%d bytes are queued", x.conn.Queued())
			return nil
		},
		"keep": func(c *httpscript.Call, _ []string) error { x.kept = c; return nil },
		"kept": func(_ *httpscript.Call, step []string) error { return x.kept.Do(step) },
		"time": func(c *httpscript.Call, _ []string) error {
			c.Note("at %v", x.time())
			return nil
		},
		"upgrade": func(c *httpscript.Call, _ []string) error {
			if err := Upgrade(c.W, []byte(switching), nextProtocol{x.h}); err != nil {
				c.Note("upgrade: %v", err)
			}
			return nil
		},
		"detach": func(c *httpscript.Call, _ []string) (err error) {
			if x.stream, err = Detached(c.W); err != nil {
				c.Note("detach: %v", err)
			}
			return nil
		},
		"stream": func(c *httpscript.Call, args []string) (err error) {
			if args[0] == "write" {
				_, err = io.WriteString(x.stream, httpscript.Text(args[1]))
			} else {
				err = x.stream.Close()
			}
			if err != nil {
				c.Note("stream %s: %v", args[0], err)
			}
			return nil
		},
		"keepalives": func(*httpscript.Call, []string) error { x.s.SetKeepAlivesEnabled(false); return nil },
	}
}

// A nextProtocol notes what it is called with.
type nextProtocol struct{ h *httpscript.Handler }

func (u nextProtocol) Opened(*myriad.Conn) { u.h.Note("upgraded:", "opened") }
func (u nextProtocol) Received(_ *myriad.Conn, p []byte) {
	u.h.Note("upgraded:", "received %s", httpscript.Quote(string(p)))
}
func (u nextProtocol) Closed(_ *myriad.Conn, err error) { u.h.Note("upgraded:", "closed, %v", err) }

func TestPipelines(t *testing.T)      { playInFakeTime(t, "pipelines.txt") }
func TestRequestBodies(t *testing.T)  { playInFakeTime(t, "bodies.txt") }
func TestAnswers(t *testing.T)        { playInFakeTime(t, "answers.txt") }
func TestConnections(t *testing.T)    { playInFakeTime(t, "connections.txt") }
func TestHTTP2Sessions(t *testing.T)  { playInFakeTime(t, "http2.txt") }
func TestHTTP2Floods(t *testing.T)    { playInFakeTime(t, "http2_floods.txt") }
func TestInlineWithBody(t *testing.T) { playInFakeTime(t, "inline_bodies.txt") }
