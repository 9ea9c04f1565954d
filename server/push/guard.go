package push

import (
	"crypto/sha256"
	"crypto/subtle"
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

// This file decides who may use the server over HTTP: who has a key, and which web pages.

// A secretKey is the hash of a key that requests carry in X-API-Key or as "Authorization: apikey
// KEY". A nil key matches no request.
type secretKey [sha256.Size]byte

func newSecretKey(text string) *secretKey {
	if text == "" {
		return nil
	}
	sum := secretKey(sha256.Sum256([]byte(text)))
	return &sum
}

// matches compares hashes, so that its duration reveals neither the key nor its length.
func (k *secretKey) matches(r *http.Request) bool {
	if k == nil {
		return false
	}
	text := r.Header.Get("X-API-Key")
	if scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " "); text == "" &&
		strings.EqualFold(scheme, "apikey") {
		text = strings.TrimSpace(rest)
	}
	return k.is(text)
}

// is compares a key with a text, in a time that reveals neither.
func (k *secretKey) is(text string) bool {
	given := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(given[:], k[:]) == 1
}

// hasKey reports whether the sender of r may use the API.
func (s *Server) HasKey(r *http.Request) bool {
	return s.apiKey == nil || s.apiKey.matches(r)
}

// ForOperator runs next for operators only (see Config.ConsoleKey): it may show the names of
// channels and clients, and what is published.
func (s *Server) ForOperator(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case s.IsOperator(r):
			next(w, r)
		case s.operatorKey() == nil:
			answer.WriteError(w, http.StatusForbidden, ErrPermissionDenied.Code,
				"clients need a token here, so the console needs a key: set --console-key (MYRIAD_CONSOLE_KEY) or "+
					"--api-key")
		default:
			s.node.refusedRequest(RefusedKey, r)
			answer.WriteError(w, http.StatusUnauthorized, ErrUnauthorized.Code,
				"the header X-API-Key is missing or wrong")
		}
	}
}

// IsOperator reports whether the request has the operator's key, or needs none because the server
// requires neither keys nor tokens.
func (s *Server) IsOperator(r *http.Request) bool { return s.operatorKey().matches(r) || s.isOpen() }

func (s *Server) operatorKey() *secretKey {
	if s.consoleKey != nil {
		return s.consoleKey
	}
	return s.apiKey
}

// origins are pages of the server itself, and pages that a pattern allows. A request without Origin
// does not come from a page of another site that could read the answer, so it is allowed. Keys and
// tokens protect against other programs.
type origins struct {
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

func newOrigins(patterns []string) (origins, error) {
	var o origins
	var wrong []error
	for _, given := range patterns {
		p, err := newOriginPattern(strings.ToLower(given))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("push: allowed origin %q %w", given, err))
		}
		o.patterns = append(o.patterns, p)
	}
	return o, errors.Join(wrong...)
}

func newOriginPattern(text string) (p originPattern, err error) {
	if text == anyOrigin || text == opaqueOrigin {
		return originPattern{text: text}, nil
	}
	scheme, host, hasScheme := strings.Cut(text, "://")
	if !hasScheme {
		scheme, host = "", text
	}
	switch {
	case host == "" && (!hasScheme || pageScheme(scheme) != scheme || isPage(scheme)), strings.Contains(host, "/"):
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
func (o origins) judge(r *http.Request) verdict {
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
func (o origins) judgeOrigin(origin, host string) verdict {
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
func (o origins) withHeaders(names []string) origins {
	for _, name := range names {
		if !slices.ContainsFunc(slices.Concat(fixedHeaders, o.headers), func(known string) bool {
			return strings.EqualFold(known, name)
		}) {
			o.headers = append(o.headers, name)
		}
	}
	return o
}

// guard refuses pages of other sites with 403, and answers allowed ones as the Fetch standard
// requires (§3.2, CORS protocol). Without it, any web page could publish through a visitor's
// browser if that browser can reach the server.
//
// Pages of sites that a pattern names may send cookies, and read the answers. Those that only a
// pattern such as "*" allows may not: any page could act for its visitor. Browsers send cookies
// with WebSockets, and with some requests, whatever the server says, so guard takes them away.
func (o origins) guard(next http.Handler, refused func(r *http.Request)) http.Handler {
	sent := strings.Join(slices.Concat(fixedHeaders, o.headers), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := o.judge(r)
		h := w.Header()
		h.Add("Vary", "Origin")
		if !v.allowed {
			refused(r)
			answer.WriteError(w, http.StatusForbidden, ErrPermissionDenied.Code,
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

// AllowsAnyOrigin reports whether an allowed origin names no site: then every web page may use the
// server, without cookies.
func (c Config) AllowsAnyOrigin() bool {
	return slices.ContainsFunc(c.AllowedOrigins, func(text string) bool {
		p, err := newOriginPattern(strings.ToLower(text))
		return err == nil && !p.named && p.text != opaqueOrigin
	})
}

// vouches reports whether Origin, or else Referer, says that an allowed page sent r.
func (o origins) vouches(r *http.Request) bool {
	if r.Header.Get("Origin") != "" {
		return o.judge(r).named
	}
	page, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || page.Host == "" {
		return false
	}
	return o.judgeOrigin(page.Scheme+"://"+page.Host, r.Host).named
}

// plainBodies answers 415 to a body with a content coding, which no door decodes (RFC 9110
// §15.5.16). Messages of gRPC have a compression of their own.
func plainBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		coding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
		if coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			answer.WriteError(w, http.StatusUnsupportedMediaType, ErrBadRequest.Code,
				fmt.Sprintf("the content encoding %q is not served: send the body as it is", coding))
			return
		}
		next.ServeHTTP(w, r)
	})
}
