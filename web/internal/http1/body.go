package http1

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"

	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A Decoder takes the frame of HTTP/1 off a body. It is the loop's.
type Decoder struct {
	body      *exchange.Body
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
func (d *Decoder) chunked() bool { return d.body.Length < 0 }

// decode takes the frame off body bytes and adds them. It returns how many bytes it used; fewer
// than all when the body ends among them or a trailer is not complete.
func (d *Decoder) decode(p []byte, lim h1.Limits) (int, error) {
	if !d.chunked() {
		n := int(min(int64(len(p)), d.remaining))
		d.remaining -= int64(n)
		return n, d.body.Add(p[:n:n], d.remaining == 0)
	}
	used := 0
	for used < len(p) && d.state == decoderInData {
		n, data, done, err := d.chunks.Decode(p[used:])
		if err == nil && len(data) > 0 {
			err = d.body.Add(data, false)
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

func (d *Decoder) decodeTrailer(p []byte, lim h1.Limits) (int, error) {
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
	d.body.End(trailer)
	return n, nil
}

// ended is the client's FIN, behind kept bytes that are not yet understood. On the loop.
func (d *Decoder) ended(kept int) {
	switch {
	case d == nil:
	case !d.chunked():
		d.body.FailThen(io.ErrUnexpectedEOF, io.EOF)
	case d.state != decoderInTrailer:
		d.body.Fail(io.ErrUnexpectedEOF)
	case kept < 2:
		d.body.FailThen(exchange.ErrTrailerEOF, http.ErrBodyReadAfterClose)
	default:
		d.body.FailThen(exchange.ErrTrailerCut, http.ErrBodyReadAfterClose)
	}
}

// misread is that what has come is no body, or too much of one. On the loop.
func (d *Decoder) misread(err error) {
	inTrailer := d.state == decoderInTrailer
	d.state = decoderBroken
	e, ok := errors.AsType[*h1.Error](err)
	switch {
	case !ok:
		d.body.Fail(err)
	case e == h1.ErrChunkLine:
		d.body.Fail(http.ErrLineTooLong)
	case !inTrailer:
		d.body.Fail(errors.New(e.Reason))
	case e.Status == http.StatusRequestHeaderFieldsTooLarge:
		d.body.FailThen(exchange.ErrTrailerLong, http.ErrBodyReadAfterClose)
	default:
		d.body.FailThen(textproto.ProtocolError("malformed MIME header: "+e.Reason), http.ErrBodyReadAfterClose)
	}
}
