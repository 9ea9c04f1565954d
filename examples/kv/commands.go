package main

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
)

const (
	wrongType  = "WRONGTYPE Operation against a key holding the wrong kind of value"
	notInteger = "ERR value is not an integer or out of range"
	overflow   = "ERR increment or decrement would overflow"
	syntax     = "ERR syntax error"
)

// register adds the commands of strings and keys.
func (s *store) register(m *resp.Mux) {
	m.Handle("GET", 2, s.get, "Get the string value of a key.")
	m.Handle("SET", -3, s.setCommand, "Set the string value of a key.")
	m.Handle("MGET", -2, s.mget, "Get the values of keys.")
	m.Handle("MSET", -3, s.mset, "Set keys to values.")
	m.Handle("INCR", 2, func(w *resp.Reply, c *resp.Command) { s.add(w, c, 1) }, "Add one to a number.")
	m.Handle("DECR", 2, func(w *resp.Reply, c *resp.Command) { s.add(w, c, -1) }, "Take one from a number.")
	m.Handle("INCRBY", 3, func(w *resp.Reply, c *resp.Command) { s.addArgument(w, c) }, "Add to a number.")
	m.Handle("DEL", -2, func(w *resp.Reply, c *resp.Command) { s.count(w, c, s.remove) }, "Delete keys.")
	m.Handle("EXISTS", -2, func(w *resp.Reply, c *resp.Command) { s.count(w, c, s.exists) },
		"Count the keys that exist.")
	m.Handle("EXPIRE", 3, func(w *resp.Reply, c *resp.Command) { s.expire(w, c, time.Second) },
		"Set a key's time to live.")
	m.Handle("PEXPIRE", 3, func(w *resp.Reply, c *resp.Command) { s.expire(w, c, time.Millisecond) },
		"Set a key's time to live in milliseconds.")
	m.Handle("PERSIST", 2, s.persist, "Remove a key's time to live.")
	m.Handle("TTL", 2, func(w *resp.Reply, c *resp.Command) { s.ttl(w, c, time.Second) }, "Get a key's time to live.")
	m.Handle("PTTL", 2, func(w *resp.Reply, c *resp.Command) { s.ttl(w, c, time.Millisecond) },
		"Get a key's time to live in milliseconds.")
	m.Handle("TYPE", 2, s.kind, "Get the type of a key's value.")
	m.Handle("KEYS", 2, s.keys, "List the keys that match a pattern.")
	m.Handle("DBSIZE", 1, func(w *resp.Reply, _ *resp.Command) { w.Int(int64(s.size())) }, "Count the keys.")
	m.Handle("FLUSHALL", -1, func(w *resp.Reply, _ *resp.Command) { s.clear(); w.OK() }, "Delete all keys.")
	m.Handle("FLUSHDB", -1, func(w *resp.Reply, _ *resp.Command) { s.clear(); w.OK() }, "Delete all keys.")
	m.Handle("ECHO", 2, func(w *resp.Reply, c *resp.Command) { w.Bulk(c.Args[1]) }, "Return the message.")
	m.Handle("SELECT", 2, func(w *resp.Reply, c *resp.Command) {
		if string(c.Args[1]) != "0" {
			w.Error("ERR DB index is out of range")
			return
		}
		w.OK()
	}, "Choose the database, of which there is one.")
	s.registerHashes(m)
}

func (s *store) get(w *resp.Reply, c *resp.Command) {
	s.view(c.Args[1], func(it *item) { writeText(w, it) })
}

func writeText(w *resp.Reply, it *item) {
	switch {
	case it == nil:
		w.Null()
	case it.fields != nil:
		w.Error(wrongType)
	default:
		w.Bulk(it.text)
	}
}

// setCommand is SET key value [EX seconds | PX milliseconds] [NX | XX].
func (s *store) setCommand(w *resp.Reply, c *resp.Command) {
	if len(c.Args) == 3 {
		s.set(c.Args[1], c.Args[2], 0)
		w.OK()
		return
	}
	var expires int64
	var absent, present bool
	for i := 3; i < len(c.Args); i++ {
		unit := time.Duration(0)
		switch {
		case c.Is(i, "NX") && !present:
			absent = true
		case c.Is(i, "XX") && !absent:
			present = true
		case c.Is(i, "EX") && expires == 0:
			unit = time.Second
		case c.Is(i, "PX") && expires == 0:
			unit = time.Millisecond
		default:
			w.Error(syntax)
			return
		}
		if unit == 0 {
			continue
		}
		i++
		if i == len(c.Args) {
			w.Error(syntax)
			return
		}
		n, err := strconv.ParseInt(string(c.Args[i]), 10, 64)
		switch {
		case err != nil:
			w.Error(notInteger)
			return
		case n <= 0 || n > math.MaxInt64/int64(unit)-s.now().UnixNano()/int64(unit)-1:
			w.Error("ERR invalid expire time in 'set' command")
			return
		}
		expires = s.now().Add(time.Duration(n) * unit).UnixNano()
	}
	done := false
	s.change(c.Args[1], func(it *item) *item {
		if absent && it != nil || present && it == nil {
			return it
		}
		done = true
		return &item{text: bytes.Clone(c.Args[2]), expires: expires}
	})
	if !done {
		w.Null()
		return
	}
	w.OK()
}

