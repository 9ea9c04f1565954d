package web

import (
	"errors"
	"io"
	"os"
)

// This file is how a body fails: in the words of net/http, because programs look for them.

var (
	errTrailerEOF  = errors.New("http: unexpected EOF reading trailer")
	errTrailerLong = errors.New("http: suspiciously long trailer after chunked body")
	errTrailerCut  = errors.New(errTrailerLong.Error()) // so it is called there, too
)

// fail is an end without order. Every Read that finds nothing more returns err.
func (b *body) fail(err error) { b.failThen(err, err) }

// failThen has the first such Read return err, and the others then.
func (b *body) failThen(err, then error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.eof.Load() {
		b.err, b.then = err, then
	}
	b.wake()
}

// saysGone reports whether a Read that fails with err tells its handler that its connection is as
// good as lost, as with net/http.
func saysGone(err error) bool {
	return err == io.ErrUnexpectedEOF || err == errTrailerEOF || err == errTrailerCut ||
		errors.Is(err, os.ErrDeadlineExceeded)
}
