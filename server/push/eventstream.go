package push

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/token"
	"github.com/myriad-go/myriad/web"
)

// This file answers requests for streams of Server-Sent Events, which more than one door serves.

// retryAfter is the shortest time that an EventSource is told to wait before it reconnects; the
// longest is twice that. The spread keeps clients from reconnecting all at once after a restart.
const retryAfter = 2 * time.Second

// openEvents sends what is queued for s, and opens the transport for what follows. ended is called
// when the stream has ended; it must call s.ended.
func (s *session) openEvents(t *streamTransport, stream responseStream, ended func()) {
	// on any other error onClose is called, too
	first := fmt.Appendf(nil, "retry: %d\n\n", s.node.retry().Milliseconds())
	if t.open(stream, first) == errFull {
		s.tooSlow("", len(first))
	}
	stream.onClose(ended)
}

func (n *node) retry() time.Duration { return retryAfter + n.upTo(retryAfter) }

// notDetached handles a stream that could not be opened: the client has disconnected, or the
// server's program does not use web.Server.
func (s *Server) notDetached(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, web.ErrNotMyriad) {
		s.node.log.Debug("push: a stream of events was not opened", "remote", r.RemoteAddr, "error", err)
		return
	}
	s.node.log.Error("push: events need a web.Server: serve push.Server with one", "error", err)
	writeError(w, http.StatusInternalServerError, failInternal.Code, "events cannot be served here")
}

// bearer returns the token of r, from the query or from Authorization. An EventSource cannot set
// headers.
func bearer(r *http.Request) string {
	if token := r.URL.Query().Get("token"); token != "" {
		return token
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// refuseToken answers 401, which makes an EventSource give up; or 503 if the token's key is not
// known yet.
func (s *Server) refuseToken(w http.ResponseWriter, r *http.Request, err error) {
	var claim claimError
	why := refusedToken
	if errors.Is(err, errKeyNotYetKnown) {
		s.node.refusedRequest(refusedUnknownKey, r, "error", oneLine(err))
		w.Header().Set("Retry-After", strconv.Itoa(int(token.RetryAfter/time.Second)))
		writeError(w, http.StatusServiceUnavailable, failInternal.Code, strings.TrimPrefix(errKeyNotYetKnown.Error(),
			"push: "))
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	switch {
	case errors.Is(err, errTokenExpired):
		why = refusedExpired
		writeError(w, http.StatusUnauthorized, failTokenExpired.Code, failTokenExpired.Message)
	case errors.Is(err, errNoToken):
		why = refusedNoToken
		writeError(w, http.StatusUnauthorized, failUnauthorized.Code,
			"a token is needed: ?token=… or Authorization: Bearer …")
	case errors.As(err, &claim):
		writeError(w, http.StatusUnauthorized, uint32(endInvalidToken.Code),
			endInvalidToken.Reason+": "+claim.Error())
	default:
		writeError(w, http.StatusUnauthorized, uint32(endInvalidToken.Code), endInvalidToken.Reason)
	}
	s.node.refusedRequest(why, r, "error", oneLine(err))
}

// refuseByHook answers what a hook has decided: 503 if the client may try again, else 403.
func refuseByHook(w http.ResponseWriter, err error) {
	status, answer, why := http.StatusForbidden, Error{}, ending{}
	if errors.As(err, &why) {
		answer = Error{uint32(why.Code), why.Reason, why.reconnects()}
	} else {
		errors.As(err, &answer)
	}
	if answer.Temporary {
		status = http.StatusServiceUnavailable
	}
	writeError(w, status, answer.Code, answer.Message)
}
