package web

import "net/http"

// keptFields is how many fields a header may have had whose map is kept: maps do not shrink.
const keptFields = 64

// alone reports whether the other holder has released x already.
func (x *exchange) alone() (yes bool) {
	if x.runs < kept {
		return x.released.Swap(true)
	}
	yes, x.runs = x.runs == keptReleased, keptReleased // both are the loop
	return yes
}

// reusable reports whether nothing else that was made for this request, by the server or at a
// handler's wish, refers to x.
func (x *exchange) reusable() bool {
	return x.out.seldom == nil && x.out.lost == nil && x.out.failed == nil && x.body == nil
}

func emptied(h http.Header) http.Header {
	switch n := len(h); {
	case n > keptFields:
		return nil
	case n > 0:
		clear(h)
	}
	return h
}
