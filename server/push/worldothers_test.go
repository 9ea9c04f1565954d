package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/server/push"
)

// This file holds the clients of a world that speak other protocols than Centrifuge's, its hooks,
// and requests to the HTTP API.

// hookPanic is what hooks of a world panic with.
const hookPanic = "a hook of the world panics"

// worldHooks are the hooks of a world's server. A seed draws what each call does.
type worldHooks struct {
	w       *world
	mu      sync.Mutex
	random  *rand.Rand
	logged  []string
	expires bool            // connections that a hook has accepted may expire
	expired map[string]bool // by client: the API has let the connection expire
	waiting atomic.Int32    // calls that wait on a goroutine of the pool
}

func (h *worldHooks) all(o worldOptions) push.Hooks {
	h.expires = true
	return push.Hooks{
		Connect: func(_ context.Context, c push.Caller, r push.ConnectRequest) (a push.ConnectAnswer, err error) {
			h.mu.Lock()
			a.User = []string{"ann", "bob", "cid"}[h.random.IntN(3)]
			if h.random.IntN(3) == 0 {
				a.Channels = []string{"a:1", "c:3"}[:1+h.random.IntN(2)]
			}
			if h.random.IntN(3) == 0 {
				a.ExpireAt = h.w.Now().Add(time.Duration(2+h.random.IntN(20)) * time.Second).Unix()
			}
			h.mu.Unlock()
			return a, h.decide()
		},
		Refresh: func(context.Context, push.Caller) (a push.RefreshAnswer, err error) {
			h.mu.Lock()
			a.Expired = h.random.IntN(4) == 0
			a.ExpireAt = h.w.Now().Add(time.Duration(2+h.random.IntN(20)) * time.Second).Unix()
			h.mu.Unlock()
			return a, h.decide()
		},
		Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (a push.SubscribeAnswer, err error) {
			h.mu.Lock()
			if h.random.IntN(3) == 0 {
				a.ExpireAt = h.w.Now().Add(time.Duration(2+h.random.IntN(20)) * time.Second).Unix()
			}
			h.mu.Unlock()
			return a, h.decide()
		},
		SubRefresh: func(context.Context, push.Caller, string) (a push.SubRefreshAnswer, err error) {
			h.mu.Lock()
			a.Expired = h.random.IntN(4) == 0
			a.ExpireAt = h.w.Now().Add(time.Duration(2+h.random.IntN(20)) * time.Second).Unix()
			h.mu.Unlock()
			return a, h.decide()
		},
		Publish: func(context.Context, push.Caller, push.PublishRequest) (push.PublishAnswer, error) {
			return push.PublishAnswer{}, h.decide()
		},
	}
}

// decide draws what a hook does: it allows, refuses, is slow, or panics.
func (h *worldHooks) decide() error {
	h.mu.Lock()
	n, d, o := h.random.IntN(100), time.Duration(1+h.random.IntN(1500))*time.Millisecond, h.w.o
	h.mu.Unlock()
	switch {
	case n < 8 && o.slowHooks:
		h.waiting.Add(1)
		h.w.NewParker().ParkFor(d)
		h.waiting.Add(-1)
	case n < 12 && o.badHooks:
		return push.Error{Code: 500, Message: "of the program"}
	case n < 14 && o.badHooks:
		return push.ErrPermissionDenied
	case n < 16 && o.badHooks:
		return push.Disconnect{Code: 4100, Reason: "of the program"}
	case n < 17 && o.badHooks:
		return push.Disconnect{Code: 4600, Reason: "of the program"}
	case n < 19 && o.badHooks:
		return errors.New("the hook fails")
	case n < 24 && o.panics:
		panic(hookPanic)
	}
	return nil
}

func (h *worldHooks) rpc(_ context.Context, _ push.Caller, _ string, data []byte) ([]byte, error) {
	return data, h.decide()
}

// An eventClient reads Server-Sent Events: of channels, or of topics of the Mercure hub.
type eventClient struct {
	w        *world
	name     string
	channels []string
	mercure  bool
	named    bool
	lastID   string
	user     string

	peer    *sim.Peer
	in      []byte
	chunks  []byte
	open    bool // the head has come
	over    bool // the last chunk has come
	subs    map[string]*subscription
	backAt  time.Time
	gone    bool
	stopped bool
	refused bool
}

