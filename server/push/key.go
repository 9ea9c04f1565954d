package push

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// A secretKey is the hash of a key that requests carry in X-API-Key or as "Authorization: apikey
// KEY". A nil key matches no request.
type secretKey [sha256.Size]byte

func newSecretKey(text string) *secretKey {
	if text == "" {
		return nil
	}
	sum := secretKey(sha256.Sum256([]byte(text)))
	return &sum
}

// matches compares hashes, so that its duration reveals neither the key nor its length.
func (k *secretKey) matches(r *http.Request) bool {
	if k == nil {
		return false
	}
	text := r.Header.Get("X-API-Key")
	if scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " "); text == "" &&
		strings.EqualFold(scheme, "apikey") {
		text = strings.TrimSpace(rest)
	}
	given := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(given[:], k[:]) == 1
}
