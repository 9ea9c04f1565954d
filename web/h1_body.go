package web

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"

	"github.com/myriad-go/myriad/internal/h1"
)

// An h1decoder takes the frame of HTTP/1 off a body. It is the loop's.
type h1decoder struct {
	body      *body
	remaining int64      // bytes still to come of a body with a length
	chunks    h1.Chunked // of one without
	state     decoderState
}

type decoderState uint8

const (
	decoderInData decoderState = iota
	decoderInTrailer
	decoderBroken // it has failed: what comes is not looked at
)

// chunked reports whether the body comes in chunks.
func (d *h1decoder) chunked() bool { return d.body.length < 0 }

// decode takes the frame off body bytes and adds them. It returns how many bytes it used; fewer
// than all when the body ends among them or a trailer is not complete.
func (d *h1decoder) decode(p []byte, lim h1.Limits) (int, error) {
	if !d.chunked() {
		n := int(min(int64(len(p)), d.remaining))
		d.remaining -= int64(n)
		return n, d.body.add(p[:n:n], d.remaining == 0)
	}
	used := 0
	for used < len(p) && d.state == decoderInData {
		n, data, done, err := d.chunks.Decode(p[used:])
		if err == nil && len(data) > 0 {
			err = d.body.add(data, false)
		}
		if err != nil {
			return used, err
		}
		if used += n; done {
			d.state = decoderInTrailer
		}
	}
	n, err := d.decodeTrailer(p[used:], lim)
	return used + n, err
}

func (d *h1decoder) decodeTrailer(p []byte, lim h1.Limits) (int, error) {
	if d.state != decoderInTrailer || len(p) == 0 {
		return 0, nil
	}
	n, fields, err := h1.ParseTrailer(p, lim, nil)
	if err != nil || n == 0 {
		return 0, err
	}
	var trailer http.Header
	for _, f := range fields {
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer.Add(h1.CanonicalName(f.Name), string(f.Value))
	}
	d.body.end(trailer)
	return n, nil
}

// ended is the client's FIN, behind kept bytes that are not yet understood. On the loop.
func (d *h1decoder) ended(kept int) {
	switch {
	case d == nil:
	case !d.chunked():
		d.body.failThen(io.ErrUnexpectedEOF, io.EOF)
	case d.state != decoderInTrailer:
		d.body.fail(io.ErrUnexpectedEOF)
	case kept < 2:
		d.body.failThen(errTrailerEOF, http.ErrBodyReadAfterClose)
	default:
		d.body.failThen(errTrailerCut, http.ErrBodyReadAfterClose)
	}
}

// misread is that what has come is no body, or too much of one. On the loop.
func (d *h1decoder) misread(err error) {
	inTrailer := d.state == decoderInTrailer
	d.state = decoderBroken
	e, ok := errors.AsType[*h1.Error](err)
	switch {
	case !ok:
		d.body.fail(err)
	case e == h1.ErrChunkLine:
		d.body.fail(http.ErrLineTooLong)
	case !inTrailer:
		d.body.fail(errors.New(e.Reason))
	case e.Status == http.StatusRequestHeaderFieldsTooLarge:
		d.body.failThen(errTrailerLong, http.ErrBodyReadAfterClose)
	default:
		d.body.failThen(textproto.ProtocolError("malformed MIME header: "+e.Reason), http.ErrBodyReadAfterClose)
	}
}
