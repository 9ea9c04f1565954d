// Package guard decides who may use a server over HTTP at all: who has a key, and which web pages.
package guard

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// Keys are those of the API and of operators, which requests carry in X-API-Key or as
// "Authorization: apikey KEY".
type Keys struct {
	api, console *key // nil: there is none
	open         bool // there is neither, and clients need not show who they are
}

// NewKeys returns the keys; "": there is none. authenticates says whether clients must show who
// they are: if they need not, and there is no key, everybody is an operator.
func NewKeys(api, console string, authenticates bool) *Keys {
	return &Keys{newKey(api), newKey(console), api == "" && console == "" && !authenticates}
}

// IsOpen reports whether neither keys nor tokens are needed.
func (k *Keys) IsOpen() bool { return k.open }

// NeedsKey reports whether the API needs a key.
func (k *Keys) NeedsKey() bool { return k.api != nil }

// IsKey reports whether text is the API's key. It takes a time that does not reveal the key.
func (k *Keys) IsKey(text string) bool { return k.api != nil && k.api.is(text) }

// HasKey reports whether a request carries the API's key.
func (k *Keys) HasKey(r *http.Request) bool { return k.api.matches(r) }

// MayUseAPI reports whether a request carries the API's key, or needs none.
func (k *Keys) MayUseAPI(r *http.Request) bool { return k.api == nil || k.api.matches(r) }

// HasOperators reports whether a request can be an operator's.
func (k *Keys) HasOperators() bool { return k.open || k.operator() != nil }

// IsOperator reports whether the request has the operator's key, or needs none because the server
// requires neither keys nor tokens.
func (k *Keys) IsOperator(r *http.Request) bool { return k.open || k.operator().matches(r) }

func (k *Keys) operator() *key {
	if k.console != nil {
		return k.console
	}
	return k.api
}

// A key is the hash of one. A nil key matches no request.
type key [sha256.Size]byte

func newKey(text string) *key {
	if text == "" {
		return nil
	}
	sum := key(sha256.Sum256([]byte(text)))
	return &sum
}

// matches compares hashes, so that its duration reveals neither the key nor its length.
func (k *key) matches(r *http.Request) bool {
	if k == nil {
		return false
	}
	text := r.Header.Get("X-API-Key")
	if scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " "); text == "" &&
		strings.EqualFold(scheme, "apikey") {
		text = strings.TrimSpace(rest)
	}
	return k.is(text)
}

// is compares a key with a text, in a time that reveals neither.
func (k *key) is(text string) bool {
	given := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(given[:], k[:]) == 1
}
