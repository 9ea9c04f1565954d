package load

// spreads follow publications until their last subscriber has them, over all workers.
type spreads struct {
	subscribers []int // of each channel
	first, last *Histogram
	pending     map[publicationKey]Spread
	order       []publicationKey // of pending, the oldest first
	complete    int64
}

func newSpreads(p Plan) *spreads {
	s := &spreads{first: NewHistogram(), last: NewHistogram(), pending: map[publicationKey]Spread{}}
	if p.Kind == Push {
		s.subscribers = make([]int, p.Channels)
		for i := range p.Connections {
			s.subscribers[i%p.Channels]++
		}
	}
	return s
}

// add takes in what workers have seen since they last said so.
func (s *spreads) add(news []Spread) {
	for _, n := range news {
		key := publicationKey{n.Channel, n.Number}
		p, known := s.pending[key]
		if !known {
			s.make()
			s.order = append(s.order, key)
			p = n
		} else {
			p.Reached += n.Reached
			p.First, p.Last = min(p.First, n.First), max(p.Last, n.Last)
		}
		s.pending[key] = p
		s.finish(key)
	}
}

// finish counts a publication if all subscribers have it.
func (s *spreads) finish(key publicationKey) {
	if p := s.pending[key]; p.Reached == s.subscribers[key.channel] {
		s.first.Record(p.First, 1)
		s.last.Record(p.Last, 1)
		s.complete++
		delete(s.pending, key)
	}
}

// without notes how many subscribers of each channel are not there: publications are complete
// without them.
func (s *spreads) without(absent []int) {
	for channel, n := range absent {
		s.subscribers[channel] -= n
	}
	for key := range s.pending {
		s.finish(key)
	}
}

// make makes room for another publication, by forgetting those that are complete and then the
// oldest one.
func (s *spreads) make() {
	for len(s.order) > 0 {
		_, waits := s.pending[s.order[0]]
		if waits && len(s.pending) < mostSpreads {
			return
		}
		delete(s.pending, s.order[0])
		s.order = s.order[1:]
	}
}
