//go:build openbsd || dragonfly

package posix

// keepAliveOptions has none: OpenBSD has one setting for the whole system, and DragonFly's versions
// differ in the unit.
var keepAliveOptions probeOptions
