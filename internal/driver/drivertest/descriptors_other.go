//go:build !unix

package drivertest

import "github.com/myriad-go/myriad/internal/driver"

func duplicateFD(int) (int, error) { return -1, driver.ErrUnsupported }
func isOpen(int) bool              { return false }
func closeFD(int)                  {}