func (w *world) newEvents(n int) *eventClient {
	r := &eventClient{w: w, name: fmt.Sprintf("reader %d", n), subs: map[string]*subscription{}, user: w.user()}
	if !w.o.tokens && !w.o.hooked() && w.random.IntN(4) == 0 {
		r.mercure, r.channels = true, []string{"\x00mercure"}
		return r
	}
	for range 1 + w.random.IntN(3) {
		if name := w.channel(); !slices.Contains(r.channels, name) {
			r.channels = append(r.channels, name)
		}
	}
	r.named = len(r.channels) > 1
	return r
}

func (r *eventClient) connect() {
	w := r.w
	r.peer, r.in, r.chunks, r.open, r.over, r.stopped, r.refused = w.Dial(w.node()), nil, nil, false, false,
		false, false
	path := "/events?"
	if r.mercure {
		path = "/.well-known/mercure?topic=*"
	} else {
		for _, name := range r.channels {
			path += "channel=" + url.QueryEscape(name) + "&"
		}
		if r.named {
			path += "named=1"
		}
	}
	head := "GET " + path + " HTTP/1.1\r\nHost: test\r\n"
	if r.lastID != "" {
		head += "Last-Event-ID: " + r.lastID + "\r\n"
	}
	if w.o.tokens {
		head += "Authorization: Bearer " + w.sign(jwt.MapClaims{"sub": r.user,
			"exp": w.Now().Add(w.o.tokenLife).Unix()}) +
			"\r\n"
	}
	w.note("%s opens %s after %q", r.name, path, r.lastID)
	r.peer.Write([]byte(head + "\r\n"))
	for _, name := range r.channels {
		s := r.subs[name]
		if s == nil {
			s = w.newSubscription(r.name, name)
			if r.mercure {
				s.drops = false
			}
			r.subs[name] = s
		}
		s.live = false
		if r.lastID == "" {
			s.begin()
		}
	}
}

func (r *eventClient) step() {
	w := r.w
	if r.peer == nil {
		if !r.gone && !w.stopping && !w.Now().Before(r.backAt) {
			r.connect()
		}
		return
	}
	r.in = append(r.in, r.peer.TakeReceived()...)
	if !r.open {
		head, rest, found := bytes.Cut(r.in, []byte("\r\n\r\n"))
		line, _, _ := strings.Cut(string(head), "\r\n")
		switch _, body, whole := wholeAnswer(r.in); {
		case found && strings.HasPrefix(line, "HTTP/1.1 200"):
			r.open, r.in = true, rest
			for _, s := range r.subs {
				s.confirmed()
				s.recovers = r.lastID != "" && !r.mercure || s.recovers
				if l := w.o.config.Limits; r.mercure && r.lastID != "" && l.HistoryBytes == 0 &&
					l.HistoryChannels == 0 {
					s.maybe = 0 // it continues
				}
			}
		case whole:
			r.refusedWith(line, body)
			return
		}
	}
	for r.open && r.chunk() {
	}
	if r.over || r.peer.Ended() || r.peer.Closed() {
		w.note("%s ended: %v", r.name, r.peer.Err())
		r.peer.Close()
		r.peer, r.backAt = nil, w.Now().Add(time.Duration(w.random.IntN(2000))*time.Millisecond)
		for _, s := range r.subs {
			s.live = false
		}
	}
}

func (r *eventClient) refusedWith(line, body string) {
	w := r.w
	may := w.maySay(line) || strings.HasPrefix(line, "HTTP/1.1 403") ||
		strings.HasPrefix(line, "HTTP/1.1 503") && w.o.hooked() ||
		strings.HasPrefix(line, "HTTP/1.1 401") && (w.o.tokens || w.o.hooked()) ||
		strings.HasPrefix(line, "HTTP/1.1 400") && (strings.Contains(body, "regex") ||
			w.o.config.Limits.Channels > 0 && strings.Contains(body, "channels"))
	if !may {
		w.fail("%s was answered %q %q", r.name, line, body)
	}
	w.note("%s was answered %q %q", r.name, line, body)
	r.peer.Close()
	r.peer, r.refused, r.backAt = nil, true, w.Now().Add(5*time.Second)
}

