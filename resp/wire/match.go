package wire

// Match reports whether s matches a pattern of KEYS or PSUBSCRIBE of Redis. In a pattern * is any
// bytes and ? one byte. [abc] is one of these, [a-c] one of a range, and [^abc] none of these. A
// backslash takes the next byte as it is. Match looks at len(pattern) times len(s)+1 bytes of a
// pattern at most, so its callers bound both.
func Match[P, S string | []byte](pattern P, s S) bool {
	ok, _ := match(pattern, s)
	return ok
}

// match returns how many bytes of the pattern it has looked at, too.
func match[P, S string | []byte](pattern P, s S) (ok bool, looked int) {
	p, i := 0, 0
	star, from := -1, 0 // where to go on if what follows the last star does not match
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, i
			p++
			looked++
			continue
		}
		next, ok := matchOne(pattern, p, s[i])
		looked += max(1, next-p)
		if ok {
			p = next
			i++
			continue
		}
		if star < 0 {
			return false, looked
		}
		from++
		p, i = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
		looked++
	}
	return p == len(pattern), looked
}

// matchOne reports whether c matches what stands at p, and where the pattern goes on.
func matchOne[P string | []byte](pattern P, p int, c byte) (next int, ok bool) {
	if p == len(pattern) {
		return p, false
	}
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return matchClass(pattern, p+1, c)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == c
}

// matchClass reports whether c is in the class whose inside begins at p. A class without an end
// reaches to the end of the pattern.
func matchClass[P string | []byte](pattern P, p int, c byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == c
		case p+2 < len(pattern) && pattern[p+1] == '-':
			low, high := min(pattern[p], pattern[p+2]), max(pattern[p], pattern[p+2])
			ok = ok || low <= c && c <= high
			p += 2
		default:
			ok = ok || pattern[p] == c
		}
	}
	return min(p+1, len(pattern)), ok != not
}
