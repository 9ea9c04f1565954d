package wire

import (
	"math"
	"strconv"
)

const crlf = "\r\n"

// appendHeader appends a type byte, a number and the end of the line.
func appendHeader(dst []byte, k Kind, n int64) []byte {
	dst = append(dst, byte(k))
	if n >= 0 && n < 10 {
		return append(dst, byte('0'+n), '\r', '\n')
	}
	return append(strconv.AppendInt(dst, n, 10), crlf...)
}

// appendLine appends text as one line: a CR or LF in it becomes a space, as in Redis.
func appendLine(dst []byte, k Kind, text string) []byte {
	dst = append(dst, byte(k))
	for i := range len(text) {
		c := text[i]
		if c == '\r' || c == '\n' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, crlf...)
}

// AppendSimple appends a line of text.
func AppendSimple(dst []byte, text string) []byte { return appendLine(dst, Simple, text) }

// AppendError appends an error. Its text should begin with a code, such as "ERR".
func AppendError(dst []byte, text string) []byte { return appendLine(dst, Failure, text) }

// AppendInt appends an integer.
func AppendInt(dst []byte, n int64) []byte { return appendHeader(dst, Integer, n) }

// AppendBulk appends a string of any bytes.
func AppendBulk[T string | []byte](dst []byte, text T) []byte {
	dst = appendHeader(dst, Bulk, int64(len(text)))
	return append(append(dst, text...), crlf...)
}

// AppendArray appends the beginning of an array; n values have to follow.
func AppendArray(dst []byte, n int) []byte { return appendHeader(dst, Array, int64(n)) }

// AppendMap appends the beginning of a map; n keys have to follow, each with its value. In RESP2 it
// is an array of all of them.
func AppendMap(dst []byte, n int, p Protocol) []byte {
	if p < RESP3 {
		return appendHeader(dst, Array, 2*int64(n))
	}
	return appendHeader(dst, Map, int64(n))
}

// AppendSet appends the beginning of a set, an array in RESP2.
func AppendSet(dst []byte, n int, p Protocol) []byte {
	return appendHeader(dst, kindFor(Set, p), int64(n))
}

// AppendPush appends the beginning of a push message, an array in RESP2.
func AppendPush(dst []byte, n int, p Protocol) []byte {
	return appendHeader(dst, kindFor(Push, p), int64(n))
}

func kindFor(k Kind, p Protocol) Kind {
	if p < RESP3 {
		return Array
	}
	return k
}

// AppendAttribute appends the beginning of an attribute, which RESP2 does not have: n keys have to
// follow, each with its value, and then the value that the attribute is about.
func AppendAttribute(dst []byte, n int) []byte { return appendHeader(dst, Attribute, int64(n)) }

// AppendNull appends null, in RESP2 as a string.
func AppendNull(dst []byte, p Protocol) []byte {
	if p < RESP3 {
		return append(dst, "$-1\r\n"...)
	}
	return append(dst, "_\r\n"...)
}

// AppendNullArray appends null where an array would be.
func AppendNullArray(dst []byte, p Protocol) []byte {
	if p < RESP3 {
		return append(dst, "*-1\r\n"...)
	}
	return append(dst, "_\r\n"...)
}

// AppendBool appends a truth, in RESP2 as 1 or 0.
func AppendBool(dst []byte, b bool, p Protocol) []byte {
	switch {
	case p < RESP3 && b:
		return append(dst, ":1\r\n"...)
	case p < RESP3:
		return append(dst, ":0\r\n"...)
	case b:
		return append(dst, "#t\r\n"...)
	}
	return append(dst, "#f\r\n"...)
}

// AppendDouble appends a number, in RESP2 as a string.
func AppendDouble(dst []byte, f float64, p Protocol) []byte {
	var room [32]byte
	text := appendFloat(room[:0], f)
	if p < RESP3 {
		return AppendBulk(dst, text)
	}
	dst = append(append(dst, byte(Double)), text...)
	return append(dst, crlf...)
}

func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// AppendVerbatim appends a string with its format, which has three letters; in RESP2 without it.
func AppendVerbatim(dst []byte, format, text string, p Protocol) []byte {
	if p < RESP3 || len(format) != verbatimFormat-1 {
		return AppendBulk(dst, text)
	}
	dst = appendHeader(dst, Verbatim, int64(verbatimFormat+len(text)))
	dst = append(append(dst, format...), ':')
	return append(append(dst, text...), crlf...)
}

// AppendBulkError appends an error of any bytes, in RESP2 as a line.
func AppendBulkError(dst []byte, text string, p Protocol) []byte {
	if p < RESP3 {
		return AppendError(dst, text)
	}
	dst = appendHeader(dst, BulkError, int64(len(text)))
	return append(append(dst, text...), crlf...)
}

// AppendCommand appends a command as clients send it.
func AppendCommand[T string | []byte](dst []byte, args ...T) []byte {
	dst = AppendArray(dst, len(args))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}

// AppendValue appends any value. In RESP2 its attributes are left out.
func AppendValue(dst []byte, v Value, p Protocol) []byte {
	if v.Attr != nil && p >= RESP3 {
		dst = appendElems(AppendAttribute(dst, len(v.Attr.Elems)/2), v.Attr.Elems, p)
	}
	switch v.Kind {
	case Simple, Failure:
		return appendLine(dst, v.Kind, string(v.Str))
	case Integer:
		return AppendInt(dst, v.Int)
	case Boolean:
		return AppendBool(dst, v.Int != 0, p)
	case Double, BigNumber:
		if p >= RESP3 {
			return appendLine(dst, v.Kind, string(v.Str))
		}
	case BulkError:
		return AppendBulkError(dst, string(v.Str), p)
	case Verbatim:
		if len(v.Str) >= verbatimFormat {
			return AppendVerbatim(dst, string(v.Str[:verbatimFormat-1]), string(v.Str[verbatimFormat:]), p)
		}
	case Array, Set, Push:
		return appendElems(appendHeader(dst, kindFor(v.Kind, p), int64(len(v.Elems))), v.Elems, p)
	case Map:
		return appendElems(AppendMap(dst, len(v.Elems)/2, p), v.Elems, p)
	case Null:
		return AppendNull(dst, p)
	}
	return AppendBulk(dst, v.Str)
}

func appendElems(dst []byte, elems []Value, p Protocol) []byte {
	for i := range elems {
		dst = AppendValue(dst, elems[i], p)
	}
	return dst
}
