package h1

import "bytes"

// targetForm tells the four forms of RFC 9112 section 3.2 apart and refuses a form the method must
// not use. host is the authority inside the target, nil if it has none. The target holds no space
// and no control character by now.
func targetForm(method, target []byte) (form Form, host []byte, err *Error) {
	if target[0] == '/' {
		// RFC 9112 section 3.2.3 knows only authority-form for CONNECT; package net/rpc sends a
		// path, net/http takes it.
		return Origin, nil, nil
	}
	if string(method) == "CONNECT" {
		if !validAuthority(target) {
			return 0, nil, errTarget
		}
		return Authority, target, nil
	}
	if len(target) == 1 && target[0] == '*' {
		return Asterisk, nil, nil // section 3.2.4 knows it with OPTIONS only; http.ServeMux refuses the rest
	}
	host = absoluteHost(target)
	if len(host) == 0 || host[0] == ':' || !validHost(host) {
		return 0, nil, errTarget
	}
	return Absolute, host, nil
}

// absoluteHost returns the authority of scheme "://" authority ..., nil if target is not of that
// form. User information in it is left for the caller's byte check to refuse (RFC 9110 section
// 4.2.4).
func absoluteHost(target []byte) []byte {
	colon := bytes.IndexByte(target, ':')
	if colon <= 0 || !isLetter(target[0]) || len(target) < colon+3 || target[colon+1] != '/' || target[colon+2] != '/' {
		return nil
	}
	for _, c := range target[:colon] {
		if !isLetter(c) && !isDigit(c) && c != '+' && c != '-' && c != '.' {
			return nil
		}
	}
	host := target[colon+3:]
	if end := bytes.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	return host
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// validAuthority checks host ":" port. "A server MUST reject a CONNECT request that targets an
// empty or invalid port number" (RFC 9110 section 9.3.6).
func validAuthority(p []byte) bool {
	colon := bytes.LastIndexByte(p, ':')
	if colon <= 0 || !validHost(p) {
		return false
	}
	port := 0
	for _, c := range p[colon+1:] {
		if !isDigit(c) { // the colon is one inside of brackets
			return false
		}
		port = port*10 + int(c-'0')
		if port > 65535 {
			return false
		}
	}
	return port > 0
}
