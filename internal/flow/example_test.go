package flow_test

import (
	"fmt"

	"github.com/myriad-go/myriad/internal/flow"
)

func ExampleInbox() {
	var in flow.Inbox
	in.Reset(8, false)
	fmt.Println("full:", in.Put([]byte("12345678"), true))
	p := make([]byte, 5)
	for {
		n, tell, err := in.Read(p)
		fmt.Printf("%s tell: %v %v\n", p[:n], tell, err)
		if err != nil {
			break
		}
	}
	// Output:
	// full: true
	// 12345 tell: true <nil>
	// 678 tell: false EOF
}

func ExampleOutbox() {
	var out flow.Outbox
	out.Reset(64 << 10)
	tell, err := out.Put([]byte("a head"), []byte("and data"), true)
	fmt.Println(tell, err)

	head, _, _, _ := out.NextHead(nil)
	p := make([]byte, 100)
	n, end, _ := out.Cut(p)
	fmt.Printf("%s %s, end: %v\n", head, p[:n], end)
	// Output:
	// true <nil>
	// a head and data, end: true
}
