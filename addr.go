package myriad

// AppendRemoteAddr appends RemoteAddr().String() to dst without the address in between. Any goroutine.
func (c *Conn) AppendRemoteAddr(dst []byte) []byte {
	if x := c.extra.Load(); x != nil && (x.bridge != nil || x.peer != nil) {
		return append(dst, c.RemoteAddr().String()...)
	}
	return c.remote.AppendTo(dst)
}
