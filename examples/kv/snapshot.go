package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
)

// save writes all keys to a file, which replaces the one before only when it is complete. It is a
// list of commands: RESTOREAT expires key text, or RESTOREAT expires key field text ... of a hash.
// Each shard is as it was at one moment, and not locked while the file is written.
func (s *store) save(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it has gone by then, if all is well
	for i := range s.shards {
		var out []byte
		s.eachOf(&s.shards[i], func(key string, it *item) bool {
			out = appendItem(out, key, it)
			return true
		})
		if _, err := f.Write(out); err != nil {
			f.Close()
			return err
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func appendItem(out []byte, key string, it *item) []byte {
	kind, n := "S", 4
	if it.fields != nil {
		kind, n = "H", 3+2*len(it.fields)
	}
	out = wire.AppendArray(out, n)
	out = wire.AppendBulk(out, kind)
	out = wire.AppendBulk(out, strconv.FormatInt(it.expires, 10))
	out = wire.AppendBulk(out, key)
	if it.fields == nil {
		return wire.AppendBulk(out, it.text)
	}
	for name, text := range it.fields {
		out = wire.AppendBulk(wire.AppendBulk(out, name), text)
	}
	return out
}

// load reads what save has written. Without a file there is nothing.
func (s *store) load(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var kept []byte
	piece := make([]byte, 1<<20)
	for in := bufio.NewReader(f); ; {
		n, err := in.Read(piece)
		kept = append(kept, piece[:n]...)
		rest, bad := s.restore(kept)
		if bad != nil {
			return fmt.Errorf("%s: %w", path, bad)
		}
		kept = append(kept[:0], rest...)
		switch {
		case err == io.EOF && len(kept) > 0:
			return fmt.Errorf("%s ends in the middle of a key", path)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// restore takes the complete items in p, and returns what is left.
func (s *store) restore(p []byte) (rest []byte, err error) {
	var args [][]byte
	for {
		n, got, err := wire.ParseCommand(p, args[:0], resp.Limits{Bytes: 256 << 20})
		if err != nil || n == 0 {
			return p, err
		}
		args = got
		p = p[n:]
		if len(args) < 4 {
			return nil, fmt.Errorf("%q is no key", args)
		}
		expires, err := strconv.ParseInt(string(args[1]), 10, 64)
		if err != nil {
			return nil, err
		}
		if string(args[0]) == "S" {
			s.set(args[2], args[3], expires)
			continue
		}
		fields := map[string][]byte{}
		for i := 3; i+1 < len(args); i += 2 {
			fields[string(args[i])] = append([]byte(nil), args[i+1]...)
		}
		s.change(args[2], func(*item) *item { return &item{fields: fields, expires: expires} })
	}
}