// chunk takes one chunk of the body, and the events that are complete then.
func (r *eventClient) chunk() bool {
	size, rest, found := bytes.Cut(r.in, []byte("\r\n"))
	if !found {
		return false
	}
	n, err := strconv.ParseUint(string(size), 16, 32)
	if err != nil {
		r.w.fail("%s got the chunk %q", r.name, size)
		return false
	}
	if len(rest) < int(n)+2 {
		return false
	}
	r.chunks, r.in, r.over = append(r.chunks, rest[:n]...), rest[n+2:], n == 0
	for {
		event, after, found := bytes.Cut(r.chunks, []byte("\n\n"))
		if !found {
			return n > 0
		}
		r.chunks = after
		r.event(string(event))
	}
}

func (r *eventClient) event(text string) {
	w := r.w
	name, data, hasData, hasID := "", "", false, false
	for line := range strings.SplitSeq(text, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			r.lastID, hasID = value, true
		case "event":
			name = value
		case "data":
			data, hasData = data+value, true
		case "retry", "":
		default:
			w.fail("%s got the line %q", r.name, line)
		}
	}
	s := r.subs[r.channels[0]]
	if r.named && hasData {
		if s = r.subs[name]; s == nil {
			w.fail("%s got an event named %q", r.name, name)
			return
		}
	}
	at := push.Position{}
	if epoch, offset, ok := strings.Cut(r.lastID, ":"); ok && hasID && !r.mercure {
		n, _ := strconv.ParseUint(offset, 10, 64)
		at = push.Position{Offset: n, Epoch: epoch}
	}
	switch {
	case name == "gap" && !r.named:
		s.recovers, s.maybe = true, len(w.bus.log(s.channel).list)
		s.last = -1
		s.from(at)
		return
	case !hasData:
		if at.Epoch != "" {
			if !s.recovers {
				s.last = -1
			}
			s.from(at)
		}
		return
	}
	if r.mercure {
		if !s.begun && r.lastID != "" {
			s.begun = s.maybe == 0
		}
		s.got(idIn(data), push.Position{})
		return
	}
	s.got(idIn(data), at)
}

func (r *eventClient) isQuiet() bool {
	if r.gone || r.w.stopping {
		return true
	}
	return r.refused || r.peer != nil && r.open
}

func (r *eventClient) read(on bool) {
	if r.peer == nil || on != r.stopped {
		return
	}
	if r.stopped = !on; on {
		r.peer.Resume()
		return
	}
	r.peer.StopReading()
}

func (r *eventClient) leave() {
	r.gone = true
	if r.peer != nil {
		r.peer.Close()
		r.peer = nil
	}
}

func (r *eventClient) act() {
	w := r.w
	switch w.random.IntN(4) {
	case 0:
		r.read(false)
	case 1:
		r.read(true)
	case 2:
		if r.peer != nil && w.random.IntN(2) == 0 {
			w.note("%s closes", r.name)
			r.peer.Close()
			r.peer, r.backAt = nil, w.Now().Add(time.Duration(w.random.IntN(2000))*time.Millisecond)
			for _, s := range r.subs {
				s.live = false
			}
		}
	}
}

// A redisClient speaks RESP2.
type redisClient struct {
	w       *world
	name    string
	peer    *sim.Peer
	in      []byte
	asked   []string
	numbers []int
	subs    map[string]*subscription
	backAt  time.Time
	gone    bool
	stopped bool
	user    string
	ready   bool
}

func (w *world) newRedis(n int) *redisClient {
	return &redisClient{w: w, name: fmt.Sprintf("redis %d", n), subs: map[string]*subscription{}, user: w.user()}
}

func (r *redisClient) send(what string, args ...string) {
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	r.asked = append(r.asked, what)
	r.peer.Write([]byte(text))
}

func (r *redisClient) lose(why string) {
	r.w.note("%s: %s", r.name, why)
	r.peer.Close()
	r.peer, r.backAt, r.asked, r.ready = nil, r.w.Now().Add(time.Duration(r.w.random.IntN(2000))*time.Millisecond),
		nil, false
	r.numbers = nil
	clear(r.subs)
}

