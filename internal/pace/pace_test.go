package pace

import (
	"fmt"
	"testing"
	"time"
)

func TestReports(t *testing.T) {
	var r Reports
	start := time.Unix(1000, 0)
	got := ""
	for _, second := range []int{0, 1, 9, 10, 11, 30, 31, 40} {
		if n, due := r.Next(start.Add(time.Duration(second)*time.Second), 10*time.Second); due {
			got += fmt.Sprintf("%d at %d s; ", n, second)
		}
	}
	if want := "1 at 0 s; 3 at 10 s; 2 at 30 s; 2 at 40 s; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
