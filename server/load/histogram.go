package load

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest time that a Histogram tells apart; what takes longer counts as this.
const longest = 10 * time.Minute

// A Histogram counts durations from a microsecond to ten minutes, with three significant digits. In
// JSON it is the text of HdrHistogram's V2 encoding, or an empty text. The zero Histogram is empty.
type Histogram struct {
	h      *hdrhistogram.Histogram // nil: empty. It has 240 kB
	sparse bool                    // its JSON is a list: see MarshalJSON
}

// NewHistogram returns an empty one.
func NewHistogram() *Histogram { return new(Histogram) }

// empty is what an empty histogram looks like. Its counts are shared.
var empty = sync.OnceValue(func() hdrhistogram.Snapshot {
	var h Histogram
	return *h.counts().Export()
})

// counts makes room for counts.
func (h *Histogram) counts() *hdrhistogram.Histogram {
	if h.h == nil {
		h.h = hdrhistogram.New(int64(time.Microsecond), int64(longest), 3)
	}
	return h.h
}

// Record counts n durations of d.
func (h *Histogram) Record(d time.Duration, n int64) {
	_ = h.counts().RecordValues(min(max(int64(d), 0), int64(longest)), n) // in range, so it cannot fail
}

// Add adds another histogram's counts.
func (h *Histogram) Add(o *Histogram) {
	if o.h != nil {
		h.counts().Merge(o.h)
	}
}

// Count is how many durations were counted.
func (h *Histogram) Count() int64 {
	if h.h == nil {
		return 0
	}
	return h.h.TotalCount()
}

// Quantile is the duration that a part q of all, from 0 to 1, does not exceed; 0 for none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.h == nil {
		return 0
	}
	return time.Duration(h.h.ValueAtQuantile(100 * q))
}

// Max is the longest duration; 0 for none.
func (h *Histogram) Max() time.Duration {
	if h.h == nil {
		return 0
	}
	return time.Duration(h.h.Max())
}

// Mean is their mean; 0 for none.
func (h *Histogram) Mean() time.Duration {
	if h.h == nil {
		return 0
	}
	return time.Duration(h.h.Mean())
}

// MarshalJSON implements json.Marshaler. The JSON of a sparse histogram is a list of pairs: how
// many counts are 0, and the count behind them. That takes a fifth of the time of the text, most of
// which goes into the compression of noughts.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	if h.h == nil {
		return []byte(`""`), nil
	}
	if h.sparse {
		return h.pairs(), nil
	}
	p, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(p))
}

func (h *Histogram) pairs() []byte {
	list := []byte{'['}
	noughts := int64(0)
	for _, n := range h.h.Export().Counts {
		if n == 0 {
			noughts++
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(strconv.AppendInt(list, noughts, 10), ',')
		list = strconv.AppendInt(list, n, 10)
		noughts = 0
	}
	return append(list, ']')
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Histogram) UnmarshalJSON(p []byte) error {
	if len(p) > 0 && p[0] == '[' {
		return h.fromPairs(p)
	}
	var text string
	if err := json.Unmarshal(p, &text); err != nil {
		return err
	}
	if text == "" {
		h.h = nil
		return nil
	}
	decoded, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return err
	}
	h.h = decoded
	return nil
}

func (h *Histogram) fromPairs(p []byte) error {
	var list []int64
	if err := json.Unmarshal(p, &list); err != nil {
		return err
	}
	s, at := empty(), int64(-1)
	s.Counts = make([]int64, len(s.Counts))
	for i := 0; i < len(list); i += 2 {
		if i+1 == len(list) || list[i] < 0 || list[i] >= int64(len(s.Counts))-at-1 || list[i+1] <= 0 {
			return fmt.Errorf("a histogram's list of %d numbers has no pair of a gap and a count at %d", len(list), i)
		}
		at += list[i] + 1
		s.Counts[at] = list[i+1]
	}
	h.h = hdrhistogram.Import(&s)
	return nil
}
