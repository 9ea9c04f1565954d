package push

import (
	"context"
	"errors"
	"net/http"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A Failure is the answer to a request that failed.
type Failure struct {
	Status  int // of HTTP; 0 means 200: the error is in the body
	Code    uint32
	Message string
}

func (e *Failure) Error() string { return "push: api: " + e.Message }

// Explain turns err into a *Failure, and logs errors whose text the client must not see.
func (s *Server) Explain(method string, err error) *Failure {
	var known *Failure
	var protocol Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &protocol):
		return &Failure{Code: protocol.Code, Message: protocol.Message}
	case errors.Is(err, ErrDraining):
		return &Failure{http.StatusServiceUnavailable, ErrInternal.Code, "the server is shutting down"}
	case errors.Is(err, bus.ErrUncertain):
		return &Failure{http.StatusServiceUnavailable, ErrInternal.Code,
			"the publication was sent, but not confirmed " +
				"in time: send it again with the same idempotency_key"}
	}
	s.node.log.Error("push: a request to the API failed", "method", method, "error", err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Failure{http.StatusServiceUnavailable, ErrInternal.Code,
			"the server could not do this in time: send it " +
				"again later; its log has the reason"}
	}
	return &Failure{Code: ErrInternal.Code, Message: "the request failed; the server's log has the reason"}
}
