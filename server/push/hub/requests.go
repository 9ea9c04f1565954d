package hub

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/guard"
	"github.com/myriad-go/myriad/server/push/token"
)

// A requestGuard says what HTTP requests may do: by their addresses' rates, their keys and the
// pages that they come from. It answers those that may not.
type requestGuard struct {
	*node
	refusals *refusals
	keys     *guard.Keys
	origins  guard.Origins
	gate     *gate    // shut: the node drains
	adviser  *adviser // says when clients may come back
}

// UnlessDraining answers in place of next when Drain or Shutdown was called: 503, with the time
// when to come back, to another node or to the next process. While the hub is frozen, the request
// waits.
func (g *requestGuard) UnlessDraining(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if g.gate.IsShut(r.Context()) {
			g.refusals.CountRequestRefusal(RefusedDraining, r)
			g.adviser.RefuseForNow(w, r, g.adviser.ConnectLater(), http.StatusServiceUnavailable,
				answer.ErrInternal.Code,
				"the server is shutting down")
			return
		}
		next(w, r)
	}
}

// MayOpen reports whether a client of that address may open another connection now. The attempt is
// counted.
func (g *requestGuard) MayOpen(remote string) bool {
	return g.rates.Open(remote, g.clock.Now()) == 0
}

// LimitConnections answers 429 to addresses that open connections too often.
func (g *requestGuard) LimitConnections(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			if wait := g.rates.Open(r.RemoteAddr, g.clock.Now()); wait > 0 {
				g.RefuseRate(w, r, wait)
				return
			}
		}
		next(w, r)
	}
}

// MayCallNow reports whether the address may call the API, or answers 429.
func (g *requestGuard) MayCallNow(w http.ResponseWriter, r *http.Request) bool {
	wait := g.CountCall(r)
	if wait > 0 {
		g.RefuseRate(w, r, wait)
	}
	return wait == 0
}

// CountCall counts a call of the API, and returns how long the address has to wait. 0: it may call
// now.
func (g *requestGuard) CountCall(r *http.Request) (wait time.Duration) {
	return g.rates.Call(r.RemoteAddr, g.clock.Now())
}

// RefuseRate answers 429 (RFC 6585 §4) with the time to wait.
func (g *requestGuard) RefuseRate(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	g.refusals.CountRequestRefusal(RefusedRate, r)
	g.adviser.RefuseForNow(w, r, wait, http.StatusTooManyRequests, answer.ErrTooManyRequests.Code,
		answer.ErrTooManyRequests.Message)
}

// Keys returns the keys of the API and of operators.
func (g *requestGuard) Keys() *guard.Keys { return g.keys }

// ForOperator runs next for operators only (see Config.ConsoleKey): it may show the names of
// channels and clients, and what is published.
func (g *requestGuard) ForOperator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case g.keys.IsOperator(r):
			next(w, r)
		case !g.keys.HasOperators():
			answer.WriteError(w, http.StatusForbidden, answer.ErrPermissionDenied.Code,
				"clients need a token here, so the console needs a key: set --console-key (MYRIAD_CONSOLE_KEY) or "+
					"--api-key")
		default:
			g.refusals.CountRequestRefusal(RefusedKey, r)
			answer.WriteError(w, http.StatusUnauthorized, answer.ErrUnauthorized.Code,
				"the header X-API-Key is missing or wrong")
		}
	}
}

// ComesFromAllowedPage reports whether Origin, or else Referer, says that an allowed page sent r.
func (g *requestGuard) ComesFromAllowedPage(r *http.Request) bool { return g.origins.Vouch(r) }

// Bearer returns the token of r, from the query or from Authorization. An EventSource cannot set
// headers.
func Bearer(r *http.Request) string {
	if token := r.URL.Query().Get("token"); token != "" {
		return token
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// RefuseToken answers 401, which makes an EventSource give up; or 503 if the token's key is not
// known yet.
func (g *requestGuard) RefuseToken(w http.ResponseWriter, r *http.Request, err error) {
	var claim claimError
	why := RefusedToken
	if errors.Is(err, errKeyNotYetKnown) {
		g.refusals.CountRequestRefusal(RefusedUnknownKey, r, "error", OneLine(err))
		g.adviser.RefuseForNow(w, r, token.RetryAfter+g.adviser.ConnectLater(), http.StatusServiceUnavailable,
			answer.ErrInternal.Code, strings.TrimPrefix(errKeyNotYetKnown.Error(), "push: "))
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	switch {
	case errors.Is(err, errTokenExpired):
		why = RefusedExpired
		answer.WriteError(w, http.StatusUnauthorized, answer.ErrTokenExpired.Code, answer.ErrTokenExpired.Message)
	case errors.Is(err, ErrNoToken):
		why = RefusedNoToken
		answer.WriteError(w, http.StatusUnauthorized, answer.ErrUnauthorized.Code,
			"a token is needed: ?token=… or Authorization: Bearer …")
	case errors.As(err, &claim):
		answer.WriteError(w, http.StatusUnauthorized, uint32(answer.DisconnectInvalidToken.Code),
			answer.DisconnectInvalidToken.Reason+": "+claim.Error())
	default:
		answer.WriteError(w, http.StatusUnauthorized, uint32(answer.DisconnectInvalidToken.Code),
			answer.DisconnectInvalidToken.Reason)
	}
	g.refusals.CountRequestRefusal(why, r, "error", OneLine(err))
}
