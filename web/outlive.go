package web

import (
	"net/http"
	"slices"
)

// outlive fixes the head of a response that is to outlive its handler: with the status that
// middleware has kept back, or 200. It has middleware see the status by WriteHeader, and writes no
// body, not even an empty one, where middleware that compresses begins. The Stream bypasses that,
// so a Content-Encoding that middleware adds in WriteHeader is taken back.
func (w *response) outlive(outer http.ResponseWriter) {
	if w.head != headOpen {
		return
	}
	const field = "Content-Encoding"
	own := w.header()[field]
	writeHeaderNow(outer)
	if w.head == headOpen {
		outer.WriteHeader(http.StatusOK)
	}
	header := w.header() // middleware may have made it just now
	if w.head == headOpen || slices.Equal(own, header[field]) {
		return // middleware that still keeps the status back is bypassed when the head is sent
	}
	if header[field] = own; own == nil {
		delete(header, field)
	}
	w.x.carrier.snapshot()
}

// writeHeaderNow has the outermost middleware that keeps a status back, as gin does, pass it on.
func writeHeaderNow(w http.ResponseWriter) {
	for {
		if keeps, ok := w.(interface{ WriteHeaderNow() }); ok {
			keeps.WriteHeaderNow()
			return
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = wrapper.Unwrap()
	}
}