func (r *redisClient) step() {
	w := r.w
	if r.peer == nil {
		if r.gone || w.stopping || w.Now().Before(r.backAt) {
			return
		}
		r.peer, r.in, r.stopped = w.Dial(w.redisA), nil, false
		w.note("%s opens", r.name)
		if w.o.tokens {
			r.send("AUTH", "AUTH", w.sign(jwt.MapClaims{"sub": r.user, "exp": w.Now().Add(w.o.tokenLife).Unix()}))
		} else {
			r.send("PING", "PING")
		}
		return
	}
	r.in = append(r.in, r.peer.TakeReceived()...)
	for r.peer != nil {
		value, rest, ok := respValue(r.in)
		if !ok {
			break
		}
		r.in = rest
		r.take(value)
	}
	if r.peer != nil && (r.peer.Ended() || r.peer.Closed()) {
		r.lose(fmt.Sprintf("ended: %v", r.peer.Err()))
	}
}

// respValue returns the first value of in, as a string or a list of strings.
func respValue(in []byte) (value []string, rest []byte, ok bool) {
	line, rest, found := bytes.Cut(in, []byte("\r\n"))
	if !found {
		return nil, in, false
	}
	switch line[0] {
	case '$':
		n, _ := strconv.Atoi(string(line[1:]))
		if n < 0 {
			return []string{""}, rest, true
		}
		if len(rest) < n+2 {
			return nil, in, false
		}
		return []string{string(rest[:n])}, rest[n+2:], true
	case '*':
		n, _ := strconv.Atoi(string(line[1:]))
		value = []string{"*"}
		for range n {
			var one []string
			if one, rest, ok = respValue(rest); !ok {
				return nil, in, false
			}
			value = append(value, one[0])
		}
		return value, rest, true
	}
	return []string{string(line)}, rest, true
}

func (r *redisClient) take(value []string) {
	w := r.w
	if value[0] == "*" && len(value) == 4 && value[1] == "message" {
		s := r.subs[value[2]]
		if s == nil {
			w.fail("%s got a message in %s, where it is not subscribed", r.name, value[2])
			return
		}
		s.got(idIn(value[3]), push.Position{})
		return
	}
	if len(r.asked) == 0 {
		w.fail("%s got %q without a command", r.name, value)
		return
	}
	was, number := r.asked[0], 0
	r.asked = r.asked[1:]
	kind, channel, _ := strings.Cut(was, " ")
	isError := strings.HasPrefix(value[0], "-")
	if kind == "PUBLISH" {
		number, r.numbers = r.numbers[0], r.numbers[1:]
	}
	if isError {
		may := strings.Contains(value[0], "100 ") || strings.Contains(value[0], "NOPERM") ||
			strings.Contains(value[0], "NOAUTH") ||
			strings.Contains(value[0], "WRONGPASS") || w.o.hooked() || w.o.config.Rates != (push.Rates{}) ||
			strings.Contains(value[0], "limit exceeded") || strings.Contains(value[0], "bad request")
		if !may {
			w.fail("%s: %s was answered %q", r.name, was, value)
		}
		if kind == "PUBLISH" {
			w.refused[number] = channel
		}
		if s := r.subs[channel]; kind == "SUBSCRIBE" && s != nil && !s.live {
			delete(r.subs, channel)
		}
		return
	}
	switch kind {
	case "AUTH", "PING":
		r.ready = true
	case "SUBSCRIBE":
		if s := r.subs[channel]; s != nil && value[1] == "subscribe" && value[2] == channel {
			s.confirmed()
			return
		}
		w.fail("%s: %s was answered %q", r.name, was, value)
	case "UNSUBSCRIBE":
		delete(r.subs, channel)
	case "PUBLISH":
		w.accept(number, channel)
	}
}

func (r *redisClient) isQuiet() bool {
	if r.gone || r.w.stopping {
		return true
	}
	return r.peer != nil && len(r.asked) == 0
}

func (r *redisClient) read(on bool) {
	if r.peer == nil || on != r.stopped {
		return
	}
	if r.stopped = !on; on {
		r.peer.Resume()
		return
	}
	r.peer.StopReading()
}

func (r *redisClient) leave() {
	r.gone = true
	if r.peer != nil {
		r.peer.Close()
		r.peer = nil
	}
}

