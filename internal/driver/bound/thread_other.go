//go:build !linux

package bound

// threadID tells no threads apart here: only goroutines are checked.
func threadID() int { return 0 }
