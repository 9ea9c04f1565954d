package push

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// origins decides which web pages may use the server: pages of the server itself, and pages that a
// pattern allows. A request without Origin does not come from a page of another site that could
// read the answer, so it is allowed. Keys and tokens protect against other programs.
type origins struct {
	// for path.Match, in lower case: against host[:port], or scheme://host[:port] if the pattern
	// has a scheme
	patterns []string
}

func newOrigins(patterns []string) (origins, error) {
	var o origins
	for _, pattern := range patterns {
		pattern = strings.ToLower(pattern)
		if _, err := path.Match(pattern, ""); err != nil {
			return origins{}, fmt.Errorf("push: allowed origin %q: %w: write a host, or scheme://host, with * for "+
				"any part", pattern, err)
		}
		_, host, ok := strings.Cut(pattern, "://")
		if !ok {
			host = pattern
		}
		if host == "" || strings.Contains(host, "/") {
			return origins{}, fmt.Errorf("push: allowed origin %q is none that a browser sends: write a host, or "+
				"scheme://host, without a path and a slash", pattern)
		}
		o.patterns = append(o.patterns, pattern)
	}
	return o, nil
}

// allows reports whether the page that sent r may use the server. foreign is the page's origin if
// that is not the server's own.
func (o origins) allows(r *http.Request) (foreign string, ok bool) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return "", true
	}
	lower := strings.ToLower(origin)
	scheme, host, valid := strings.Cut(lower, "://")
	if valid && trimPort(scheme, host) == trimPort(scheme, strings.ToLower(r.Host)) {
		return "", true
	}
	for _, pattern := range o.patterns {
		subject := host
		if strings.Contains(pattern, "://") || !valid { // the opaque origin "null" has no host
			subject = lower
		}
		if ok, _ := path.Match(pattern, subject); ok {
			return origin, true
		}
	}
	return origin, false
}

// trimPort removes the port that the scheme implies.
func trimPort(scheme, host string) string {
	switch scheme {
	case "http":
		return strings.TrimSuffix(host, ":80")
	case "https":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}

// guard refuses pages of other sites with 403, and answers allowed ones as the Fetch standard
// requires (§3.2, CORS protocol). Without it, any web page could publish through a visitor's
// browser if that browser can reach the server.
func (o origins) guard(next http.Handler, refused func(r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		foreign, ok := o.allows(r)
		if !ok {
			refused(r)
			writeError(w, http.StatusForbidden, apiPermissionDenied,
				"pages of the origin "+foreign+" are not allowed here: see --allowed-origin")
			return
		}
		h := w.Header()
		h.Add("Vary", "Origin")
		if foreign != "" {
			h.Set("Access-Control-Allow-Origin", foreign)
			o.allowCookies(h, r)
		}
		if foreign != "" && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST")
			h.Set("Access-Control-Allow-Headers",
				"Authorization, Cache-Control, Content-Type, Last-Event-ID, X-API-Key")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowCookies lets pages of other sites send the cookie of the Mercure hub, as an EventSource with
// withCredentials does, and read what the hub says in headers. No other door uses cookies.
func (o origins) allowCookies(h http.Header, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, mercurePath) {
		return
	}
	h.Set("Access-Control-Expose-Headers", "Last-Event-ID, Link")
	if o.names(r) {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
}

// names reports whether the origin of r is the server's own, or a pattern other than "*" allows it:
// with "*" the page could be anybody's.
func (o origins) names(r *http.Request) bool {
	named := origins{}
	for _, pattern := range o.patterns {
		if pattern != "*" {
			named.patterns = append(named.patterns, pattern)
		}
	}
	_, ok := named.allows(r)
	return ok
}
