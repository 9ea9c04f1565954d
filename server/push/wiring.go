package push

import (
	"errors"
	"net/http"
)

func detach(w http.ResponseWriter) (eventStream, error)                 { return nil, errors.New("no web yet") }
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) { w.WriteHeader(501) }
