//go:build !unix

package main

import "os"

// catchUpgrades returns a channel on which nothing comes: there is no signal for an upgrade.
func catchUpgrades() (upgrades chan os.Signal, stop func()) { return nil, func() {} }
