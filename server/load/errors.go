package load

import "errors"

var (
	errUnasked = errors.New("a reply that was not asked for")
	errNotOpen = errors.New("the server did not open the connection as asked")
)
