package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	deliverers = 8                     // connections that deliver
	margin     = 50 * time.Millisecond // for what was delivered last to arrive, after the last poll
)

// A load is all users of one run.
type load struct {
	plan   plan
	url    string
	client *http.Client
	window atomic.Bool // between the moment when all listen and the last delivery: requests count
	late   atomic.Bool // and until what was delivered in the window must have come: messages count

	mu  sync.Mutex
	sum result
}

// A listener is one user's page: it calls ready when it is subscribed, and listens until ctx ends.
type listener func(ctx context.Context, l *load, user string, ready func()) error

func newLoad(p plan, url string) *load { return &load{plan: p, url: url, client: newClient(p.users)} }

func (l *load) close() { l.client.CloseIdleConnections() }

func (l *load) result() result {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.lates = sorted(l.sum.lates)
	return l.sum
}

// run connects all listeners, and then delivers for the time of the plan.
func (l *load) run(ctx context.Context, listen listener) error {
	listening, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, l.plan.users)
	var ready, users sync.WaitGroup
	for i := range l.plan.users {
		ready.Add(1)
		users.Go(func() {
			var once sync.Once
			heard := func() { once.Do(ready.Done) }
			if err := listen(listening, l, userName(i), heard); err != nil && listening.Err() == nil {
				failed <- err
			}
			heard()
		})
	}
	ready.Wait()
	l.window.Store(true)
	l.late.Store(true)
	err := l.deliver(ctx)
	l.window.Store(false)
	if err == nil {
		err = wait(ctx, l.plan.poll+margin)
	}
	l.late.Store(false)
	stop()
	users.Wait()
	select {
	case err = <-failed:
	default:
	}
	return err
}

func userName(i int) string { return "user-" + strconv.Itoa(i) }

// deliver sends mail to users at random, at the plan's rate for as long as the plan says. It is the
// same for both ways.
func (l *load) deliver(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, l.plan.last)
	defer stop()
	gap := l.plan.every() / time.Duration(l.plan.users)
	begin := time.Now()
	next := new(atomic.Int64)
	failed := make(chan error, deliverers)
	var all sync.WaitGroup
	for range deliverers {
		all.Go(func() {
			for {
				due := begin.Add(time.Duration(next.Add(1)) * gap)
				if due.Sub(begin) >= l.plan.last || wait(ctx, time.Until(due)) != nil {
					return
				}
				form := url.Values{"to": {userName(rand.IntN(l.plan.users))}, "from": {"load@example.org"},
					"subject": {"A message"}, "text": {strings.Repeat("All of it. ", 20)}}
				if _, err := l.do(context.WithoutCancel(ctx), "POST", "/api/deliver",
					strings.NewReader(form.Encode())); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// polling asks for what is new, again and again, each user at moments of its own.
func polling(ctx context.Context, l *load, user string, ready func()) error {
	ready()
	if wait(ctx, rand.N(l.plan.poll)) != nil {
		return nil
	}
	tick := time.NewTicker(l.plan.poll)
	defer tick.Stop()
	known := uint64(0)
	for {
		body, err := l.do(ctx, "GET", fmt.Sprintf("/api/changes?user=%s&since=%d", user, known), nil)
		if err != nil {
			return err
		}
		var u update
		if err := json.Unmarshal(body, &u); err != nil {
			return err
		}
		known = u.ModSeq
		l.count(1, len(body), u.Changes)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// pushing holds one stream of events.
func pushing(ctx context.Context, l *load, user string, ready func()) error {
	r, err := http.NewRequestWithContext(ctx, "GET", l.url+"/events?"+url.Values{"channel": {channel(user)}}.Encode(),
		nil)
	if err != nil {
		return err
	}
	res, err := l.client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/events: %s", res.Status)
	}
	ready()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 2*maxText)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var c change
		if err := json.Unmarshal(data, &c); err != nil {
			return err
		}
		l.count(0, len(lines.Bytes())+2, []change{c})
	}
	return lines.Err()
}

// count notes what a user has got, if it is time.
func (l *load) count(requests, bytes int, changes []change) {
	now, window := time.Now(), l.window.Load()
	if !l.late.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if window {
		l.sum.requests += requests
	}
	if window && requests > 0 && len(changes) == 0 {
		l.sum.vain++
	}
	l.sum.bytes += bytes
	l.sum.messages += len(changes)
	for _, c := range changes {
		l.sum.lates = append(l.sum.lates, now.Sub(c.At))
	}
}

func (l *load) do(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, l.url+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := l.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, answer)
	}
	return answer, err
}
