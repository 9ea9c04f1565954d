package h1

import "strconv"

// Continue is the whole interim response that a client with Expect: 100-continue waits for.
const Continue = "HTTP/1.1 100 Continue\r\n\r\n"

// AppendRequestLine appends "method target HTTP/1.1" and CRLF. The caller answers for both being
// valid.
func AppendRequestLine(dst []byte, method, target string) []byte {
	dst = append(dst, method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	return append(dst, " HTTP/1.1\r\n"...)
}

// AppendStatusLine appends the status line of an HTTP/1.minor response (minor 0 or 1) with the
// usual reason, or "status code 799" where there is none, as net/http does. status has three
// digits, from 100 on; it panics otherwise, because that is the program's mistake and would break
// the framing.
func AppendStatusLine(dst []byte, minor, status int) []byte {
	if status < 100 || status > 999 {
		panic("h1: invalid status code " + strconv.Itoa(status) + "; use 100 to 999")
	}
	if minor == 0 {
		dst = append(dst, "HTTP/1.0 "...)
	} else {
		dst = append(dst, "HTTP/1.1 "...)
	}
	dst = append(dst, byte('0'+status/100), byte('0'+status/10%10), byte('0'+status%10), ' ')
	if text := StatusText(status); text != "" {
		dst = append(dst, text...)
	} else {
		dst = append(dst, "status code "...)
		dst = strconv.AppendInt(dst, int64(status), 10)
	}
	return append(dst, "\r\n"...)
}

// AppendField appends one field line. As net/http does, it leaves a field out whose name is not a
// token, and trims the value and turns CR and LF in it into spaces, so that no handler can be made
// to split a response; NUL too, because RFC 9110 section 5.5 counts it among them.
func AppendField(dst []byte, name, value string) []byte {
	if !IsToken(name) {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	start := len(dst)
	if dst = append(dst, trim(value)...); text(dst, start) < len(dst) {
		dst = appendClean(dst[:start], value)
	}
	return append(dst, "\r\n"...)
}

// AppendLength appends a Content-Length field.
func AppendLength(dst []byte, n int64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, "\r\n"...)
}

// AppendChunk appends data as one chunk; nothing for no data, because an empty chunk would end the
// body.
func AppendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = AppendChunkSize(dst, len(data))
	dst = append(dst, data...)
	return append(dst, "\r\n"...)
}

// AppendChunkSize appends the line before n > 0 bytes of data that are sent from elsewhere; a CRLF
// must follow them.
func AppendChunkSize(dst []byte, n int) []byte {
	if n <= 0 {
		panic("h1: a chunk needs data; end the body with LastChunk")
	}
	dst = strconv.AppendUint(dst, uint64(n), 16)
	return append(dst, "\r\n"...)
}

// LastChunk ends the data of a chunked body. Trailer fields may follow, then a CRLF.
const LastChunk = "0\r\n"

// appendClean is for the rare value with a control character in it, maybe CR, LF or NUL. Trimming
// comes after, as in net/http.
func appendClean(dst []byte, value string) []byte {
	clean := []byte(value)
	for i, c := range clean {
		if c == '\r' || c == '\n' || c == 0 {
			clean[i] = ' '
		}
	}
	return append(dst, trim(clean)...)
}
