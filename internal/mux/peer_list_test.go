package mux

import (
	"fmt"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// listOf is SETTINGS_MAX_HEADER_LIST_SIZE.
func listOf(n int64) h2.Setting { return h2.Setting{ID: h2.MaxHeaderListSize, Value: uint32(n)} }

// Lists up to the limit are sent, whatever their number of fields.
func TestHeaderListsUpToTheLimit(t *testing.T) {
	for _, n := range []int{1, 2, 50} {
		fields := []string{":status", "200"}
		for i := range n {
			fields = append(fields, fmt.Sprintf("f%d", i), "v")
		}
		head := pairs(fields...)
		for by := range int64(2) {
			r := newRig(t, Config{})
			r.greet(listOf(h2.ListSize(head) - by))
			r.write(headers(1, getBlock, true))
			r.settle()
			r.conn.streams[1].Put(head, nil, true)
			r.want([]string{"HEADERS 1 ", "RST_STREAM 1 INTERNAL_ERROR"}[by])
			r.wantNothing()
		}
	}
}
