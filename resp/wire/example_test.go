package wire_test

import (
	"fmt"

	"github.com/myriad-go/myriad/resp/wire"
)

// ParseValue reads a reply.
func ExampleParseValue() {
	n, v, err := wire.ParseValue([]byte("*2\r\n$5\r\nhello\r\n:42\r\n"), wire.Limits{})
	fmt.Println(n, v, err)
	// Output: 20 [hello 42] <nil>
}
