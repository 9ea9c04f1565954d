package enginetest

import (
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/epoll"
)

// inBound is what is bound to threads.
func inBound() driver.System { return epoll.System{} }
