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
	return k.is(text)
}

// is compares a key with a text, in a time that reveals neither.
func (k *secretKey) is(text string) bool {
	given := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(given[:], k[:]) == 1
}

// hasKey reports whether the sender of r may use the API.
func (s *Server) HasKey(r *http.Request) bool {
	return s.apiKey == nil || s.apiKey.matches(r)
}

// ForOperator runs next for operators only (see Config.ConsoleKey): it may show the names of
// channels and clients, and what is published.
func (s *Server) ForOperator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case s.IsOperator(r):
			next(w, r)
		case s.operatorKey() == nil:
			WriteError(w, http.StatusForbidden, ErrPermissionDenied.Code,
				"clients need a token here, so the console needs a key: set --console-key (MYRIAD_CONSOLE_KEY) or "+
					"--api-key")
		default:
			s.node.refusedRequest(RefusedKey, r)
			WriteError(w, http.StatusUnauthorized, ErrUnauthorized.Code, "the header X-API-Key is missing or wrong")
		}
	}
}

// IsOperator reports whether the request has the operator's key, or needs none because the server
// requires neither keys nor tokens.
func (s *Server) IsOperator(r *http.Request) bool { return s.operatorKey().matches(r) || s.isOpen() }

func (s *Server) operatorKey() *secretKey {
	if s.consoleKey != nil {
		return s.consoleKey
	}
	return s.apiKey
}
