package web

import (
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/myriad-go/myriad/internal/flow"
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
	b.failLocked(err, then)
}

func (b *body) failLocked(err, then error) {
	if b.in.Err() == nil && b.reading != readLate {
		b.then = then
		b.in.Fail(err)
	}
}

// failure is what a Read fails with for which the Inbox has err. mu is held.
func (b *body) failure(err error) error {
	switch err {
	case nil:
		return nil
	case io.EOF:
		b.sawEnd()
		return err
	case flow.ErrDiscarded:
		return b.afterMove()
	case os.ErrDeadlineExceeded:
		return b.tooLate()
	}
	if b.reading == readFailed {
		return b.then
	}
	b.reading = readFailed
	return err
}

// afterMove is what a Read fails with when the connection has a new owner.
func (b *body) afterMove() error {
	if b.reading == readToEnd {
		return io.EOF
	}
	return http.ErrHijacked
}

// tooLate is what a Read fails with for its deadline. As with net/http, a reader of chunks does not
// continue after it, and neither does one of HTTP/2.
func (b *body) tooLate() error {
	err := b.x.netError("read", os.ErrDeadlineExceeded)
	if b.length < 0 || b.windowed() {
		b.reading, b.then = readLate, err
	}
	if b.windowed() {
		b.in.Fail(err) // what still comes is dropped
	}
	return err
}

// saysGone reports whether a Read that fails with err tells its handler that its connection is as
// good as lost, as with net/http.
func saysGone(err error) bool {
	return err == io.ErrUnexpectedEOF || err == errTrailerEOF || err == errTrailerCut ||
		errors.Is(err, os.ErrDeadlineExceeded)
}
