package websocket

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
)

// text is what header values come as: strings from net/http, bytes from a raw connection.
type text interface{ ~string | ~[]byte }

const (
	// acceptGUID: "the Globally Unique Identifier ... "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" in
	// string form, which is unlikely to be used by network endpoints that do not understand the
	// WebSocket Protocol", RFC 6455 §1.3.
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

	protocolVersion = "13" // the only value of Sec-WebSocket-Version that this package speaks

	keySize = 24 // base64 of 16 bytes
)

// validKey reports whether a Sec-WebSocket-Key is "a base64-encoded value that, when decoded, is 16
// bytes in length", RFC 6455 §4.2.1. It keeps what goes into the response hash, and into logs, to
// 24 harmless characters.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-4.2.1
func validKey[T text](key T) bool {
	if len(key) != keySize || key[keySize-1] != '=' || key[keySize-2] != '=' {
		return false
	}
	for i := range keySize - 2 {
		c := key[i]
		if !isAlphanumeric(c) && c != '+' && c != '/' {
			return false
		}
	}
	return true
}

// appendAcceptKey appends the value of Sec-WebSocket-Accept that answers key, 28 characters. It
// allocates only if dst has not got room for 88 more bytes, which it uses as scratch space.
func appendAcceptKey[T text](dst []byte, key T) []byte {
	start := len(dst)
	dst = append(dst, key...)
	dst = append(dst, acceptGUID...)
	sum := sha1.Sum(dst[start:])
	return base64.StdEncoding.AppendEncode(dst[:start], sum[:])
}

// appendSwitching appends the response that completes the handshake, RFC 6455 §4.2.2. The key must
// be valid; subprotocol is one that the client offered, or empty; terms are of an extension that it
// offered, or none. more are field lines of the handler's, each with its CRLF.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-4.2.2
func appendSwitching[T text](dst []byte, key T, subprotocol string, terms deflateTerms, more []byte) []byte {
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\n"+
		"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	dst = appendAcceptKey(dst, key)
	if subprotocol != "" {
		dst = append(dst, "\r\nSec-WebSocket-Protocol: "...)
		dst = append(dst, subprotocol...)
	}
	if terms.agreed {
		dst = append(dst, "\r\nSec-WebSocket-Extensions: "...)
		dst = terms.params().append(dst)
	}
	dst = append(append(dst, "\r\n"...), more...)
	return append(dst, "\r\n"...)
}

// hasToken reports whether value, a comma-separated list such as that of Connection or Upgrade, has
// the token, without regard to case (RFC 9110 §5.6.1). The token is given in lower case. A field
// that came in several lines is asked line by line.
func hasToken[T text](value T, token string) bool {
	start := 0
	for i := 0; i <= len(value); i++ {
		if i < len(value) && value[i] != ',' {
			continue
		}
		if equalFoldTrimmed(value, start, i, token) {
			return true
		}
		start = i + 1
	}
	return false
}

func equalFoldTrimmed[T text](s T, from, to int, lower string) bool {
	for from < to && isBlank(s[from]) {
		from++
	}
	for from < to && isBlank(s[to-1]) {
		to--
	}
	if to-from != len(lower) {
		return false
	}
	for i := range len(lower) {
		c := s[from+i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// selectSubprotocol returns the first of the server's subprotocols, best first, that the client
// offered in its Sec-WebSocket-Protocol lines, or "" if there is none. Names are case-sensitive:
// the client must fail the connection if it is answered a value that it did not offer (RFC 6455
// §4.1).
func selectSubprotocol(own, offered []string) string {
	best := len(own)
	for _, line := range offered {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if at := slices.Index(own[:best], name); at >= 0 && name != "" {
				best = at
			}
		}
	}
	if best == len(own) {
		return ""
	}
	return own[best]
}

// originAllowed says whether a page from origin may open a WebSocket on host, the request's Host
// field. Browsers send Origin with every handshake, and cookies too, so a server that skips this
// check lets any site act for its visitors (RFC 6455 §10.2).
//
// It allows a request without Origin, which no browser sent. It allows an origin that is a web
// page's of host, apart from case and a default port, and one that matches a pattern. Patterns are
// those of path.Match, in any case. They are compared with the origin's host and port, or with all
// of scheme://host if they contain "://". A star matches dots too: "*.example.com" is all
// subdomains, "*" any origin, the opaque origin "null" included. Nothing else allows "null" except
// naming it.
func originAllowed(origin, host string, patterns []string) bool {
	if origin == "" {
		return true
	}
	origin = strings.ToLower(origin)
	scheme, from, ok := splitOrigin(origin)
	if ok && isWeb(scheme) && from == trimDefaultPort(scheme, strings.ToLower(host)) {
		return true
	}
	if !ok && origin != "null" {
		return false
	}
	for _, pattern := range patterns {
		subject := from
		if strings.Contains(pattern, "://") || !ok {
			subject = origin
		}
		if matched, err := path.Match(strings.ToLower(pattern), subject); err == nil && matched {
			return true
		}
	}
	return false
}

// checkOriginPatterns reports the first pattern that originAllowed could never match because it is
// malformed.
func checkOriginPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if _, err := path.Match(strings.ToLower(pattern), ""); err != nil {
			return fmt.Errorf("websocket: origin pattern %q: %w; write it as for path.Match, brackets of an IPv6 "+
				"address with a backslash",
				pattern, err)
		}
	}
	return nil
}

// splitOrigin takes an origin in lower case apart, RFC 6454 §6.2: scheme "://" host [ ":" port ]
// and nothing else. The host is returned without a default port.
func splitOrigin(origin string) (scheme, host string, ok bool) {
	scheme, host, ok = strings.Cut(origin, "://")
	if !ok || scheme == "" || host == "" || strings.ContainsAny(host, "/\\?#@, \t") {
		return "", "", false
	}
	return scheme, trimDefaultPort(scheme, host), true
}

// isWeb reports whether the host of an origin with the scheme, in lower case, is a server's. That
// of an extension or an app is whatever its author likes. Some clients send the scheme of the
// WebSocket.
func isWeb(scheme string) bool {
	return scheme == "http" || scheme == "https" || scheme == "ws" || scheme == "wss"
}

func trimDefaultPort(scheme, host string) string {
	switch scheme {
	case "http", "ws":
		return strings.TrimSuffix(host, ":80")
	case "https", "wss":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}
