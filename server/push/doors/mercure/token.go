package mercure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push/internal/mercure"
	"github.com/myriad-go/myriad/server/push/internal/strict"
	"github.com/myriad-go/myriad/server/push/token"
)

var (
	// errDenied says that the token is valid and does not allow what the client wants.
	errDenied = errors.New("push: mercure")
	// errOrigin is for publications with a cookie: any page makes a browser send cookies.
	errOrigin = errors.New("push: mercure: a publication with a cookie needs the header Origin or Referer, " +
		"with an allowed origin: see --allowed-origin")
)

// cookieName is the cookie that carries a token, set by the application on the hub's path.
const cookieName = "mercureAuthorization"

// claims are the claims of Mercure's tokens. They need neither sub nor exp.
type claims struct {
	jwt.RegisteredClaims
	Mercure    *rights         `json:"mercure"`
	Namespaced *rights         `json:"https://mercure.rocks/"` // instead of mercure, where names must be URLs
	Channel    json.RawMessage `json:"channel"`                // of another door's tokens for one subscription

	// Details are the rights of Mercure 1.0, beside those of other services (RFC 9396).
	Details []struct {
		Type string `json:"type"`
	} `json:"authorization_details"`
}

// These are the types of entries of authorization_details that are for a Mercure hub, in the drafts
// of Mercure 1.0: an earlier one, and the last.
const (
	detailType     = "https://mercure.rocks/authorization-detail"
	lastDetailType = "mercure"
)

type rights struct {
	Publish   []string        `json:"publish"`
	Subscribe []string        `json:"subscribe"`
	Payload   json.RawMessage `json:"payload"`

	unserved string // a member that the hub does not act on
}

// UnmarshalJSON notes a member that the hub does not act on, which verify refuses.
func (r *rights) UnmarshalJSON(text []byte) (err error) {
	type plain rights
	r.unserved, err = strict.UnmarshalSome(text, (*plain)(r))
	return err
}

// An access is what a valid token allows. The zero value is a subscriber's without a token.
type access struct {
	hub.Grant
	publish, allowed []mercure.Selector
	payload          []byte // JSON, or nil
}

// verify returns what a token allows. The errors are those of [token.Verifier.Read], and a
// token.ClaimError.
func verify(v *token.Verifier, text string, most int) (t access, err error) {
	var c claims
	switch err = v.Read(text, &c); {
	case err != nil:
		return t, err
	case len(c.Channel) > 0:
		return t, fmt.Errorf("%w: it is for a subscription to one channel", token.ErrInvalid)
	}
	t.User = c.Subject
	if c.ExpiresAt != nil {
		t.Ends = c.ExpiresAt.Time
	}
	rights := c.Mercure
	if rights == nil {
		rights = c.Namespaced
	}
	if rights == nil {
		for _, d := range c.Details {
			if d.Type == detailType || d.Type == lastDetailType {
				return t, token.ClaimError("the claim authorization_details is of Mercure 1.0, which is not served: " +
					"use the claim mercure")
			}
		}
		return t, nil
	}
	if rights.unserved != "" {
		return t,
			token.ClaimError("the claim mercure has " + rights.unserved + ", which is not served: it takes publish, " +
				"subscribe and payload")
	}
	t.payload = strict.Compact(rights.Payload)
	if t.publish, err = compileAll(rights.Publish, most); err == nil {
		t.allowed, err = compileAll(rights.Subscribe, most)
	}
	if err != nil {
		return t, token.ClaimError("the claim mercure: " + err.Error())
	}
	return t, nil
}

// compileAll compiles selectors, at most that many.
func compileAll(texts []string, most int) ([]mercure.Selector, error) {
	if len(texts) > most {
		return nil, fmt.Errorf("%d topics, at most %d are allowed", len(texts), most)
	}
	list := make([]mercure.Selector, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = mercure.Compile(text); err != nil {
			return nil, errors.New(textOf(err))
		}
	}
	return list, nil
}

func anyMatches(list []mercure.Selector, topic string) bool {
	for _, s := range list {
		if s.Matches(topic) {
			return true
		}
	}
	return false
}

// tokenOf returns the request's token: of Authorization, else of the parameter authorization, else
// of the cookie, which the result tells.
func tokenOf(r *http.Request) (token string, cookie bool) {
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token), false
	}
	if token := r.URL.Query().Get("authorization"); token != "" {
		return token, false
	}
	if c, err := r.Cookie(cookieName); err == nil {
		return c.Value, true
	}
	return "", false
}

// subscriber returns what a subscriber may have. Without a token it may have public updates, if the
// hub or the server allows clients without tokens.
func (h *Hub) subscriber(r *http.Request) (access, error) {
	token, _ := tokenOf(r)
	switch {
	case !h.hub.Authenticates(), token == "" && h.config.Anonymous:
		return access{}, nil
	case token == "" || h.hub.Tokens() == nil:
		return access{}, hub.ErrNoToken
	}
	return verify(h.hub.Tokens(), token, h.hub.Limits().Channels)
}

// publisher returns the topics to which the sender of r may publish; nil: to all. The API's key
// allows all, as in the HTTP API.
func (h *Hub) publisher(r *http.Request) ([]mercure.Selector, error) {
	if h.hub.Keys().HasKey(r) {
		return nil, nil
	}
	if h.publishers == nil {
		if h.hub.Keys().NeedsKey() || h.hub.Authenticates() {
			return nil, hub.ErrNoToken
		}
		return nil, nil
	}
	token, cookie := tokenOf(r)
	switch {
	case token == "":
		return nil, hub.ErrNoToken
	case cookie && !h.hub.ComesFromAllowedPage(r):
		return nil, errOrigin
	}
	t, err := verify(h.publishers, token, h.hub.Limits().Channels)
	if err == nil && len(t.publish) == 0 {
		err = fmt.Errorf("%w: the token has no claim mercure.publish", errDenied)
	}
	return t.publish, err
}

// refuse answers a request that is not authorized.
func (h *Hub) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errDenied), errors.Is(err, errOrigin):
		h.hub.CountRequestRefusal(hub.RefusedPermission, r, "error", hub.OneLine(err))
		answer.WriteError(w, http.StatusForbidden, answer.ErrPermissionDenied.Code, strings.TrimPrefix(err.Error(),
			"push: mercure: "))
	case errors.Is(err, hub.ErrNoToken):
		h.hub.CountRequestRefusal(hub.RefusedNoToken, r)
		w.Header().Set("WWW-Authenticate", "Bearer")
		answer.WriteError(w, http.StatusUnauthorized, answer.ErrUnauthorized.Code,
			"a token is needed: Authorization: Bearer …, ?authorization=…, or the cookie "+cookieName)
	default:
		h.hub.RefuseToken(w, r, err)
	}
}
