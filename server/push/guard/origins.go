package guard

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/answer"
)

// Origins are pages of the server itself, and pages that a pattern allows. A request without Origin
// does not come from a page of another site that could read the answer, so it is allowed. Keys and
// tokens protect against other programs.
type Origins struct {
	patterns []originPattern
	headers  []string // that pages may send besides the fixed ones
}

// An originPattern is for path.Match, in lower case: against host[:port], or scheme://host[:port]
// if it has a scheme.
type originPattern struct {
	text   string
	scheme bool // the pattern has one
	named  bool // it names a site: with "*" the page could be anybody's
}

// anyOrigin allows every page, whatever its browser sends as Origin.
const anyOrigin = "*"

// opaqueOrigin is sent by pages without an origin, which any site can make.
const opaqueOrigin = "null"

// NewOrigins returns the origins of the patterns, as push.Config.AllowedOrigins has them. Pages may
// also send the fields in headers.
func NewOrigins(patterns, headers []string) (Origins, error) {
	var o Origins
	var wrong []error
	for _, given := range patterns {
		p, err := newOriginPattern(strings.ToLower(given))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("push: allowed origin %q %w", given, err))
		}
		o.patterns = append(o.patterns, p)
	}
	return o.withHeaders(headers), errors.Join(wrong...)
}

// schemes are those that a URL can have (RFC 3986 §3.1), in lower case.
var schemes = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

func newOriginPattern(text string) (p originPattern, err error) {
	if text == anyOrigin || text == opaqueOrigin {
		return originPattern{text: text}, nil
	}
	scheme, host, hasScheme := strings.Cut(text, "://")
	if !hasScheme {
		scheme, host = "", text
	}
	switch {
	case hasScheme && !schemes.MatchString(scheme), host == "" && (!hasScheme || pageScheme(scheme) != scheme ||
		isPage(scheme)), strings.Contains(host, "/"):
		return p, errors.New("is none that a browser sends: write a host, or scheme://host, without a path and a slash")
	case strings.ContainsFunc(host, func(r rune) bool { return r > '~' }):
		return p, errors.New("is none that a browser sends: write the host in ASCII (xn--…)")
	}
	p.named = namesSite(host)
	text = canonicalAddress(host)
	if hasScheme {
		p.scheme, text = true, pageScheme(scheme)+"://"+text
	}
	p.text = text
	if _, err := path.Match(text, ""); err != nil {
		return p, fmt.Errorf("is no pattern: %w: write a host, or scheme://host, with * for any part", err)
	}
	return p, nil
}

// bracketed is an IPv6 address in brackets, which path.Match would take for a class of characters.
var bracketed = regexp.MustCompile(`\\?\[([0-9a-f:.]*:[0-9a-f:.]*)\\?\]`)

// canonicalAddress escapes the brackets of an IPv6 address for path.Match, and writes the address
// as browsers do.
func canonicalAddress(host string) string {
	return bracketed.ReplaceAllStringFunc(host, func(found string) string {
		text := strings.Trim(found, `\[]`)
		if addr, err := netip.ParseAddr(text); err == nil {
			text = addr.String()
		}
		return `\[` + text + `\]`
	})
}

// wildcards are what stands for characters in a pattern, and the port.
var wildcards = regexp.MustCompile(`\[[^\]]*\]|[*?\\]|:[^:]*$`)

// namesSite reports whether a pattern's host is more than wildcards. An empty one is that of a
// scheme without hosts, such as file.
func namesSite(host string) bool {
	if bracketed.MatchString(host) || host == "" {
		return true
	}
	return strings.Trim(wildcards.ReplaceAllString(host, ""), ".") != ""
}

// pageScheme returns the scheme of pages that may use a WebSocket of that scheme. Some libraries
// send the address of the WebSocket as Origin.
func pageScheme(scheme string) string {
	switch scheme {
	case "ws":
		return "http"
	case "wss":
		return "https"
	}
	return scheme
}

// isPage reports whether the scheme is one of sites in a browser.
func isPage(scheme string) bool { return scheme == "http" || scheme == "https" }

var defaultPorts = map[string]string{"http": ":80", "https": ":443"}

// A pageOrigin is a value of Origin, taken apart.
type pageOrigin struct {
	scheme string // "" if it is none that a site has
	host   string // with its port, unless the scheme implies that
}

// parseOrigin accepts scheme://host[:port], with what libraries send behind it: a slash, a path, a
// query. The host may be empty, as in file://.
func parseOrigin(text string) pageOrigin {
	scheme, host, ok := strings.Cut(strings.ToLower(text), "://")
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/?#@:, \t") || strings.ContainsAny(host, "\\@, \t") {
		return pageOrigin{}
	}
	return pageOrigin{pageScheme(scheme), trimPort(pageScheme(scheme), host)}
}

// trimPort removes the port that the scheme implies.
func trimPort(scheme, host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(host, ":"), defaultPorts[scheme])
}

