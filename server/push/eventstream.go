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

// OpenEvents sends what is queued for s, and opens the transport for what follows. ended is called
// when the stream has ended; it must call Session.Ended.
func (s *Session) OpenEvents(t *StreamTransport, stream ResponseStream, ended func()) {
	// on any other error the stream has ended, and calls what OnClose gets
	first := fmt.Appendf(nil, "retry: %d\n\n", s.node.retry().Milliseconds())
	if t.Open(stream, first) == ErrQueueFull {
		s.TooSlow("", len(first))
	}
	stream.OnClose(ended)
}

func (n *node) retry() time.Duration { return retryAfter + n.upTo(retryAfter) }

// NotDetached handles a stream that could not be opened: the client has disconnected, or the
// server's program does not use web.Server.
func (s *Server) NotDetached(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, web.ErrNotMyriad) {
		s.node.log.Debug("push: a stream of events was not opened", "remote", r.RemoteAddr, "error", err)
		return
	}
	s.node.log.Error("push: events need a web.Server: serve push.Server with one", "error", err)
	WriteError(w, http.StatusInternalServerError, ErrInternal.Code, "events cannot be served here")
}

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
func (s *Server) RefuseToken(w http.ResponseWriter, r *http.Request, err error) {
	var claim claimError
	why := RefusedToken
	if errors.Is(err, errKeyNotYetKnown) {
		s.node.refusedRequest(RefusedUnknownKey, r, "error", OneLine(err))
		w.Header().Set("Retry-After", strconv.Itoa(int(token.RetryAfter/time.Second)))
		WriteError(w, http.StatusServiceUnavailable, ErrInternal.Code, strings.TrimPrefix(errKeyNotYetKnown.Error(),
			"push: "))
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	switch {
	case errors.Is(err, errTokenExpired):
		why = RefusedExpired
		WriteError(w, http.StatusUnauthorized, ErrTokenExpired.Code, ErrTokenExpired.Message)
	case errors.Is(err, ErrNoToken):
		why = RefusedNoToken
		WriteError(w, http.StatusUnauthorized, ErrUnauthorized.Code,
			"a token is needed: ?token=… or Authorization: Bearer …")
	case errors.As(err, &claim):
		WriteError(w, http.StatusUnauthorized, uint32(DisconnectInvalidToken.Code),
			DisconnectInvalidToken.Reason+": "+claim.Error())
	default:
		WriteError(w, http.StatusUnauthorized, uint32(DisconnectInvalidToken.Code), DisconnectInvalidToken.Reason)
	}
	s.node.refusedRequest(why, r, "error", OneLine(err))
}

// RefuseByHook answers what a hook has decided: 503 if the client may try again, else 403.
func RefuseByHook(w http.ResponseWriter, err error) {
	status, answer, why := http.StatusForbidden, Error{}, Disconnect{}
	if errors.As(err, &why) {
		answer = Error{uint32(why.Code), why.Reason, why.Reconnects()}
	} else {
		errors.As(err, &answer)
	}
	if answer.Temporary {
		status = http.StatusServiceUnavailable
	}
	WriteError(w, status, answer.Code, answer.Message)
}
