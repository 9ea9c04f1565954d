package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/server/push/token"
)

// This file writes down what clients have used of their rates, and what their tokens let them do,
// for a process that takes the place of this one.

// The parts of the state of Limiters. The buckets follow their limit.
const (
	limitPart  = "rates.limit.1"
	bucketPart = "rates.bucket.1"
)

// StateParts are the parts of what Limiters.WriteState writes.
func StateParts() []string { return []string{limitPart, bucketPart} }

// RulesPart is the part of what Namespaces.WriteState writes.
const RulesPart = "rules.namespace.1"

// WriteState writes the rules that cannot change while channels have subscribers.
func (all *Namespaces) WriteState(w *snapshot.Writer) error {
	for name, rules := range all.lasting() {
		record := snapshot.AppendNumber(snapshot.AppendText(nil, name), uint64(rules.keep.Size))
		record = snapshot.AppendInt(record, int64(rules.keep.Age))
		record = snapshot.AppendBool(snapshot.AppendBool(record, rules.recovery), rules.joinLeave)
		record = snapshot.AppendNumber(snapshot.AppendText(record, rules.slow), uint64(rules.slowQueue))
		if err := w.Record(RulesPart, record); err != nil {
			return err
		}
	}
	return nil
}

// Record adds a record of RulesPart.
func (r LastingRules) Record(body []byte) error {
	f := snapshot.NewFields(body)
	name := f.Text()
	rules := lastingRules{}
	rules.keep.Size = int(f.NumberUpTo(MaxHistorySize, "the size of a history"))
	rules.keep.Age = time.Duration(f.Int())
	rules.recovery, rules.joinLeave = f.Bool(), f.Bool()
	rules.slow = SlowPolicy(f.Text())
	rules.slowQueue = int(f.NumberUpTo(math.MaxInt, "the size of a queue"))
	if err := f.Done(); err != nil {
		return fmt.Errorf("policy: %s: %w", RulesPart, err)
	}
	r[name] = rules
	return nil
}

// named are the limiters by the names that a state has for them.
func (r *limiters) named() map[string]*limiter {
	return map[string]*limiter{
		"user connections": &r.userConnections, "address connections": &r.addressConnections,
		"user subscriptions": &r.userSubscriptions, "address subscriptions": &r.addressSubscriptions,
		"user publications": &r.userPublications, "address publications": &r.addressPublications,
		"user commands": &r.userCommands, "address commands": &r.addressCommands,
		"address calls": &r.addressCalls,
	}
}

// WriteState writes the buckets that are not full now.
func (l *Limiters) WriteState(w *snapshot.Writer, now time.Time) error {
	r := l.current.Load()
	if r == nil {
		return nil
	}
	for name, one := range r.named() {
		if one.rate.Count == 0 {
			continue
		}
		if err := one.writeState(w, name, now.UnixNano()); err != nil {
			return err
		}
	}
	return nil
}

func (l *limiter) writeState(w *snapshot.Writer, name string, now int64) error {
	head := snapshot.AppendNumber(snapshot.AppendText(nil, name), uint64(l.rate.Count))
	if err := w.Record(limitPart, snapshot.AppendInt(head, int64(l.rate.Per))); err != nil {
		return err
	}
	var record []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, full := range l.full {
		told := l.told[key]
		if full <= now && told <= now {
			continue
		}
		record = snapshot.AppendInt(snapshot.AppendInt(snapshot.AppendText(record[:0], key), full), told)
		if err := w.Record(bucketPart, record); err != nil {
			return err
		}
	}
	return nil
}

// A Restore gives Limiters the buckets of others.
type Restore struct {
	limits map[string]*limiter
	now    int64
	known  bool     // a limit has come
	open   *limiter // whose buckets follow; nil: they are passed over
}

// Restore begins to fill l. Buckets of a limit that has another rate now are full, as after Set.
func (l *Limiters) Restore(now time.Time) *Restore {
	r := &Restore{now: now.UnixNano()}
	if current := l.current.Load(); current != nil {
		r.limits = current.named()
	}
	return r
}

