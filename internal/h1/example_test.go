package h1_test

import (
	"fmt"

	"github.com/myriad-go/myriad/internal/h1"
)

// A server's read path: parse what has come; if a head is not complete, keep its bytes and let a
// Scan watch it grow.
func Example() {
	var kept []byte
	var scan h1.Scan
	var head h1.Head
	received := func(p []byte) {
		if len(kept) > 0 {
			kept = append(kept, p...)
			if ready, err := scan.Request(kept, h1.Limits{}); !ready || err != nil {
				fmt.Println("kept:", len(kept), err)
				return
			}
			p, kept, scan = kept, nil, h1.Scan{}
		}
		for len(p) > 0 {
			n, err := h1.ParseRequest(p, h1.Limits{}, &head)
			if n == 0 {
				kept = append(kept, p...)
				fmt.Println("kept:", len(kept), err)
				return
			}
			fmt.Printf("%s %s, body %d\n", head.Method, head.Target, head.ContentLength)
			p = p[n:]
		}
	}
	received([]byte("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HT"))
	received([]byte("TP/1.1\r\nHo"))
	received([]byte("st: x\r\n\r\n"))
	// Output:
	// GET /a, body -1
	// kept: 9 <nil>
	// kept: 19 <nil>
	// GET /b, body -1
}
