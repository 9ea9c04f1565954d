package mux

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/httpscript"
)

// This file plays sessions of testdata: one connection in a simulated world, whose peer sends the
// frames of httpscript.Frame. Settings of the case are those of Config. Other commands:
//
//	greet [SETTING...]   exchanges the preface and SETTINGS, unseen
//	run [D]              lets D pass, or what happens at once, and shows what our end has sent, what
//	                     its owner was called with, and what the connection has become
//	take                 is run, unseen
//	tally                is run, but counts what differs in the stream alone
//	sum                  is run, but shows how many bytes of DATA have come, and whether they end
//	fill [N]             sends N bytes of DATA on stream 1, or the connection's window
//	repeat N COMMAND ; COMMAND...   as httpscript.Repeat
//	flood ROUNDS BYTES FRAME ; FRAME...   repeats them until the connection ends: within about so
//	                     many rounds, for each of which our end may send so many bytes
//	fin, reset, close, stop, resume   the peer's side of the connection; stop stops reading
//
// Streams have their numbers, a client's also the names a, b or #1, #3 and so on in the order of
// opening. A HEAD is fields, "body" and TEXT, and END, as far as they are there. What streams do:
//
//	get, post            a client's request, the second without its end; its head is unseen
//	begin                post at a client, so that the peer says stream 1 in both roles; $head is
//	                     $get to a server then, and $ok to a client
//	send N               stream 1 sends a body of N bytes
//	open [N], head S PATH   streams without heads, and the end of a request that is all head
//	put S HEAD, end S [FIELD...], reply S [TEXT]   reply is a whole response, and release
//	release S, cancel S CODE, tunnel S, bodiless S, limit S N
//	read S N             from its body, and tells the connection if that says so
//	show S WORD...       what the case of Show says
//
// What the owner does:
//
//	on COMMAND           as soon as a head has come, for its stream S: "on reply S hello"
//	refuse, accept       streams of the peer
//	return               releases the streams that have ended
//	code CODE            what Head returns from now on
//	watch                the owner is a FailureOwner
//	probe
//	shutdown, abort CODE TEXT, break   what ends the connection; break is the engine's Abort
//	log                  what was logged since the last time
//	look WORD...         what the case of look says
type session struct {
	*rig
	opened []*testStream // of a client
	lines  *[]string     // logged
	logged int
	became []string // that was shown
}

func playSessions(t *testing.T, file string) {
	httpscript.Run(t, "testdata/"+file, func(t *testing.T, _ string, s httpscript.Settings,
		_ *httpscript.Handler) httpscript.Player {
		x := new(session)
		countError := s["CountError"] == "noted"
		delete(s, "CountError")
		cfg, lines := logged(configure(t, s))
		if countError {
			cfg.CountError = func(kind string) { x.note("CountError %s", kind) }
		}
		x.rig, x.lines = newRig(t, cfg), lines
		return x
	})
}

// configure is the Config of a case.
func configure(t *testing.T, s httpscript.Settings) (cfg Config) {
	t.Helper()
	for name, value := range s {
		field := reflect.ValueOf(&cfg).Elem().FieldByName(name)
		n, err := strconv.Atoi(value)
		d, ofTime := time.ParseDuration(value)
		switch {
		case !field.IsValid():
			t.Fatalf("no setting %s", name)
		case field.Kind() == reflect.Bool:
			field.SetBool(value == "true")
		case field.CanInt() && err == nil:
			field.SetInt(int64(n))
		case field.CanInt() && ofTime == nil:
			field.SetInt(int64(d))
		default:
			t.Fatalf("no setting %s=%s", name, value)
		}
	}
	return cfg
}

// Do runs a command.
func (x *session) Do(c *httpscript.Command) (lines []string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: %v", c.Verb, v)
		}
	}()
	lines, err = x.do(c.Verb, c.Args)
	return httpscript.Together(lines), err
}

