//go:build !linux

package crowd

// Main needs Linux.
func Main() { panic("clients need Linux") }
