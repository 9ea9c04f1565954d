package web

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"os"

	"github.com/myriad-go/myriad/internal/h1"
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

// ended is the client's FIN, behind kept bytes that are not yet understood. On the loop.
func (b *body) ended(kept int) {
	switch {
	case b == nil:
	case !b.chunked:
		b.failThen(io.ErrUnexpectedEOF, io.EOF)
	case !b.inTrailer:
		b.fail(io.ErrUnexpectedEOF)
	case kept < 2:
		b.failThen(errTrailerEOF, http.ErrBodyReadAfterClose)
	default:
		b.failThen(errTrailerCut, http.ErrBodyReadAfterClose)
	}
}

// misread is that what has come is no body, or too much of one. On the loop.
func (b *body) misread(err error) {
	e, ok := errors.AsType[*h1.Error](err)
	switch {
	case !ok:
		b.fail(err)
	case e == h1.ErrChunkLine:
		b.fail(http.ErrLineTooLong)
	case !b.inTrailer:
		b.fail(errors.New(e.Reason))
	case e.Status == http.StatusRequestHeaderFieldsTooLarge:
		b.failThen(errTrailerLong, http.ErrBodyReadAfterClose)
	default:
		b.failThen(textproto.ProtocolError("malformed MIME header: "+e.Reason), http.ErrBodyReadAfterClose)
	}
}

// saysGone reports whether a Read that fails with err tells its handler that its connection is as
// good as lost, as with net/http.
func saysGone(err error) bool {
	return err == io.ErrUnexpectedEOF || err == errTrailerEOF || err == errTrailerCut ||
		errors.Is(err, os.ErrDeadlineExceeded)
}
