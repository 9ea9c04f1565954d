package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const longestLatency = 5 * time.Minute // what takes longer counts as this

// NewLatency is an empty histogram of the kind that Results hold: nanoseconds with three
// significant digits.
func NewLatency() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(longestLatency), 3)
}
