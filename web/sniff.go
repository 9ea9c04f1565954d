package web

import "net/http"

// sniffLen is how much of a body http.DetectContentType looks at.
const sniffLen = 512

const plainText = "text/plain; charset=utf-8"

// sniff finds the Content-Type of a body that begins with first and goes on with next.
func sniff(first, next []byte) string {
	if len(first) < sniffLen && len(next) > 0 {
		first = append(append(make([]byte, 0, sniffLen), first...), next[:min(len(next), sniffLen-len(first))]...)
	}
	first = first[:min(len(first), sniffLen)]
	if startsPlain(first) && !hasBinary(first) {
		return plainText
	}
	return http.DetectContentType(first)
}

// startsPlain reports whether no signature of the MIME Sniffing standard (section 7.1) begins as p
// does: then p is text or it is not, and the table need not be searched. No box of an MP4 file is
// so small that its length begins with a letter.
func startsPlain(p []byte) bool {
	if len(p) == 0 {
		return false
	}
	switch c := p[0]; {
	case c == '{' || c == '[' || c == '"' || '0' <= c && c <= '9':
		return true
	case 'a' <= c && c <= 'z':
		return c != 'w' && c != 't'
	case 'A' <= c && c <= 'Z':
		switch c {
		case 'A', 'B', 'F', 'G', 'I', 'M', 'O', 'P', 'R':
			return false
		}
		return true
	}
	return false
}

// hasBinary reports whether p has a binary data byte (MIME Sniffing section 2).
func hasBinary(p []byte) bool {
	for _, c := range p {
		if c < ' ' && (c <= 0x08 || c == 0x0b || 0x0e <= c && c <= 0x1a || 0x1c <= c) {
			return true
		}
	}
	return false
}
