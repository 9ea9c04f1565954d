package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad/internal/outbox"
)

// Readers that come, read, fall behind and leave in any order get every message from where they
// began. A message stays as long as one of them needs it, and no longer.
func TestLog(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var total atomic.Int64
		log := outbox.Log[message]{Total: &total}
		refs, common := 0, uint64(0)
		var behind []uint64
		for range 500 {
			switch i := random.IntN(5); {
			case i == 0:
				refs++
				log.Append(message{fmt.Sprint(log.Next()), &refs})
			case i == 1:
				common = log.Next()
			case i == 2 && common < log.Next(): // a reader falls behind
				log.Hold(common)
				behind = append(behind, common)
			case i >= 3 && len(behind) > 0: // one of those gets some, or leaves
				k := random.IntN(len(behind))
				at := behind[k]
				for ; at < log.Next() && random.IntN(3) > 0; at++ {
					if got := log.At(at).name; got != fmt.Sprint(at) {
						t.Fatalf("seed %d: message %d is %s", seed, at, got)
					}
				}
				log.Unhold(behind[k])
				behind = append(behind[:k], behind[k+1:]...)
				if at < log.Next() && random.IntN(4) > 0 {
					log.Hold(at)
					behind = append(behind, at)
				}
			}
			log.Trim(common)
			oldest := common
			for _, at := range behind {
				oldest = min(oldest, at)
			}
			kept := int(log.Next() - oldest)
			if log.Oldest() != oldest || refs != kept || log.Bytes() != 10*kept || total.Load() != int64(10*kept) {
				t.Fatalf("seed %d: from %d on, %d messages, %d and %d bytes; want from %d on, %d messages", seed,
					log.Oldest(), refs, log.Bytes(), total.Load(), oldest, kept)
			}
		}
	}
}