func (p originPattern) matches(raw string, page pageOrigin) bool {
	switch {
	case p.text == anyOrigin:
		return true
	case raw == opaqueOrigin || p.text == opaqueOrigin:
		return p.text == raw
	case page.scheme == "":
		return false
	}
	prefix := ""
	if p.scheme {
		prefix = page.scheme + "://"
	}
	for _, host := range []string{page.host, page.host + defaultPorts[page.scheme]} {
		if ok, _ := path.Match(p.text, prefix+host); ok { // New has checked the pattern
			return true
		}
	}
	return false
}

// A verdict says what the page that sent a request may do.
type verdict struct {
	allowed bool
	foreign string // Origin, if the page is not the server's own
	named   bool   // the page is the server's own, or a pattern names its site
}

// judge looks at the field Origin. A request with several is not a browser's.
func (o Origins) judge(r *http.Request) verdict {
	values := r.Header["Origin"]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return verdict{allowed: true, named: true}
	case len(values) > 1:
		return verdict{foreign: strings.Join(values, ", ")}
	}
	return o.judgeOrigin(values[0], r.Host)
}

// judgeOrigin judges a page by the value of Origin, for a request to that host.
func (o Origins) judgeOrigin(origin, host string) verdict {
	page := parseOrigin(origin)
	if isPage(page.scheme) && page.host != "" && page.host == trimPort(page.scheme, strings.ToLower(host)) {
		return verdict{allowed: true, named: true}
	}
	v := verdict{foreign: origin}
	for _, p := range o.patterns {
		if p.matches(strings.ToLower(origin), page) {
			v.allowed, v.named = true, v.named || p.named
		}
	}
	return v
}

// fixedHeaders are the fields that pages may send to every server.
var fixedHeaders = []string{"Authorization", "Cache-Control", "Content-Type", "Last-Event-ID", "X-API-Key"}

// withHeaders also lets pages send the fields that hooks get.
func (o Origins) withHeaders(names []string) Origins {
	for _, name := range names {
		if !slices.ContainsFunc(slices.Concat(fixedHeaders, o.headers), func(known string) bool {
			return strings.EqualFold(known, name)
		}) {
			o.headers = append(o.headers, name)
		}
	}
	return o
}

// Guard refuses pages of other sites with 403, and answers allowed ones as the Fetch standard
// requires (§3.2, CORS protocol). Without it, any web page could publish through a visitor's
// browser if that browser can reach the server.
//
// Pages of sites that a pattern names may send cookies, and read the answers. Those that only a
// pattern such as "*" allows may not: any page could act for its visitor. Browsers send cookies
// with WebSockets, and with some requests, whatever the server says, so Guard takes them away.
func (o Origins) Guard(next http.Handler, refused func(r *http.Request)) http.Handler {
	sent := strings.Join(slices.Concat(fixedHeaders, o.headers), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := o.judge(r)
		h := w.Header()
		h.Add("Vary", "Origin")
		if !v.allowed {
			refused(r)
			answer.WriteError(w, http.StatusForbidden, answer.ErrPermissionDenied.Code,
				"pages of the origin "+v.foreign+" are not allowed here: see --allowed-origin")
			return
		}
		if v.foreign == "" {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", v.foreign)
		h.Set("Access-Control-Expose-Headers", "Last-Event-ID, Link, Retry-After")
		if v.named {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST")
			h.Set("Access-Control-Allow-Headers", sent)
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if !v.named {
			r = withoutCredentials(r)
		}
		next.ServeHTTP(w, r)
	})
}

// withoutCredentials returns r without what a browser adds by itself: cookies, and passwords that
// the visitor has typed. A token that the page has set stays.
func withoutCredentials(r *http.Request) *http.Request {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	own := scheme == "" || strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "apikey")
	if own && r.Header["Cookie"] == nil {
		return r
	}
	bare := *r
	bare.Header = r.Header.Clone()
	bare.Header.Del("Cookie")
	if !own {
		bare.Header.Del("Authorization")
	}
	return &bare
}

// NamesNoSite reports whether a pattern names no site: then every web page may use the server,
// without cookies.
func NamesNoSite(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(text string) bool {
		p, err := newOriginPattern(strings.ToLower(text))
		return err == nil && !p.named && p.text != opaqueOrigin
	})
}

// Vouch reports whether Origin, or else Referer, says that an allowed page sent r.
func (o Origins) Vouch(r *http.Request) bool {
	if r.Header.Get("Origin") != "" {
		return o.judge(r).named
	}
	page, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || page.Host == "" {
		return false
	}
	return o.judgeOrigin(page.Scheme+"://"+page.Host, r.Host).named
}

// PlainBodies answers 415 to a body with a content coding, which no door decodes (RFC 9110
// §15.5.16). Messages of gRPC have a compression of their own.
func PlainBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		coding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
		if coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			answer.WriteError(w, http.StatusUnsupportedMediaType, answer.ErrBadRequest.Code,
				fmt.Sprintf("the content encoding %q is not served: send the body as it is", coding))
			return
		}
		next.ServeHTTP(w, r)
	})
}
