package push

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/myriad-go/myriad/server/push/internal/mercure"
)

// formFactor is how much longer a text may become in a form, where a byte takes up to three.
const formFactor = 3

// servePublish publishes the update in the request's form, and answers with its id.
func (h *mercureHub) servePublish(w http.ResponseWriter, r *http.Request) {
	may, err := h.publisher(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if err := CheckQuery(r.URL.Query(), "authorization"); err != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, err.Error())
		return
	}
	limit := formFactor*h.Limits().Publication + BodySlack
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		RefuseBody(w, err)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, "the body is not application/x-www-form-urlencoded")
		return
	}
	u, err := mercure.ParseUpdate(form)
	switch {
	case err != nil:
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, mercureText(err))
	case len(u.Data) > h.Limits().Publication:
		WriteTooLarge(w, h.Limits().Publication)
	default:
		h.publishFor(w, r, may, u)
	}
}

// publishFor publishes u for a publisher whose token has the selectors may; nil: all topics.
func (h *mercureHub) publishFor(w http.ResponseWriter, r *http.Request, may []mercure.Selector, u mercure.Update) {
	for _, topic := range u.Topics {
		if strings.Contains(topic, mercurePath) {
			h.refuse(w, r, fmt.Errorf("%w: the topic %q is the hub's own: only the hub tells of subscriptions",
				errMercureDenied, topic))
			return
		}
	}
	if may != nil {
		for _, topic := range u.Topics {
			if !anyMatches(may, topic) {
				h.refuse(w, r, fmt.Errorf("%w: the token's claim mercure.publish does not have the topic %q",
					errMercureDenied, topic))
				return
			}
		}
	}
	id, err := h.publish(r.Context(), u)
	switch {
	case errors.Is(err, ErrBadData):
		WriteTooLarge(w, h.Limits().Publication)
	case errors.Is(err, errMercureID):
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, strings.TrimPrefix(err.Error(), "push: mercure: "))
	case err != nil:
		e := h.Explain("mercure publish", err)
		status := e.Status
		if status == 0 {
			status = http.StatusInternalServerError
		}
		WriteError(w, status, e.Code, e.Message)
	default:
		header := w.Header()
		header.Set("Content-Type", "text/plain; charset=utf-8")
		header.Set("X-Content-Type-Options", "nosniff")
		io.WriteString(w, id) // an error means that the client has disconnected
	}
}

// mercureText returns an error's text without the name of its package.
func mercureText(err error) string { return strings.TrimPrefix(err.Error(), "mercure: ") }