func (x *session) do(verb string, args []string) (lines []string, err error) {
	if i := slices.Index(args, "$head"); i >= 0 {
		args = slices.Clone(args)
		args[i] = map[bool]string{false: "$get", true: "$ok"}[x.cfg.Client]
	}
	p, err := httpscript.Frame(verb, args)
	if err == nil {
		x.write(p)
	}
	if !errors.Is(err, httpscript.ErrNoFrame) {
		return nil, err
	}
	err = nil
	arg := func(i int) string { return word(args, i) }
	switch verb {
	case "greet":
		settings, err := httpscript.FrameSettings(args)
		x.greet(settings...)
		return nil, err
	case "run":
		d := 200 * time.Millisecond
		if len(args) > 0 {
			d, err = time.ParseDuration(arg(0))
		}
		x.RunFor(d)
		return x.news(), err
	case "take":
		x.settle()
		x.news()
	case "tally":
		x.settle()
		return tally(x.news()), nil
	case "sum":
		n, end := x.dataSent()
		return []string{fmt.Sprintf("%d bytes, END: %t", n, end)}, nil
	case "fill":
		n, _ := strconv.Atoi(arg(0))
		for n = cmp.Or(n, x.cfg.ConnWindow); n > 0; n -= 1 << 13 {
			x.write(data(1, strings.Repeat("x", min(n, 1<<13)), false))
		}
	case "flood":
		return x.flood(args)
	case "repeat":
		return httpscript.Repeat(args, x.do)
	case "fin":
		x.peer.CloseWrite()
	case "reset":
		x.peer.Reset()
	case "close":
		x.peer.Close()
	case "stop":
		x.peer.StopReading()
	case "resume":
		x.peer.Resume()
	case "begin":
		if x.cfg.Client {
			return x.do("post", nil)
		}
	case "send":
		n, err := strconv.Atoi(arg(0))
		x.sender(n)
		return nil, err
	case "get", "post":
		x.opened = append(x.opened, x.request(verb == "get"))
		x.want("HEADERS ")
	case "open":
		n, _ := strconv.Atoi(arg(0))
		return x.openStreams(max(n, 1)), nil
	case "on":
		do := args
		x.on = func(s *testStream, _ *h2.Head, _ bool) {
			lines, err := x.of(s, do[0], do[2:])
			if x.log = append(x.log, lines...); err != nil {
				x.t.Error(err)
			}
		}
	case "return":
		x.returnHandlers()
	case "refuse", "accept":
		x.refuse = verb == "refuse"
	case "code":
		x.code = httpscript.CodeOf(arg(0))
	case "watch":
		x.conn.owner = failureOwner{x.conn}
	case "shutdown":
		x.doOnLoop(x.conn.Shutdown)
	case "abort":
		x.doOnLoop(func() { x.conn.Abort(httpscript.CodeOf(arg(0)), arg(1)) })
	case "probe":
		x.doOnLoop(x.conn.Probe)
	case "break":
		x.doOnLoop(func() { x.conn.Conn.c.Abort(errLost) })
	case "log":
		lines, x.logged = (*x.lines)[x.logged:], len(*x.lines)
		return lines, nil
	case "look":
		for _, word := range args {
			lines = append(lines, x.look(word))
		}
		return []string{strings.Join(lines, ", ")}, nil
	default:
		s := x.stream(arg(0))
		if s == nil {
			return nil, fmt.Errorf("no command %q, or no stream %q", verb, arg(0))
		}
		return x.of(s, verb, args[1:])
	}
	return nil, err
}

// flood ends with what the connection is ended with.
func (x *session) flood(args []string) (lines []string, err error) {
	most, _ := strconv.Atoi(args[0])
	answers, _ := strconv.Atoi(args[1])
	before, rounds := buf.InUse(), 0
	for ; x.conn.state != failed && rounds <= most+1000; rounds += 50 {
		batch := append([]string{fmt.Sprint(rounds, "..", rounds+49)}, args[2:]...)
		if _, err := httpscript.Repeat(batch, x.do); err != nil {
			return nil, err
		}
		x.RunFor(5 * time.Millisecond)
		x.returnHandlers() // they end when their streams do
		if n := len(x.conn.streams); n > 2*x.cfg.Streams {
			return nil, fmt.Errorf("%d handlers", n)
		}
		if n := buf.InUse() - before; n > 200 {
			return nil, fmt.Errorf("%d blocks", n)
		}
	}
	if rounds > most*21/20+200 { // the passing time gives some back
		x.t.Errorf("%d rounds, want at most %d", rounds, most)
	}
	sent := x.sent()
	if len(sent) == 0 {
		return nil, errors.New("no GOAWAY")
	}
	last, size := sent[len(sent)-1], 0
	for _, f := range sent[:len(sent)-1] {
		switch {
		case strings.HasPrefix(f, "PING"):
			size += 17
		case strings.HasPrefix(f, "SETTINGS"):
			size += 9
		default:
			size += 13
		}
	}
	if size > answers*(rounds+1) {
		x.t.Errorf("%d bytes in answer to %d rounds", size, rounds)
	}
	goAway, code, _ := strings.Cut(last, " ")
	_, code, _ = strings.Cut(code, " ") // which stream was the last depends on time
	return []string{goAway + " " + code}, nil
}

