package myriad

// AppendRemoteAddr appends RemoteAddr().String() to dst without the address in between. Any goroutine.
func (c *Conn) AppendRemoteAddr(dst []byte) []byte {
	if c.bridged() != nil {
		return append(dst, c.RemoteAddr().String()...)
	}
	return c.remote.AppendTo(dst)
}
