package push_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push"
)

// This file holds what a world does by the Go API and the HTTP API, and what is checked when it is
// quiet.

// populate opens the clients.
func (w *world) populate() {
	w.hooks.expired = map[string]bool{}
	for i := range w.o.sockets {
		c := w.newSocket(i)
		w.clients = append(w.clients, c)
		c.open()
	}
	for i := range w.o.events {
		r := w.newEvents(i)
		w.readers = append(w.readers, r)
	}
	for i := range w.o.redis {
		w.resps = append(w.resps, w.newRedis(i))
	}
}

// newID returns the id of a new publication.
func (w *world) newID() int {
	w.lastID++
	return w.lastID
}

// data returns the JSON of a publication.
func (w *world) data(id int) string {
	pad := 0
	switch w.random.IntN(10) {
	case 0:
		pad = w.random.IntN(3500)
	case 1, 2:
		pad = w.random.IntN(300)
	}
	return fmt.Sprintf(`{"n":"#%d#","pad":%q}`, id, strings.Repeat("state ", pad/6))
}

// text returns data of any kind.
func (w *world) text(id int) string {
	switch w.random.IntN(3) {
	case 0:
		return fmt.Sprintf("plain #%d# text", id)
	case 1:
		return fmt.Sprintf("\xff\x00 bytes #%d#", id)
	}
	return w.data(id)
}

// accept notes that the server has accepted a publication.
func (w *world) accept(id int, channel string) {
	w.accepted[id] = channel
	if _, ok := w.bus.log(channel).index[id]; !ok {
		w.fail("%d was accepted in %s, and was not published", id, channel)
	}
}

// act has a client or the program do something.
func (w *world) act() {
	n := w.random.IntN(10)
	switch {
	case n < 5:
		w.clients[w.random.IntN(len(w.clients))].act()
	case n == 5 && len(w.readers) > 0:
		w.readers[w.random.IntN(len(w.readers))].act()
	case n == 6 && len(w.resps) > 0:
		w.resps[w.random.IntN(len(w.resps))].act()
	default:
		w.operate()
	}
}

// operate does something that the program or an operator does.
func (w *world) operate() {
	ctx, name := context.Background(), w.channel()
	switch w.random.IntN(24) {
	case 0, 1, 2, 3, 4, 5:
		w.publish(name)
	case 6:
		for range 1 + w.random.IntN(60) { // a burst
			w.publish(name)
		}
	case 7:
		w.broadcast()
	case 8:
		id := w.newID()
		w.note("HTTP publishes %d to %s", id, name)
		w.callPublish(id, name)
	case 9:
		w.batch()
	case 10:
		err := w.api().RemoveHistory(ctx, name)
		w.note("RemoveHistory %s: %s", name, describe(err))
		if err == nil {
			w.forgotten[name] = len(w.bus.log(name).list)
		}
	case 11, 12:
		c := w.clients[w.random.IntN(len(w.clients))]
		if c.id == "" {
			return
		}
		o := push.SubscribeOptions{}
		if at, err := w.api().History(ctx, name, push.Query{}); err == nil && at.Top.Offset > 2 &&
			w.random.IntN(2) == 0 {
			at.Top.Offset -= 2
			o.Since = &at.Top
		}
		n, err := w.api().Subscribe(ctx, push.Target{Client: c.id}, name, o)
		w.note("the API subscribes %s to %s after %v: %d %s", c.name, name, o.Since, n, describe(err))
		w.expectError(err, push.ErrLimitExceeded.Code, push.ErrAlreadySubscribed.Code, push.ErrUnrecoverable.Code)
	case 13:
		c := w.clients[w.random.IntN(len(w.clients))]
		if c.id == "" {
			return
		}
		n, err := w.api().Unsubscribe(ctx, push.Target{User: c.user, Client: c.id}, name)
		w.note("the API unsubscribes %s of %s from %s: %d %s", c.name, c.user, name, n, describe(err))
	case 14:
		t := push.Target{User: w.user()}
		n, err := w.api().Disconnect(ctx, t, []push.Disconnect{{}, {Code: 4000, Reason: "come back"},
			{Code: 4500, Reason: "stay away"}}[w.random.IntN(3)])
		w.note("the API disconnects %s: %d %s", t.User, n, describe(err))
		w.expectError(err)
	case 15:
		c := w.clients[w.random.IntN(len(w.clients))]
		if c.id == "" {
			return
		}
		o := push.RefreshOptions{ExpireAt: w.Now().Add(time.Duration(1+w.random.IntN(30)) * time.Second).Unix()}
		switch w.random.IntN(3) {
		case 0:
			o = push.RefreshOptions{}
		case 1:
			o = push.RefreshOptions{Expired: true}
		}
		w.hooks.expired[c.id] = true
		n, err := w.api().Refresh(ctx, push.Target{Client: c.id}, o)
		w.note("the API refreshes %s: %+v: %d %s", c.name, o, n, describe(err))
		w.expectError(err)
	case 16:
		if w.random.IntN(3) == 0 {
			w.note("the bus loses what is in %s", name)
			w.bus.loses(name)
		}
	case 17:
		if w.o.reload {
			w.reload()
		}
	case 18:
		w.idempotent(name)
	case 19:
		w.versioned(name)
	case 21:
		if w.other != nil && w.random.IntN(4) == 0 {
			w.shutOther()
		}
	case 20:
		if !w.o.tokens && !w.o.hooked() {
			id := w.newID()
			w.call("mercure", "/.well-known/mercure", "topic=news&data="+strings.ReplaceAll(w.data(id), "#", "%23"),
				func(status int, body string) {
					if status == 200 {
						w.accept(id, "\x00mercure")
					} else if status != 429 || w.o.config.Rates == (push.Rates{}) {
						w.fail("Mercure: %d %s", status, body)
					}
				}, func() {})
		}
	default:
		w.publish(name)
	}
}