var firstNumber = regexp.MustCompile(`^[^0-9]*\b([0-9]+)\b`)

// tally counts lines that are the same but for their first number, and tells the first and the
// last.
func tally(lines []string) (all []string) {
	kinds, numbers := []string{}, map[string][]string{}
	for _, line := range lines {
		kind, n := line, ""
		if m := firstNumber.FindStringSubmatchIndex(line); m != nil {
			kind, n = line[:m[2]]+"#"+line[m[3]:], line[m[2]:m[3]]
		}
		if numbers[kind] == nil {
			kinds = append(kinds, kind)
		}
		numbers[kind] = append(numbers[kind], n)
	}
	for _, kind := range kinds {
		n := numbers[kind]
		all = append(all, fmt.Sprintf("%d times: %s, %s to %s", len(n), kind, n[0], n[len(n)-1]))
	}
	return all
}

// word is one of a command; "": there are less.
func word(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// stream is the one of a name; nil: there is none.
func (x *session) stream(name string) *testStream {
	if n, err := strconv.Atoi(name); err == nil {
		for _, s := range x.opened {
			if s.ID() == uint32(n) {
				return s
			}
		}
		return x.conn.streams[uint32(n)]
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "#")); err == nil && n/2 < len(x.opened) {
		return x.opened[n/2]
	}
	if len(name) == 1 && int(name[0]-'a') < len(x.opened) {
		return x.opened[name[0]-'a']
	}
	return nil
}

// openStreams opens n streams, which have no heads.
func (x *session) openStreams(n int) (lines []string) {
	x.onLoop(func() {
		for range n {
			s := &testStream{r: x.rig}
			s.in.Reset(x.cfg.Window, true)
			s.Init(s)
			if err := x.conn.Open(&s.Stream); err != nil {
				lines = append(lines, err.Error())
				return
			}
			x.opened = append(x.opened, s)
		}
	})
	return lines
}

// of runs a command of a stream.
func (x *session) of(s *testStream, verb string, args []string) (lines []string, err error) {
	arg := func(i int) string { return word(args, i) }
	number, _ := strconv.Atoi(arg(0))
	switch verb {
	case "put":
		last := len(args) - 1
		end := last >= 0 && args[last] == "END"
		if end {
			args = args[:last]
		}
		var body []byte
		if i := slices.Index(args, "body"); i >= 0 {
			body, args = []byte(httpscript.Text(args[i+1])), args[:i]
		}
		var head []byte
		if len(args) > 0 {
			head = httpscript.Pairs(args)
		}
		err = s.Put(head, body, end)
	case "head":
		err = s.Put(httpscript.Pairs([]string{":method=GET", ":scheme=http", ":authority=h", ":path=" + arg(0)}), nil,
			true)
	case "end":
		err = s.End(httpscript.Pairs(args))
	case "reply":
		err = s.Put(pairs(":status", "200"), []byte(httpscript.Text(arg(0))), true)
		s.Release()
	case "release":
		s.Release()
	case "cancel":
		s.Cancel(httpscript.CodeOf(arg(0)))
	case "abort":
		x.conn.Abort(httpscript.CodeOf(arg(0)), arg(1))
	case "tunnel":
		x.onLoop(s.Tunnel)
	case "bodiless":
		x.onLoop(s.WithoutBody)
	case "limit":
		s.SetLimit(number)
	case "read":
		p := make([]byte, number)
		n, tell, err := s.in.Read(p)
		if tell {
			s.Notify()
		}
		return []string{fmt.Sprintf("%s, %v, tells the connection: %t", httpscript.Quote(string(p[:n])), err, tell)},
			nil
	case "show":
		for _, word := range args {
			lines = append(lines, s.show(word))
		}
		return []string{strings.Join(lines, ", ")}, nil
	default:
		return nil, fmt.Errorf("no command %q", verb)
	}
	if err != nil {
		lines, err = []string{fmt.Sprint(verb, ": ", err)}, nil
	}
	return lines, err
}

