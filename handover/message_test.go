package handover

import (
	"errors"
	"slices"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// FuzzItems holds any hello against its reader: it is refused, or says the same when it is written
// again.
func FuzzItems(f *testing.F) {
	f.Add(appendItems([]item{{"engine", "records", "myriad/1"}, {"server", "a", "b/1"}, {"state", "c", "d/2"}}))
	f.Add([]byte{version})
	f.Add([]byte{version, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := parseItems(body)
		if err != nil {
			if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		again, err := parseItems(appendItems(list))
		if err != nil || !slices.Equal(list, again) {
			t.Fatalf("%v, written again %v: %v", list, again, err)
		}
	})
}

// A noSocket stands in for one.
type noSocket struct{ driver.Socket }

// FuzzRecords holds any list of records against its reader: what is taken has one record for each
// socket.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{0, 6, 'e', 'c', 'h', 'o', '/', '1', 1, 7}, uint8(1))
	f.Add([]byte{0, 6, 'e', 'c', 'h', 'o', '/', '1', 0xff, 0xff, 0xff, 0x0f}, uint8(2))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, body []byte, n uint8) {
		p := &Program{Servers: map[string]myriad.Thawer{"echo": &echoServer{}}}
		m := message{kind: conns, body: body}
		for range n {
			m.sockets = append(m.sockets, &noSocket{})
		}
		records, err := (&Taken{Program: p}).parseRecords(&m)
		if err == nil && len(records) != int(n) {
			t.Fatalf("%d records for %d sockets", len(records), n)
		}
		for i := range records {
			if records[i].Socket != m.sockets[i] || records[i].Format != "echo/1" {
				t.Fatalf("record %d is %+v", i, records[i])
			}
		}
	})
}
