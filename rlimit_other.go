//go:build !unix

package myriad

// fileLimit is how many descriptors the process may have; false: it is not known.
func fileLimit() (uint64, bool) { return 0, false }
