package push

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// A secretKey is what some requests need in the header X-API-Key, or as "Authorization: apikey
// KEY". nil: there is none, and no request has it.
type secretKey [sha256.Size]byte

func newSecretKey(text string) *secretKey {
	if text == "" {
		return nil
	}
	sum := secretKey(sha256.Sum256([]byte(text)))
	return &sum
}

// matches compares hashes, so that the time it takes tells nothing of the key, its length included.
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
