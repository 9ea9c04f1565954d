package push

import (
	"context"
	"errors"
	"net/http"

	"github.com/myriad-go/myriad/server/push/bus"
)

// An apiError is the answer to a request that failed.
type apiError struct {
	status  int // of HTTP; 0 means 200: the error is in the body
	code    uint32
	message string
}

func (e *apiError) Error() string { return "push: api: " + e.message }

// explain turns err into an *apiError, and logs errors whose text the client must not see.
func (s *Server) explain(method string, err error) *apiError {
	var known *apiError
	var protocol Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &protocol):
		return &apiError{code: protocol.Code, message: protocol.Message}
	case errors.Is(err, errDraining):
		return &apiError{http.StatusServiceUnavailable, failInternal.Code, "the server is shutting down"}
	case errors.Is(err, bus.ErrUncertain):
		return &apiError{http.StatusServiceUnavailable, failInternal.Code, "the publication was sent, but not confirmed " +
			"in time: send it again with the same idempotency_key"}
	}
	s.node.log.Error("push: a request to the API failed", "method", method, "error", err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &apiError{http.StatusServiceUnavailable, failInternal.Code, "the server could not do this in time: send it " +
			"again later; its log has the reason"}
	}
	return &apiError{code: failInternal.Code, message: "the request failed; the server's log has the reason"}
}
