package h1

// StatusText returns the usual reason phrase of a status code (RFC 9110 section 15 and the IANA
// registry), "" for one without; the same as http.StatusText.
func StatusText(status int) string {
	if i := status - firstStatus; i >= 0 && i < len(statusTexts) {
		return statusTexts[i]
	}
	return ""
}

// firstStatus is the lowest status code, and where statusTexts begins.
const firstStatus = 100

var statusTexts = [...]string{
	100 - firstStatus: "Continue",
	101 - firstStatus: "Switching Protocols",
	102 - firstStatus: "Processing",
	103 - firstStatus: "Early Hints",
	200 - firstStatus: "OK",
	201 - firstStatus: "Created",
	202 - firstStatus: "Accepted",
	203 - firstStatus: "Non-Authoritative Information",
	204 - firstStatus: "No Content",
	205 - firstStatus: "Reset Content",
	206 - firstStatus: "Partial Content",
	207 - firstStatus: "Multi-Status",
	208 - firstStatus: "Already Reported",
	226 - firstStatus: "IM Used",
	300 - firstStatus: "Multiple Choices",
	301 - firstStatus: "Moved Permanently",
	302 - firstStatus: "Found",
	303 - firstStatus: "See Other",
	304 - firstStatus: "Not Modified",
	305 - firstStatus: "Use Proxy",
	307 - firstStatus: "Temporary Redirect",
	308 - firstStatus: "Permanent Redirect",
	400 - firstStatus: "Bad Request",
	401 - firstStatus: "Unauthorized",
	402 - firstStatus: "Payment Required",
	403 - firstStatus: "Forbidden",
	404 - firstStatus: "Not Found",
	405 - firstStatus: "Method Not Allowed",
	406 - firstStatus: "Not Acceptable",
	407 - firstStatus: "Proxy Authentication Required",
	408 - firstStatus: "Request Timeout",
	409 - firstStatus: "Conflict",
	410 - firstStatus: "Gone",
	411 - firstStatus: "Length Required",
	412 - firstStatus: "Precondition Failed",
	413 - firstStatus: "Request Entity Too Large",
	414 - firstStatus: "Request URI Too Long",
	415 - firstStatus: "Unsupported Media Type",
	416 - firstStatus: "Requested Range Not Satisfiable",
	417 - firstStatus: "Expectation Failed",
	418 - firstStatus: "I'm a teapot",
	421 - firstStatus: "Misdirected Request",
	422 - firstStatus: "Unprocessable Entity",
	423 - firstStatus: "Locked",
	424 - firstStatus: "Failed Dependency",
	425 - firstStatus: "Too Early",
	426 - firstStatus: "Upgrade Required",
	428 - firstStatus: "Precondition Required",
	429 - firstStatus: "Too Many Requests",
	431 - firstStatus: "Request Header Fields Too Large",
	451 - firstStatus: "Unavailable For Legal Reasons",
	500 - firstStatus: "Internal Server Error",
	501 - firstStatus: "Not Implemented",
	502 - firstStatus: "Bad Gateway",
	503 - firstStatus: "Service Unavailable",
	504 - firstStatus: "Gateway Timeout",
	505 - firstStatus: "HTTP Version Not Supported",
	506 - firstStatus: "Variant Also Negotiates",
	507 - firstStatus: "Insufficient Storage",
	508 - firstStatus: "Loop Detected",
	510 - firstStatus: "Not Extended",
	511 - firstStatus: "Network Authentication Required",
}
