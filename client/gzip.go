package client

import (
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// decompress lets the reader of a body that the Transport has asked gzip for see what was
// compressed, as net/http does.
func decompress(x *Call, r *http.Response) {
	if !x.gzip || !strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	r.Body = &gzipBody{body: r.Body, left: x.t.MaxUncompressedBytes, bounded: x.t.MaxUncompressedBytes > 0}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength, r.Uncompressed = -1, true
}

// A gzipBody decompresses as it is read.
type gzipBody struct {
	body    io.ReadCloser
	z       *gzip.Reader
	err     error // is returned by every Read that follows
	left    int64
	bounded bool
}

// Read implements io.Reader.
func (g *gzipBody) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	if g.z == nil {
		if g.z, g.err = gzip.NewReader(g.body); g.err != nil {
			return 0, g.err
		}
	}
	if g.bounded && int64(len(p)) > g.left+1 {
		p = p[:g.left+1]
	}
	n, err := g.z.Read(p)
	if g.bounded && int64(n) > g.left {
		n, g.err = int(g.left), ErrBodyTooLarge
		return n, g.err
	}
	g.left -= int64(n)
	g.err = err
	return n, err
}

// Close implements io.Closer.
func (g *gzipBody) Close() error {
	g.err = http.ErrBodyReadAfterClose
	return g.body.Close()
}
