package web

import (
	"net/http"
	"strings"

	"github.com/myriad-go/myriad/internal/dispatch"
)

const (
	// maxRoutes bounds a lane's table. When it is full, routes that have not been asked for since
	// that happened last make way; if there are none of these, further routes are unknown: they run
	// on the pool.
	maxRoutes = 4096
	// maxRouteKey is how long a key is at most, in bytes. Longer paths are unknown.
	maxRouteKey = 256
	// minMixedID is from how many bytes on a path segment of letters and digits is taken for an id.
	minMixedID = 16
)

// routes is what a lane has learned of handlers, by route. A route is the pattern of an
// http.ServeMux where that has wildcards for whole segments, else method and path, of which the
// segments that look like ids count as one: digits, UUIDs, long hexadecimal numbers, long mixtures
// of letters and digits. So a thousand users with a path each are one route.
type routes struct {
	mux   *http.ServeMux // nil: the handler is none
	byKey map[string]*route
	key   []byte // scratch
	fresh [64]recent
	since int // unknown routes since the table was full last
}

type route struct {
	dispatch.Record
	asked bool // since the table was full last
}

// recent is a path that came lately and has no id in it: it is found by comparing instead of
// hashing.
type recent struct {
	method, path string
	route        *route
}

// of finds the request's route, or makes one. Nil is unknown. On the loop.
func (t *routes) of(r *http.Request) *route {
	path := r.URL.Path
	if len(path) > maxRouteKey-maxMethod || len(path) == 0 || len(r.Method) > maxMethod {
		return nil
	}
	place := &t.fresh[(len(path)*7+int(path[len(path)-1])+int(path[len(path)/2])*3)%len(t.fresh)]
	found := place.route
	if found == nil || place.path != path || place.method != r.Method {
		var folded bool
		if found, folded = t.find(r, path); found != nil && !folded {
			*place = recent{strings.Clone(r.Method), strings.Clone(path), found}
		}
	}
	if found != nil && !found.asked {
		found.asked = true
	}
	return found
}

func (t *routes) find(r *http.Request, path string) (found *route, folded bool) {
	t.key = append(append(t.key[:0], r.Method...), ' ')
	t.key, folded = appendFolded(t.key, path)
	found, ok := t.byKey[string(t.key)]
	if !ok {
		found, ok = t.ofPattern(r, folded)
	}
	if !ok {
		found = t.add()
	}
	return found, folded
}

// maxMethod is the length of the longest usual method.
const maxMethod = 16

// ofPattern finds the route by the pattern of a mux, and leaves the pattern in t.key if that is to
// be the key.
func (t *routes) ofPattern(r *http.Request, folded bool) (*route, bool) {
	if t.mux == nil || folded {
		return nil, false
	}
	_, pattern := t.mux.Handler(r)
	if !tellsApart(pattern) || len(pattern) > maxRouteKey {
		return nil, false
	}
	t.key = append(append(t.key[:0], "pattern "...), pattern...)
	found, ok := t.byKey[string(t.key)]
	return found, ok
}

// tellsApart reports whether what matches a pattern is one handler's work, rather than a tree of
// whatever kind, and is not found by its path already.
func tellsApart(pattern string) bool {
	return strings.Contains(pattern, "{") && !strings.HasSuffix(pattern, "/") && !strings.HasSuffix(pattern, "...}")
}

// add makes a route of t.key, if there is room.
func (t *routes) add() *route {
	if t.byKey == nil {
		t.byKey = map[string]*route{}
	}
	if len(t.byKey) >= maxRoutes && !t.sweep() {
		return nil
	}
	found := new(route)
	t.byKey[string(t.key)] = found
	return found
}

// sweep makes room, and reports whether there is some. A table full of routes that are all asked
// for is not looked through for each stranger.
func (t *routes) sweep() bool {
	if t.since++; t.since < maxRoutes && t.since != 1 {
		return false
	}
	t.since = 1
	clear(t.fresh[:])
	for key, r := range t.byKey {
		if !r.asked {
			delete(t.byKey, key)
		}
		r.asked = false
	}
	if len(t.byKey) < maxRoutes {
		t.since = 0
		return true
	}
	return false
}

// appendFolded appends path, with * for each segment that looks like an id, and reports whether
// there was one.
func appendFolded(dst []byte, path string) (key []byte, folded bool) {
	if !strings.ContainsAny(path, "0123456789") {
		return append(dst, path...), false
	}
	for segment := range strings.SplitSeq(path, "/") {
		if looksLikeID(segment) {
			dst, folded = append(dst, '*', '/'), true
		} else {
			dst = append(append(dst, segment...), '/')
		}
	}
	return dst[:len(dst)-1], folded
}

// looksLikeID reports whether a path segment is a number, hexadecimal from eight digits on, or from
// sixteen on anything made of letters, digits, - and _ in which there is a digit.
func looksLikeID(s string) bool {
	digits, hex := 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
			hex++
		case 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' || c == '-':
			hex++
		case 'g' <= c && c <= 'z' || 'G' <= c && c <= 'Z' || c == '_':
		default:
			return false
		}
	}
	switch {
	case digits == 0:
		return false
	case digits == len(s):
		return true
	case hex == len(s) && len(s) >= 8:
		return true
	}
	return len(s) >= minMixedID
}