func (r *redisClient) act() {
	w := r.w
	if r.peer == nil || !r.ready {
		return
	}
	name := w.channel()
	s := r.subs[name]
	switch w.random.IntN(8) {
	case 0, 1:
		if s != nil {
			return
		}
		s = w.newSubscription(r.name, name)
		s.begin()
		r.subs[name] = s
		w.note("%s subscribes to %s", r.name, name)
		r.send("SUBSCRIBE "+name, "SUBSCRIBE", name)
	case 2:
		if s == nil || !s.live {
			return
		}
		w.note("%s unsubscribes from %s", r.name, name)
		r.send("UNSUBSCRIBE "+name, "UNSUBSCRIBE", name)
	case 3, 4:
		if len(r.subs) > 0 { // RESP2: a subscriber may not
			return
		}
		id := w.newID()
		r.numbers = append(r.numbers, id)
		w.note("%s publishes %d to %s", r.name, id, name)
		r.send("PUBLISH "+name, "PUBLISH", name, w.text(id))
	case 5:
		r.read(false)
	case 6:
		r.read(true)
	case 7:
		if w.random.IntN(3) == 0 {
			r.lose("closes")
		}
	}
}

// An httpCall is a request to the server whose answer has not come.
type httpCall struct {
	w    *world
	what string
	peer *sim.Peer
	wire string
	in   []byte
	done func(status int, body string)
	lost func()
}

// call sends a request. done gets the answer; if the network loses it, lost is called.
func (w *world) call(what, path, body string, done func(status int, body string), lost func()) {
	w.callTo(w.node(), what, path, body, done, lost)
}

// callTo is call for one node.
func (w *world) callTo(node myriadAddr, what, path, body string, done func(status int, body string), lost func()) {
	c := &httpCall{w: w, what: what, done: done, lost: lost,
		wire: fmt.Sprintf("POST %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path,
			len(body), body)}
	if strings.HasPrefix(path, "/.well-known") {
		c.wire = strings.Replace(c.wire, "Content-Length",
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length", 1)
	}
	c.peer = w.Dial(node)
	c.peer.Write([]byte(c.wire))
	w.calls = append(w.calls, c)
}

// step reports whether the call is over.
func (c *httpCall) step() bool {
	c.in = append(c.in, c.peer.TakeReceived()...)
	if status, body, ok := wholeAnswer(c.in); ok {
		c.peer.Close()
		c.done(status, body)
		return true
	}
	if c.peer.Ended() || c.peer.Closed() {
		if !c.peer.Faulted() && c.w.o.faults.Reset < 0 && c.w.o.faults.Dial < 0 && c.w.o.faults.Accept < 0 &&
			!c.w.shut &&
			!c.w.stopping {
			c.w.fail("%s: the connection ended with %q: %v", c.what, c.in, c.peer.Err())
		}
		c.lost()
		return true
	}
	return false
}

// wholeAnswer returns an answer with a Content-Length, once all of it has come.
func wholeAnswer(in []byte) (status int, body string, ok bool) {
	head, body, _ := strings.Cut(string(in), "\r\n\r\n")
	if strings.HasPrefix(head, "HTTP/1.1 204") {
		return 204, "", true
	}
	_, rest, _ := strings.Cut(strings.ToLower(head), "content-length: ")
	length, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(length)
	if err != nil || len(body) < n {
		return 0, "", false
	}
	status, _ = strconv.Atoi(head[9:12])
	return status, body[:n], true
}

// ask calls a method of the HTTP API and waits for the answer. ok is false if the network has lost
// it, or the address has called too often.
func (w *world) ask(method string, request any) (body string, ok bool) {
	text, _ := json.Marshal(request)
	over := false
	w.call(method, "/api/"+method, string(text), func(status int, answer string) {
		over, ok, body = true, status == 200, answer
		if status != 200 && !(status == 429 && w.o.config.Rates != (push.Rates{})) {
			w.fail("%s %s was answered %d %s", method, text, status, answer)
		}
	}, func() { over = true })
	for range 2000 {
		if over {
			return body, ok
		}
		w.pass(tick)
	}
	w.fail("%s was not answered", method)
	return "", false
}
