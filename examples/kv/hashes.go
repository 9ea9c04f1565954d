package main

import (
	"bytes"
	"strconv"

	"github.com/myriad-go/myriad/resp"
)

func (s *store) registerHashes(m *resp.Mux) {
	m.Handle("HSET", -4, s.hset, "Set fields of a hash.")
	m.Handle("HGET", 3, s.hget, "Get a field of a hash.")
	m.Handle("HDEL", -3, s.hdel, "Delete fields of a hash.")
	m.Handle("HGETALL", 2, s.hgetall, "Get all fields of a hash.")
	m.Handle("HLEN", 2, s.hlen, "Count the fields of a hash.")
	m.Handle("HINCRBY", 4, s.hincrby, "Add to a number in a hash.")
}

// hash calls f with the fields of a hash, which it makes if it has to. It answers if the key holds
// something else. f returns whether the hash is to be kept.
func (s *store) hash(w *resp.Reply, key []byte, f func(fields map[string][]byte)) {
	s.change(key, func(it *item) *item {
		if it == nil {
			it = &item{fields: map[string][]byte{}}
		}
		if it.fields == nil {
			w.Error(wrongType)
			return it
		}
		f(it.fields)
		if len(it.fields) == 0 {
			return nil
		}
		return it
	})
}

// viewHash is hash for reading; there are no fields if there is no key.
func (s *store) viewHash(w *resp.Reply, key []byte, f func(fields map[string][]byte)) {
	s.view(key, func(it *item) {
		switch {
		case it == nil:
			f(nil)
		case it.fields == nil:
			w.Error(wrongType)
		default:
			f(it.fields)
		}
	})
}

func (s *store) hset(w *resp.Reply, c *resp.Command) {
	if len(c.Args)%2 != 0 {
		w.Error("ERR wrong number of arguments for 'hset' command")
		return
	}
	s.hash(w, c.Args[1], func(fields map[string][]byte) {
		fresh := int64(0)
		for i := 2; i < len(c.Args); i += 2 {
			if _, has := fields[string(c.Args[i])]; !has {
				fresh++
			}
			fields[string(c.Args[i])] = bytes.Clone(c.Args[i+1])
		}
		w.Int(fresh)
	})
}

func (s *store) hget(w *resp.Reply, c *resp.Command) {
	s.viewHash(w, c.Args[1], func(fields map[string][]byte) {
		text, has := fields[string(c.Args[2])]
		if !has {
			w.Null()
			return
		}
		w.Bulk(text)
	})
}

func (s *store) hdel(w *resp.Reply, c *resp.Command) {
	s.hash(w, c.Args[1], func(fields map[string][]byte) {
		before := len(fields)
		for _, name := range c.Args[2:] {
			delete(fields, string(name))
		}
		w.Int(int64(before - len(fields)))
	})
}

func (s *store) hgetall(w *resp.Reply, c *resp.Command) {
	s.viewHash(w, c.Args[1], func(fields map[string][]byte) {
		w.Map(len(fields))
		for name, text := range fields {
			w.Text(name)
			w.Bulk(text)
		}
	})
}

func (s *store) hlen(w *resp.Reply, c *resp.Command) {
	s.viewHash(w, c.Args[1], func(fields map[string][]byte) { w.Int(int64(len(fields))) })
}

func (s *store) hincrby(w *resp.Reply, c *resp.Command) {
	n, err := strconv.ParseInt(string(c.Args[3]), 10, 64)
	if err != nil {
		w.Error(notInteger)
		return
	}
	s.hash(w, c.Args[1], func(fields map[string][]byte) {
		text, has := fields[string(c.Args[2])]
		if !has {
			text = []byte("0")
		}
		v, err := strconv.ParseInt(string(text), 10, 64)
		sum := v + n
		switch {
		case err != nil:
			w.Error("ERR hash value is not an integer")
		case n > 0 && sum < v || n < 0 && sum > v:
			w.Error(overflow)
		default:
			fields[string(c.Args[2])] = strconv.AppendInt(nil, sum, 10)
			w.Int(sum)
		}
	})
}
