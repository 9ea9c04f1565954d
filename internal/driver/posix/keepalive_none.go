//go:build openbsd || dragonfly

package posix

// keepAlive is empty: OpenBSD has one setting for the whole system, and DragonFly's versions differ
// in the unit.
var keepAlive [0]keepAliveOption