// Record takes a record of one of StateParts, in the order of WriteState.
func (r *Restore) Record(part string, body []byte) error {
	f := snapshot.NewFields(body)
	switch part {
	case limitPart:
		name := f.Text()
		rate := Rate{Count: int(f.NumberUpTo(math.MaxInt, "the count of a rate")), Per: time.Duration(f.Int())}
		r.known, r.open = true, r.limits[name]
		if r.open != nil && r.open.rate != rate {
			r.open = nil
		}
	case bucketPart:
		key, full, told := f.Text(), f.Int(), f.Int()
		if !r.known {
			f.Fail("a bucket has no limit")
		}
		if r.open != nil && !f.Failed() {
			r.open.restore(key, full, told, r.now)
		}
	default:
		return fmt.Errorf("policy: %s: %w", part, snapshot.ErrUnknown)
	}
	if err := f.Done(); err != nil {
		return fmt.Errorf("policy: %s: %w", part, err)
	}
	return nil
}

// restore sets when a bucket is full again, at most the time of the rate from now, as if it were
// empty; and the last time that a client was told to come back.
func (l *limiter) restore(key string, full, told, now int64) {
	full = min(full, now+int64(l.rate.Per))
	told = min(told, now+int64(l.rate.Per)+int64(longestAdvice))
	l.mu.Lock()
	defer l.mu.Unlock()
	if told > now {
		l.tell(key, told)
	}
	if full <= now {
		return
	}
	if _, known := l.full[key]; !known {
		l.makeRoom(now)
	}
	l.full[key] = full
}

// The ways in which a capability names channels, as a state has them.
const (
	byName = iota
	byPattern
	byRegex
)

// AppendState appends list, for RegexCache.ReadCapabilities.
func (list Capabilities) AppendState(dst []byte) []byte {
	dst = snapshot.AppendNumber(dst, uint64(len(list)))
	for i := range list {
		c := &list[i]
		how, channels := byName, c.names
		switch {
		case len(c.patterns) > 0:
			how, channels = byPattern, c.patterns
		case len(c.regexes) > 0:
			how, channels = byRegex, nil
			for _, re := range c.regexes {
				channels = append(channels, re.String())
			}
		}
		dst = snapshot.AppendNumber(snapshot.AppendNumber(dst, uint64(c.allow)), uint64(how))
		dst = snapshot.AppendTexts(dst, channels)
	}
	return dst
}

// ReadCapabilities reads what AppendState has appended, and checks it as Capabilities does.
func (c *RegexCache) ReadCapabilities(f *snapshot.Fields) Capabilities {
	var given []Capability
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		allow := Right(f.NumberUpTo(uint64(allRights), "the rights of a capability"))
		how := f.NumberUpTo(byRegex, "how a capability names channels")
		one := Capability{Match: [...]string{byName: "", byPattern: "wildcard", byRegex: "regex"}[how],
			Channels: f.Texts()}
		for _, name := range []string{token.RightSubscribe, token.RightPublish, token.RightPresence,
			token.RightHistory} {
			if allow&rightNames[name] != 0 {
				one.Allow = append(one.Allow, name)
			}
		}
		given = append(given, one)
	}
	if f.Failed() {
		return nil
	}
	all, err := c.Capabilities(given)
	if err != nil {
		f.Fail(err.Error())
	}
	return all
}

const allRights = RightSubscribe | RightPublish | RightPresence | RightHistory

// AppendState appends f, for ReadFilter.
func (f *TagFilter) AppendState(dst []byte) []byte {
	dst = snapshot.AppendText(snapshot.AppendText(dst, f.Op), f.Key)
	dst = snapshot.AppendText(snapshot.AppendText(dst, f.Compare), f.Value)
	dst = snapshot.AppendNumber(snapshot.AppendTexts(dst, f.Values), uint64(len(f.Nodes)))
	for _, node := range f.Nodes {
		dst = node.AppendState(dst)
	}
	return dst
}

// ReadFilter reads what AppendState has appended. It has the limits of a filter of a client.
func ReadFilter(f *snapshot.Fields) *TagFilter { return readFilter(f, new(FilterSize), 1) }

func readFilter(f *snapshot.Fields, size *FilterSize, depth int) *TagFilter {
	node := &TagFilter{Op: f.Text(), Key: f.Text(), Compare: f.Text(), Value: f.Text(), Values: f.Texts()}
	if err := size.Grow(depth, len(node.Values)); err != nil {
		f.Fail(err.Error())
	}
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		node.Nodes = append(node.Nodes, readFilter(f, size, depth+1))
	}
	if err := node.Prepare(); err != nil {
		f.Fail(err.Error())
	}
	return node
}
