//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// catchUpgrades returns the signals that ask for an upgrade.
func catchUpgrades() (upgrades chan os.Signal, stop func()) {
	upgrades = make(chan os.Signal, 1)
	signal.Notify(upgrades, syscall.SIGUSR2)
	return upgrades, func() { signal.Stop(upgrades) }
}