func (s *store) mget(w *resp.Reply, c *resp.Command) {
	w.Array(len(c.Args) - 1)
	for _, key := range c.Args[1:] {
		s.view(key, func(it *item) {
			if it == nil || it.fields != nil {
				w.Null()
				return
			}
			w.Bulk(it.text)
		})
	}
}

func (s *store) mset(w *resp.Reply, c *resp.Command) {
	if len(c.Args)%2 == 0 {
		w.Error("ERR wrong number of arguments for 'mset' command")
		return
	}
	for i := 1; i < len(c.Args); i += 2 {
		s.set(c.Args[i], c.Args[i+1], 0)
	}
	w.OK()
}

func (s *store) addArgument(w *resp.Reply, c *resp.Command) {
	n, err := strconv.ParseInt(string(c.Args[2]), 10, 64)
	if err != nil {
		w.Error(notInteger)
		return
	}
	s.add(w, c, n)
}

func (s *store) add(w *resp.Reply, c *resp.Command, n int64) {
	s.change(c.Args[1], func(it *item) *item {
		if it == nil {
			it = &item{text: []byte("0")}
		} else if it.fields != nil {
			w.Error(wrongType)
			return it
		}
		v, err := strconv.ParseInt(string(it.text), 10, 64)
		sum := v + n
		switch {
		case err != nil:
			w.Error(notInteger)
		case n > 0 && sum < v || n < 0 && sum > v:
			w.Error(overflow)
		default:
			it.text = strconv.AppendInt(it.text[:0], sum, 10)
			w.Int(sum)
		}
		return it
	})
}

// count answers for how many of the keys f is true.
func (s *store) count(w *resp.Reply, c *resp.Command, f func(key []byte) bool) {
	n := int64(0)
	for _, key := range c.Args[1:] {
		if f(key) {
			n++
		}
	}
	w.Int(n)
}

func (s *store) exists(key []byte) (ok bool) {
	s.view(key, func(it *item) { ok = it != nil })
	return ok
}

func (s *store) expire(w *resp.Reply, c *resp.Command, unit time.Duration) {
	n, err := strconv.ParseInt(string(c.Args[2]), 10, 64)
	if err != nil {
		w.Error(notInteger)
		return
	}
	if n > int64(100*365*24*time.Hour/unit) {
		w.Error("ERR invalid expire time in '" + string(bytes.ToLower(c.Args[0])) + "' command")
		return
	}
	done := int64(0)
	s.change(c.Args[1], func(it *item) *item {
		if it == nil {
			return nil
		}
		done = 1
		if n <= 0 {
			return nil
		}
		changed := *it
		changed.expires = s.now().Add(time.Duration(n) * unit).UnixNano()
		return &changed
	})
	w.Int(done)
}

func (s *store) persist(w *resp.Reply, c *resp.Command) {
	done := int64(0)
	s.change(c.Args[1], func(it *item) *item {
		if it == nil || it.expires == 0 {
			return it
		}
		done = 1
		changed := *it
		changed.expires = 0
		return &changed
	})
	w.Int(done)
}

func (s *store) ttl(w *resp.Reply, c *resp.Command, unit time.Duration) {
	s.view(c.Args[1], func(it *item) {
		switch {
		case it == nil:
			w.Int(-2)
		case it.expires == 0:
			w.Int(-1)
		default:
			w.Int((it.expires - s.now().UnixNano() + int64(unit)/2) / int64(unit))
		}
	})
}

func (s *store) kind(w *resp.Reply, c *resp.Command) {
	s.view(c.Args[1], func(it *item) {
		switch {
		case it == nil:
			w.Simple("none")
		case it.fields != nil:
			w.Simple("hash")
		default:
			w.Simple("string")
		}
	})
}

func (s *store) keys(w *resp.Reply, c *resp.Command) {
	var found []string
	s.each(func(key string, _ *item) bool {
		if wire.Match(c.Args[1], key) {
			found = append(found, key)
		}
		return true
	})
	w.Array(len(found))
	for _, key := range found {
		w.Text(key)
	}
}
