//go:build !unix

package std

import "github.com/myriad-go/myriad/internal/driver"

// moves is nil: package net gives no second descriptor of a connection here.
var moves *driver.Moves