func (s *testStream) show(word string) string {
	switch word {
	case "fields":
		return "fields " + httpscript.FieldWords(s.head.Fields)
	case "protocol":
		return "protocol " + s.head.Protocol
	case "body":
		return fmt.Sprintf("body %s, complete: %t", httpscript.Quote(string(s.got)), s.in.Complete())
	case "error":
		return fmt.Sprintf("%v, unexpected: %t, too large: %t", s.err, errors.Is(s.err, io.ErrUnexpectedEOF),
			errors.Is(s.err, ErrHeaderList))
	case "received":
		return fmt.Sprint("received: ", s.in.State().Unread)
	case "room":
		return fmt.Sprint("Room was called: ", s.room)
	case "queued":
		return fmt.Sprint("queued: ", s.Queued())
	}
	panic("show " + word)
}

// look is what a word asks about the connection.
func (x *session) look(word string) string {
	c := &x.conn.Conn
	if n := reflect.ValueOf(x.cfg.Counters).Elem().FieldByName(word); n.IsValid() {
		return fmt.Sprint(word, ": ", n.Addr().MethodByName("Load").Call(nil)[0])
	}
	switch word {
	case "streams":
		return fmt.Sprint("streams: ", c.Streams())
	case "handlers":
		return fmt.Sprint("handlers: ", len(x.conn.streams))
	case "idle":
		return fmt.Sprint("Idle was called: ", x.conn.idle)
	case "active":
		return fmt.Sprint("active: ", c.act != nil)
	case "table":
		return fmt.Sprint("bytes of the packed table: ", len(c.table))
	case "partial":
		p := c.act.partial
		return fmt.Sprintf("a partial frame: %t, takes at most 32 KiB: %t", p != nil, p == nil ||
			p.Len()+p.Free() <= 32<<10)
	case "resets":
		return fmt.Sprint("resets that are known: ", len(c.act.resets))
	case "unanswered":
		return "unanswered: " + seconds(x.unanswered())
	case "silent":
		d := time.Duration(0)
		x.onLoop(func() { d = c.Silent() })
		return "silent: " + seconds(d)
	case "away":
		return fmt.Sprint("is going away: ", c.GoingAway())
	case "free":
		return fmt.Sprint("streams that may be opened: ", c.Free())
	case "list":
		return fmt.Sprint("the peer's list: ", c.PeerHeaderList())
	case "connect":
		return fmt.Sprint("the extended CONNECT: ", c.PeerConnect())
	case "awaits":
		return fmt.Sprint("awaits its handshake: ", c.peer.awaited != handshakeDone)
	}
	panic("look " + word)
}

// unanswered is how long a probe has been unanswered.
func (x *session) unanswered() (d time.Duration) {
	if x.conn.gone {
		return x.conn.Unanswered()
	}
	x.onLoop(func() { d = x.conn.Unanswered() })
	return d
}

// seconds are whole ones, because the rest is chance.
func seconds(d time.Duration) string {
	if d == 0 {
		return "not"
	}
	return fmt.Sprint("for ", d.Truncate(time.Second))
}

// news is what was not shown before.
func (x *session) news() (lines []string) {
	if x.cfg.Client { // the preface comes first, once
		x.in.Add(x.peer.TakeReceived())
		x.in.Skip(h2.Preface)
	}
	lines = append(x.come(), x.log...)
	x.log = nil
	became := []string{}
	if x.conn.state == failed && !x.conn.gone {
		became = append(became, "failed")
	}
	if x.peer.Ended() {
		became = append(became, "ended")
	}
	if x.conn.gone {
		became = append(became, fmt.Sprint("gone: ", x.conn.err))
	}
	for _, state := range became {
		if !slices.Contains(x.became, state) {
			lines = append(lines, state)
		}
	}
	x.became = became
	return lines
}

func TestServerRules(t *testing.T)          { playSessions(t, "server_rules.txt") }
func TestClientRules(t *testing.T)          { playSessions(t, "client_rules.txt") }
func TestPrefaces(t *testing.T)             { playSessions(t, "prefaces.txt") }
func TestBodiesOfAWrongLength(t *testing.T) { playSessions(t, "lengths.txt") }
func TestStreams(t *testing.T)              { playSessions(t, "streams.txt") }
func TestEnds(t *testing.T)                 { playSessions(t, "ends.txt") }
func TestWindows(t *testing.T)              { playSessions(t, "windows.txt") }
func TestPriorities(t *testing.T)           { playSessions(t, "priorities.txt") }
func TestProbes(t *testing.T)               { playSessions(t, "probes.txt") }
func TestAttacks(t *testing.T)              { playSessions(t, "attacks.txt") }
