package load

import "errors"

var errUnasked = errors.New("a reply that was not asked for")
