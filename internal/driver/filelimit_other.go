//go:build !unix

package driver

// FileLimit is how many descriptors the process may have; false: it is not known.
func FileLimit() (uint64, bool) { return 0, false }
