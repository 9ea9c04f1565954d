//go:build !unix

package myriad

// fileLimit is how many descriptors the process may have; false: nobody knows.
func fileLimit() (uint64, bool) { return 0, false }
