package outbox_test

import "time"

// waitless is a driver.Parker that must not be parked.
type waitless struct{}

func (waitless) Park()                 { panic("parked") }
func (waitless) ParkFor(time.Duration) { panic("parked") }
func (waitless) Unpark()               {}
