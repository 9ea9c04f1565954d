package buf

// First returns the first contiguous run of bytes, nil if the chain is empty. The caller may only
// read it, and only until the bytes leave the chain.
func (c *Chain) First() []byte {
	if c.n == 0 {
		return nil
	}
	return c.views[c.head].bytes()
}

// Vectors appends the chain's contiguous runs to dst for writev, at most limit of them. They are
// valid like First.
func (c *Chain) Vectors(dst [][]byte, limit int) [][]byte {
	views := c.views[c.head:]
	for i := range min(len(views), max(limit, 0)) {
		dst = append(dst, views[i].bytes())
	}
	return dst
}

// CopyTo copies the first bytes of the chain into p, as many as fit, and returns their number. The
// chain keeps them.
func (c *Chain) CopyTo(p []byte) int {
	n := 0
	for i := int(c.head); i < len(c.views) && n < len(p); i++ {
		n += copy(p[n:], c.views[i].bytes())
	}
	return n
}

// AppendTo appends a copy of all bytes of the chain to dst. The chain keeps them.
func (c *Chain) AppendTo(dst []byte) []byte {
	for _, v := range c.views[c.head:] {
		dst = append(dst, v.bytes()...)
	}
	return dst
}

func (v view) bytes() []byte { return v.b.mem[v.off:v.end:v.end] }
