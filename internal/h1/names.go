package h1

// CanonicalName returns name as http.Header has its keys: what textproto.CanonicalMIMEHeaderKey
// returns. It allocates only for a name outside the list of usual ones.
func CanonicalName(name []byte) string {
	if len(name) == 0 {
		return ""
	}
	for i := nameHash(name); ; i = (i + 1) % nameSlots {
		known := names[i]
		if known == "" {
			return canonicalCopy(name)
		}
		if equalFold(name, known) {
			return known
		}
	}
}

const nameSlots = 512

func nameHash[T []byte | string](name T) uint {
	n := uint(len(name))
	return (n*7 + uint(lower(name[0]))*31 + uint(lower(name[n-1]))*5 + uint(lower(name[n/2]))*3) % nameSlots
}

func equalFold(p []byte, known string) bool {
	if len(p) != len(known) {
		return false
	}
	if string(p) == known {
		return true
	}
	for i, c := range p {
		if lower(c) != lower(known[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c-'A' < 26 {
		c += 'a' - 'A'
	}
	return c
}

func canonicalCopy(name []byte) string {
	if !allOf(name, isToken) {
		return string(name)
	}
	var small [64]byte // keeps the copy off the heap
	out := append(small[:0], name...)
	upper := true
	for i, c := range out {
		if upper && c-'a' < 26 {
			out[i] = c - ('a' - 'A')
		} else if !upper {
			out[i] = lower(c)
		}
		upper = c == '-'
	}
	return string(out)
}

// Method returns method as a string, without allocating for those of RFC 9110 section 9 and PATCH.
func Method(method []byte) string {
	switch string(method) {
	case "GET":
		return "GET"
	case "POST":
		return "POST"
	case "HEAD":
		return "HEAD"
	case "PUT":
		return "PUT"
	case "DELETE":
		return "DELETE"
	case "PATCH":
		return "PATCH"
	case "OPTIONS":
		return "OPTIONS"
	case "CONNECT":
		return "CONNECT"
	case "TRACE":
		return "TRACE"
	}
	return string(method)
}

// names is a table with open addressing, sparse enough for one or two looks; it is filled before
// main and only read.
var names = nameTable()

func nameTable() (t [nameSlots]string) {
	for _, name := range usualNames {
		i := nameHash(name)
		for t[i] != "" {
			i = (i + 1) % nameSlots
		}
		t[i] = name
	}
	return t
}

var usualNames = [...]string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Accept-Ranges",
	"Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Access-Control-Max-Age",
	"Access-Control-Request-Headers", "Access-Control-Request-Method",
	"Age", "Allow", "Alt-Svc", "Authorization",
	"Cache-Control", "Cdn-Loop", "Cf-Connecting-Ip", "Cf-Ray", "Connection",
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location",
	"Content-Range", "Content-Security-Policy", "Content-Type", "Cookie",
	"Date", "Dnt", "Etag", "Expect", "Expires", "Forwarded", "From", "Grpc-Timeout", "Host",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since",
	"Keep-Alive", "Last-Event-Id", "Last-Modified", "Link", "Location", "Max-Forwards", "Origin",
	"Pragma", "Priority", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Range", "Realm", "Referer", "Referrer-Policy", "Retry-After", "Save-Data",
	"Sec-Ch-Ua", "Sec-Ch-Ua-Arch", "Sec-Ch-Ua-Mobile", "Sec-Ch-Ua-Model", "Sec-Ch-Ua-Platform",
	"Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Sec-Gpc",
	"Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol",
	"Sec-Websocket-Version", "Server", "Set-Cookie", "Strict-Transport-Security",
	"Te", "Traceparent", "Tracestate", "Trailer", "Transfer-Encoding",
	"Upgrade", "Upgrade-Insecure-Requests", "User-Agent", "Vary", "Via", "Warning", "Www-Authenticate",
	"X-Api-Key", "X-Content-Type-Options", "X-Csrf-Token", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port",
	"X-Forwarded-Proto", "X-Frame-Options", "X-Powered-By", "X-Real-Ip", "X-Request-Id", "X-Requested-With",
}