// expectError fails unless err is nil or has one of the codes.
func (w *world) expectError(err error, codes ...uint32) {
	var answer push.Error
	if err != nil && !(errors.As(err, &answer) && slices.Contains(codes, answer.Code)) {
		w.fail("unexpected: %v", err)
	}
}

// publish publishes by the Go API, with options or without.
func (w *world) publish(name string) {
	id, ctx := w.newID(), context.Background()
	o := push.PublishOptions{}
	data := w.data(id)
	switch w.random.IntN(8) {
	case 0:
		o.SkipHistory = true
	case 1:
		o.Kind, data = push.Text, fmt.Sprintf("text #%d#", id)
	case 2:
		o.Kind, data = push.Binary, fmt.Sprintf("\xfe\xff#%d#", id)
	}
	if w.random.IntN(3) == 0 {
		o.Tags = map[string]string{"k": []string{"x", "y"}[w.random.IntN(2)]}
	}
	at, err := w.api().PublishWith(ctx, name, []byte(data), o)
	w.note("publish %d to %s at %v: %s", id, name, at, describe(err))
	if err != nil {
		w.fail("publish to %s: %v", name, err)
		return
	}
	w.accept(id, name)
	if rules := w.rules(name); (rules.HistorySize > 0 && !o.SkipHistory) != (at.Epoch != "") {
		w.fail("a publication to %s is at %v", name, at)
	}
	if p := w.bus.log(name).list[w.bus.log(name).index[id]]; p.at != at {
		w.fail("a publication to %s is at %v, and was answered %v", name, p.at, at)
	}
}

// broadcast publishes to several channels. All have one id, so they are of different channels.
func (w *world) broadcast() {
	id := w.newID()
	names := []string{"1", "a:1", "b:2", "c:3"}[:1+w.random.IntN(4)]
	all, err := w.api().Broadcast(context.Background(), names, []byte(w.data(id)), push.PublishOptions{})
	w.note("broadcast %d to %q: %s", id, names, describe(err))
	if err != nil || len(all) != len(names) {
		w.fail("broadcast: %v %v", all, err)
		return
	}
	for i, name := range names {
		if all[i].Err != nil {
			w.fail("broadcast to %s: %v", name, all[i].Err)
		}
		w.accept(id, name)
	}
}

// callPublish publishes by the HTTP API.
func (w *world) callPublish(id int, name string) {
	w.call("publish", "/api/publish", fmt.Sprintf(`{"channel":%q,"data":%s}`, name, w.data(id)),
		func(status int, body string) {
			if status == 429 && w.o.config.Rates != (push.Rates{}) {
				w.refused[id] = name
				return
			}
			if status != 200 || strings.Contains(body, "error") {
				w.fail("publish by HTTP: %d %s", status, body)
				return
			}
			w.accept(id, name)
			w.checkPosition(id, name, body)
		}, func() {})
}

