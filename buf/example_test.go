package buf_test

import (
	"fmt"

	"github.com/myriad-go/myriad/buf"
)

// One message queued for three connections is one block with three references.
func Example() {
	frame := buf.From([]byte("goal!"))
	queues := make([]buf.Chain, 3)
	for i := range queues {
		queues[i].AppendBlock(frame.Retain())
	}
	frame.Release()

	queues[0].Discard(2) // a short write: two bytes are sent
	fmt.Printf("%s %s, blocks in use: %d\n", queues[0].First(), queues[1].First(), buf.InUse())

	for i := range queues {
		queues[i].Release()
	}
	fmt.Println("blocks in use:", buf.InUse())
	// Output:
	// al! goal!, blocks in use: 1
	// blocks in use: 0
}

// An append-style encoder writes straight into a block.
func ExampleBlock_Extend() {
	b := buf.Get(64)
	defer b.Release()
	b.Append([]byte("Content-Length: "))
	b.Commit(len(fmt.Append(b.Extend()[:0], 42)))
	fmt.Printf("%s\n", b.Bytes())
	// Output: Content-Length: 42
}
