package myriad

// Unsent is how many bytes the conn has yet to give to the kernel, the rest of WriteFile's files
// included. On the loop only.
func (c *Conn) Unsent() int64 { return c.unsent() }