// checkPosition compares the position that the HTTP API has answered.
func (w *world) checkPosition(id int, name, body string) {
	var answer struct {
		Result struct {
			Offset uint64
			Epoch  string
		}
	}
	l := w.bus.log(name)
	i, ok := l.index[id]
	if err := json.Unmarshal([]byte(body), &answer); err != nil || ok && push.Position(answer.Result) != l.list[i].at {
		w.fail("publish by HTTP at %v was answered %s", l.list[i].at, body)
	}
}

// batch sends several commands in one request. Their answers come in their order.
func (w *world) batch() {
	var commands []string
	var ids []int
	var names []string
	for range 1 + w.random.IntN(5) {
		id, name := w.newID(), w.channel()
		ids, names = append(ids, id), append(names, name)
		commands = append(commands, fmt.Sprintf(`{"publish":{"channel":%q,"data":%s}}`, name, w.data(id)))
	}
	if len(commands) > w.seam.Limits().Commands {
		return
	}
	w.note("batch %v to %q", ids, names)
	w.call("batch", "/api/batch", `{"commands":[`+strings.Join(commands, ",")+`]}`, func(status int, body string) {
		if status == 429 && w.o.config.Rates != (push.Rates{}) {
			return
		}
		var answer struct {
			Replies []struct {
				Error   json.RawMessage
				Publish json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 ||
			len(answer.Replies) != len(ids) {
			w.fail("batch: %d %s", status, body)
			return
		}
		before := -1
		for i, one := range answer.Replies {
			if one.Error != nil || one.Publish == nil {
				w.fail("batch: %s", body)
				return
			}
			w.accept(ids[i], names[i])
			w.checkPosition(ids[i], names[i], `{"result":`+string(one.Publish)+`}`)
			if at := w.bus.log(names[i]).index[ids[i]]; i > 0 && names[i] == names[i-1] && at < before {
				w.fail("a batch is out of order")
			} else {
				before = at
			}
		}
	}, func() {})
}

// idempotent publishes twice with one key.
func (w *world) idempotent(name string) {
	ctx := context.Background()
	id, again := w.newID(), w.newID()
	o := push.PublishOptions{IdempotencyKey: fmt.Sprintf("key %d", id)}
	at, err := w.api().PublishWith(ctx, name, []byte(w.data(id)), o)
	if err != nil {
		w.fail("publish with a key: %v", err)
		return
	}
	w.accept(id, name)
	if twice, err := w.api().PublishWith(ctx, name, []byte(w.data(again)), o); err != nil || twice != at {
		w.fail("publish again with a key: %v %v, first at %v", twice, err, at)
	}
	w.refused[again] = name
}

// versioned publishes an older version behind a newer one.
func (w *world) versioned(name string) {
	ctx := context.Background()
	id, older := w.newID(), w.newID()
	number := uint64(w.lastID)
	o := push.PublishOptions{Version: &push.Version{Number: number, Epoch: "v"}}
	at, err := w.api().PublishWith(ctx, name, []byte(w.data(id)), o)
	if w.rules(name).HistorySize == 0 {
		w.refused[id] = name
		var answer push.Error
		if !errors.As(err, &answer) || answer.Code != push.ErrNotAvailable.Code {
			w.fail("a version without a history: %v", err)
		}
		return
	}
	if err != nil {
		w.fail("publish a version: %v", err)
		return
	}
	w.accept(id, name)
	o.Version = &push.Version{Number: number - 1, Epoch: "v"}
	if twice, err := w.api().PublishWith(ctx, name, []byte(w.data(older)), o); err != nil || twice != at {
		w.fail("publish an older version: %v %v, the newer at %v", twice, err, at)
	}
	w.refused[older] = name
}

// reload changes rules that a running server can change.
func (w *world) reload() {
	c := w.o.config
	c.Namespaces = slices.Clone(c.Namespaces)
	for i := range c.Namespaces {
		ns := &c.Namespaces[i]
		switch w.random.IntN(4) {
		case 0:
			ns.Presence = !ns.Presence
		case 1:
			ns.Publish = []push.PublishRule{push.PublishClients, push.PublishSubscribers,
				push.PublishNobody}[w.random.IntN(3)]
		case 2:
			ns.ChannelRegex = []string{"", "^[1-2].*$"}[w.random.IntN(2)]
		}
	}
	if w.random.IntN(3) == 0 {
		c.Rates = push.Rates{}
	}
	err := w.server.Reload(c)
	if w.other != nil {
		err = errors.Join(err, w.other.server.Reload(c))
	}
	w.note("reload: %s", describe(err))
	if err != nil {
		w.fail("reload: %v", err)
		return
	}
	c.Rates = w.o.config.Rates // what may have been refused
	w.o.config = c
	wrong := c
	wrong.Namespaces = append(slices.Clone(c.Namespaces), push.Namespace{Name: "history", HistorySize: 1})
	if err := w.server.Reload(wrong); !errors.Is(err, push.ErrNeedsRestart) {
		w.fail("reload with a history: %v", err)
	}
}

// judge waits until nothing is under way, and checks what must be true then.
func (w *world) judge() {
	if !w.settle() {
		return
	}
	w.judgePublications()
	w.judgeSubscriptions()
	w.judgePresence()
	w.judgeAnswers()
}

// judgePublications checks that what was accepted was published, once, and what was refused was
// not.
func (w *world) judgePublications() {
	for id, channel := range w.refused {
		if _, made := w.bus.log(channel).index[id]; made {
			w.fail("%d was refused, and was published in %s", id, channel)
		}
	}
	clear(w.refused)
	clear(w.accepted)
}

// judgeSubscriptions checks that each subscriber has everything.
func (w *world) judgeSubscriptions() {
	gaps := 0
	for _, s := range w.subscriptions() {
		if s.live {
			s.complete()
		}
		gaps += s.gaps
	}
	dropped := w.figure("myriad_dropped_total")
	if !w.o.mayLose() && gaps > dropped {
		w.fail("%d publications were not received by subscribers whose policy drops, and %d were counted", gaps,
			dropped)
	}
}

// mayLose reports whether connections end for reasons that the world does not see at once.
func (o *worldOptions) mayLose() bool { return false }

func (w *world) subscriptions() (all []*subscription) {
	for _, c := range w.clients {
		for _, name := range sortedKeys(c.subs) {
			all = append(all, c.subs[name])
		}
	}
	for _, r := range w.readers {
		for _, name := range sortedKeys(r.subs) {
			all = append(all, r.subs[name])
		}
	}
	for _, r := range w.resps {
		for _, name := range sortedKeys(r.subs) {
			all = append(all, r.subs[name])
		}
	}
	return all
}

// figure returns a figure of /metrics.
func (w *world) figure(name string) int {
	sum := w.figureOf(w.server, name)
	if w.other != nil {
		sum += w.figureOf(w.other.server, name)
	}
	return sum
}

func (w *world) figureOf(s *push.Server, name string) int {
	rec := httptest.NewRecorder()
	s.Admin().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	m := regexp.MustCompile(`(?m)^` + name + ` ([0-9.e+]+)$`).FindStringSubmatch(rec.Body.String())
	if m == nil {
		w.fail("no figure %s", name)
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		w.fail("the figure %s is %s", name, m[1])
	}
	return int(n)
}

// judgePresence checks that presence is who is there. A client may not have heard yet that its
// connection has ended, so that it is asked again.
func (w *world) judgePresence() {
	var wrong []string
	for range 20 {
		if wrong = w.wrongPresence(); len(wrong) == 0 {
			return
		}
		w.pass(time.Second)
	}
	for _, text := range wrong {
		w.fail("%s", text)
	}
}

func (w *world) wrongPresence() (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	ctx := context.Background()
	counts, sockets := map[string]int{}, map[string][]string{}
	for _, s := range w.subscriptions() {
		if s.live && s.channel[0] != 0 {
			counts[s.channel]++
		}
	}
	for _, c := range w.clients {
		for name, s := range c.subs {
			if s.live {
				sockets[name] = append(sockets[name], c.id)
			}
		}
	}
	list, err := w.api().Channels(ctx, "")
	if err != nil {
		w.fail("channels: %v", err)
	}
	there := map[string]int{}
	for _, one := range list {
		there[one.Name] = one.Subscribers
	}
	for _, name := range append(sortedKeys(counts), sortedKeys(there)...) {
		if counts[name] != there[name] {
			note("%s has %d subscribers, and the server counts %d", name, counts[name], there[name])
		}
	}
	for name := range counts {
		p, err := w.api().Presence(ctx, name)
		switch {
		case !w.rules(name).Presence:
			w.expectCode(err, push.ErrNotAvailable.Code)
			continue
		case counts[name] > w.seam.Limits().Present:
			w.expectCode(err, push.ErrLimitExceeded.Code)
			continue
		case err != nil:
			w.fail("presence of %s: %v", name, err)
			continue
		}
		if p.Count != counts[name] || len(p.Clients) != p.Count {
			note("%s has %d subscribers, and presence has %d", name, counts[name], p.Count)
		}
		var ids []string
		for _, one := range p.Clients {
			ids = append(ids, one.Client)
		}
		for _, id := range sockets[name] {
			if !slices.Contains(ids, id) {
				note("%s is subscribed to %s, and not present", id, name)
			}
		}
		wrong = append(wrong, w.wrongNotices(name, ids)...)
	}
	nodes, err := w.api().Nodes(ctx)
	if err != nil || len(nodes) != w.nodes() {
		w.fail("nodes: %v %v", nodes, err)
		return wrong
	}
	sum, subscriptions := 0, 0
	for _, n := range nodes {
		subscriptions += n.Subscriptions
	}
	for _, n := range counts {
		sum += n
	}
	if subscriptions != sum || len(nodes) == 1 && nodes[0].Channels != len(counts) {
		note("%d subscriptions of %d channels, and the server counts %d of %d", sum, len(counts),
			nodes[0].Subscriptions,
			nodes[0].Channels)
	}
	return wrong
}

// wrongNotices returns where joins and leaves do not add up to presence.
func (w *world) wrongNotices(name string, ids []string) (wrong []string) {
	for _, c := range w.clients {
		s := c.subs[name]
		if s == nil || !s.live || !s.notices {
			continue
		}
		for id, is := range s.there {
			if is != slices.Contains(ids, id) {
				wrong = append(wrong,
					fmt.Sprintf("%s has been told that %s is in %s: %v, and presence says otherwise", c.name,
						id, name, is))
			}
		}
	}
	return wrong
}

func (w *world) expectCode(err error, code uint32) {
	var answer push.Error
	if !errors.As(err, &answer) || answer.Code != code {
		w.fail("%v instead of the error %d", err, code)
	}
}

// judgeAnswers checks that the HTTP API answers what the Go API does.
func (w *world) judgeAnswers() {
	ctx := context.Background()
	name, user := w.channel(), w.user()
	q := push.Query{Limit: w.random.IntN(6) - 1, Reverse: w.random.IntN(3) == 0}
	ask := map[string]any{"channel": name, "limit": q.Limit, "reverse": q.Reverse}
	if h, err := w.api().History(ctx, name, push.Query{}); err == nil && w.random.IntN(2) == 0 {
		h.Top.Offset = uint64(w.random.IntN(int(h.Top.Offset) + 2))
		q.Since = &h.Top
		ask["since"] = map[string]any{"offset": h.Top.Offset, "epoch": h.Top.Epoch}
	}
	compare(w, "history", ask, func() (push.History, error) { return w.api().History(ctx, name, q) },
		func(h push.History, got struct {
			Publications []struct {
				Offset uint64
				Data   json.RawMessage
			}
			Offset uint64
			Epoch  string
		}) bool {
			same := len(got.Publications) == len(h.Publications) && got.Offset == h.Top.Offset &&
				got.Epoch == h.Top.Epoch
			for i := range got.Publications {
				same = same && got.Publications[i].Offset == h.Publications[i].Offset &&
					idIn(string(rawData(got.Publications[i].Data))) == idIn(string(h.Publications[i].Data))
			}
			w.checkHistory(name, q, h)
			return same
		})
	compare(w, "presence_stats", map[string]any{"channel": name},
		func() (push.Presence, error) { return w.api().PresenceStats(ctx, name) },
		func(p push.Presence, got struct {
			Clients int `json:"num_clients"`
			Users   int `json:"num_users"`
		}) bool {
			return got.Clients == p.Count && got.Users == p.Users
		})
	compare(w, "presence", map[string]any{"channel": name},
		func() (push.Presence, error) { return w.api().Presence(ctx, name) },
		func(p push.Presence, got struct {
			Presence map[string]struct{ User string }
		}) bool {
			same := len(got.Presence) == len(p.Clients)
			for _, one := range p.Clients {
				is, ok := got.Presence[one.Client]
				same = same && ok && is.User == one.User
			}
			return same
		})
	compare(w, "channels", map[string]any{"pattern": "a:*"},
		func() ([]push.ChannelInfo, error) { return w.api().Channels(ctx, "a:*") },
		func(list []push.ChannelInfo, got struct {
			Channels map[string]struct {
				Clients int `json:"num_clients"`
			}
		}) bool {
			same := len(got.Channels) == len(list)
			for _, one := range list {
				same = same && got.Channels[one.Name].Clients == one.Subscribers
			}
			return same
		})
	compare(w, "connections", map[string]any{"user": user},
		func() ([]push.ConnectionInfo, error) { return w.api().Connections(ctx, user) },
		func(list []push.ConnectionInfo, got struct {
			Connections map[string]struct{ Transport, Protocol, User string }
		}) bool {
			same := len(got.Connections) == len(list)
			for _, one := range list {
				is := got.Connections[one.Client]
				same = same && is.User == user && is.Transport == one.Transport && is.Protocol == one.Protocol
			}
			return same
		})
}

// compare compares an answer of the HTTP API with that of the Go API. What is asked about may
// change meanwhile, so a difference has to be there each time.
func compare[Go, HTTP any](w *world, method string, request any, call func() (Go, error), same func(Go, HTTP) bool) {
	wrong := ""
	for range 5 {
		before, _ := call()
		body, ok := w.ask(method, request)
		after, err := call()
		if !ok || !reflect.DeepEqual(before, after) {
			continue
		}
		if wrong = difference(body, after, err, same); wrong == "" {
			return
		}
	}
	if wrong != "" {
		w.fail("%s: %s", method, wrong)
	}
}

// difference says how an answer of the HTTP API differs from that of the Go API; "": it does not.
func difference[Go, HTTP any](body string, want Go, err error, same func(Go, HTTP) bool) string {
	var answer struct {
		Error *struct {
			Code    uint32
			Message string
		}
		Result HTTP
	}
	if e := json.Unmarshal([]byte(body), &answer); e != nil {
		return fmt.Sprintf("%q: %v", body, e)
	}
	var refused push.Error
	switch {
	case errors.As(err, &refused):
		if answer.Error == nil || answer.Error.Code != refused.Code || answer.Error.Message != refused.Message {
			return fmt.Sprintf("the Go API says %v, the HTTP API %s", err, body)
		}
	case err != nil:
		return err.Error()
	case answer.Error != nil || !same(want, answer.Result):
		return fmt.Sprintf("the HTTP API says %s, the Go API %+v", body, want)
	}
	return ""
}

// checkHistory checks a history against what was published.
func (w *world) checkHistory(name string, q push.Query, h push.History) {
	last := uint64(0)
	for i, p := range h.Publications {
		l := w.bus.log(name)
		j, ok := l.index[idIn(string(p.Data))]
		if !ok || l.list[j].at != p.Position || j < w.forgotten[name] {
			w.fail("the history of %s has %s at %v", name, p.Data, p.Position)
			return
		}
		if i > 0 && (p.Offset > last) == q.Reverse {
			w.fail("the history of %s is out of order: %d behind %d", name, p.Offset, last)
		}
		last = p.Offset
	}
	if q.Limit >= 0 && len(h.Publications) > q.Limit {
		w.fail("a history of %d for the limit %d", len(h.Publications), q.Limit)
	}
}

// nodes returns how many nodes answer.
func (w *world) nodes() int {
	if w.other != nil {
		return 2
	}
	return 1
}

// nothingIsLeft checks that the server keeps nothing of clients that are gone.
func (w *world) nothingIsLeft() {
	nodes, err := w.api().Nodes(context.Background())
	if err != nil || len(nodes) != w.nodes() {
		w.fail("nodes: %v %v", nodes, err)
		return
	}
	for _, n := range nodes {
		if n.Clients != 0 || n.Subscriptions != 0 || n.Channels != 0 {
			w.fail("everybody has gone, and the server has %+v", n)
		}
	}
	if n := w.figure("myriad_connections"); n != 0 {
		w.fail("everybody has gone, and the metrics have %d connections", n)
	}
	if left := w.bus.subscribed(); len(left) > 0 {
		w.fail("everybody has gone, and the bus has receivers of %q", left)
	}
	if n := w.engine.Stats().Conns; n != 0 {
		w.fail("everybody has gone, and the engine has %d connections", n)
	}
}
