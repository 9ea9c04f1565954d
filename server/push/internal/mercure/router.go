package mercure

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// MaxAlike is how many different URI templates that begin with the same text may be in use at the
// same time, because each update whose topic begins with that text is compared with all of them.
const MaxAlike = 64

// ErrTooMany is returned by Join at MaxAlike.
var ErrTooMany = errors.New("mercure: too many different URI templates begin like one of these: " +
	"subscribe to fewer, or to exact topics")

// An Interest is what a subscriber wants and may have.
type Interest struct {
	Topics  []Selector
	Allowed []Selector // of private updates
}

// Has reports whether an update is for a subscriber with that interest.
func (want Interest) Has(u Update) bool {
	selects := func(s Selector) bool { return slices.ContainsFunc(u.Topics, s.Matches) }
	return slices.ContainsFunc(want.Topics, selects) && (!u.Private || slices.ContainsFunc(want.Allowed, selects))
}

// A Router knows which subscribers an update is for. Subscribers with the same Interest share a
// group, and groups share selectors, so that an update costs a look-up for each of its topics, and
// a match for each template that begins like one. The zero value is ready. It has no lock.
type Router[S comparable] struct {
	places    map[S]place[S]
	groups    map[string]*group[S]
	selectors map[string]*shared[S]
	templates map[string][]*shared[S] // those in use by text before the first expression
	lengths   []int                   // of the keys of templates, sorted
	round     uint64                  // counts calls of Select
}

type place[S comparable] struct {
	group *group[S]
	index int
}

type group[S comparable] struct {
	key             string
	topics, allowed []*shared[S]
	members         []S
	seen            uint64 // the round that looked at the group
}

// A shared is a selector with the groups that subscribe with it.
type shared[S comparable] struct {
	Selector
	groups map[*group[S]]struct{}
	uses   int // by groups, as one of their topics or of those allowed
	tested uint64
	passed bool // it selects a topic of the round tested
}

// Join adds a subscriber, which must not be in the router.
func (r *Router[S]) Join(s S, want Interest) error {
	want = Interest{distinct(want.Topics), distinct(want.Allowed)}
	key := want.key()
	g := r.groups[key]
	if g == nil {
		if !r.hasRoom(want.Topics) {
			return ErrTooMany
		}
		g = r.newGroup(key, want)
	}
	if r.places == nil {
		r.places = make(map[S]place[S])
	}
	r.places[s] = place[S]{g, len(g.members)}
	g.members = append(g.members, s)
	return nil
}

// distinct returns the selectors in order, each once.
func distinct(list []Selector) []Selector {
	list = slices.SortedFunc(slices.Values(list), func(a, b Selector) int { return strings.Compare(a.text, b.text) })
	return slices.CompactFunc(list, func(a, b Selector) bool { return a.text == b.text })
}

// key is equal for equal interests, whose selectors are distinct. No selector has a newline.
func (want Interest) key() string {
	var b strings.Builder
	for _, list := range [][]Selector{want.Topics, want.Allowed} {
		for _, s := range list {
			b.WriteString(s.text)
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// hasRoom reports whether new templates keep within MaxAlike.
func (r *Router[S]) hasRoom(list []Selector) bool {
	added := make(map[string]int)
	for _, s := range list {
		if s.template == nil {
			continue
		}
		if known := r.selectors[s.text]; known == nil || len(known.groups) == 0 {
			added[s.template.prefix]++
		}
	}
	for prefix, n := range added {
		if len(r.templates[prefix])+n > MaxAlike {
			return false
		}
	}
	return true
}

func (r *Router[S]) newGroup(key string, want Interest) *group[S] {
	g := &group[S]{key: key}
	for _, s := range want.Topics {
		one := r.use(s)
		if len(one.groups) == 0 {
			one.groups = make(map[*group[S]]struct{})
			r.addTemplate(one)
		}
		one.groups[g] = struct{}{}
		g.topics = append(g.topics, one)
	}
	for _, s := range want.Allowed {
		g.allowed = append(g.allowed, r.use(s))
	}
	if r.groups == nil {
		r.groups = make(map[string]*group[S])
	}
	r.groups[key] = g
	return g
}

func (r *Router[S]) use(s Selector) *shared[S] {
	one := r.selectors[s.text]
	if one == nil {
		one = &shared[S]{Selector: s}
		if r.selectors == nil {
			r.selectors = make(map[string]*shared[S])
		}
		r.selectors[s.text] = one
	}
	one.uses++
	return one
}

func (r *Router[S]) addTemplate(one *shared[S]) {
	if one.template == nil {
		return
	}
	prefix := one.template.prefix
	if r.templates == nil {
		r.templates = make(map[string][]*shared[S])
	}
	r.templates[prefix] = append(r.templates[prefix], one)
	if i, has := slices.BinarySearch(r.lengths, len(prefix)); !has {
		r.lengths = slices.Insert(r.lengths, i, len(prefix))
	}
}

func (r *Router[S]) dropTemplate(one *shared[S]) {
	if one.template == nil {
		return
	}
	prefix := one.template.prefix
	list := slices.DeleteFunc(r.templates[prefix], func(o *shared[S]) bool { return o == one })
	if r.templates[prefix] = list; len(list) > 0 {
		return
	}
	delete(r.templates, prefix)
	for other := range r.templates {
		if len(other) == len(prefix) {
			return
		}
	}
	i, _ := slices.BinarySearch(r.lengths, len(prefix))
	r.lengths = slices.Delete(r.lengths, i, i+1)
}

// Leave removes a subscriber, if it is in the router.
func (r *Router[S]) Leave(s S) {
	at, ok := r.places[s]
	if !ok {
		return
	}
	delete(r.places, s)
	g := at.group
	last := len(g.members) - 1
	if moved := g.members[last]; at.index != last {
		g.members[at.index] = moved
		r.places[moved] = place[S]{g, at.index}
	}
	clear(g.members[last:])
	if g.members = g.members[:last]; last > 0 {
		return
	}
	delete(r.groups, g.key)
	for _, one := range g.topics {
		if delete(one.groups, g); len(one.groups) == 0 {
			r.dropTemplate(one)
		}
	}
	for _, one := range slices.Concat(g.topics, g.allowed) {
		if one.uses--; one.uses == 0 {
			delete(r.selectors, one.text)
		}
	}
}

// All returns the subscribers, in any order.
func (r *Router[S]) All() []S { return slices.Collect(maps.Keys(r.places)) }

// Interest returns what a subscriber wants and may have, each selector once, in order.
func (r *Router[S]) Interest(s S) (want Interest) {
	at, ok := r.places[s]
	if !ok {
		return want
	}
	for _, one := range at.group.topics {
		want.Topics = append(want.Topics, one.Selector)
	}
	for _, one := range at.group.allowed {
		want.Allowed = append(want.Allowed, one.Selector)
	}
	return want
}

// Topics returns the texts of a subscriber's selectors of topics, in order.
func (r *Router[S]) Topics(s S) (texts []string) {
	if at, ok := r.places[s]; ok {
		for _, one := range at.group.topics {
			texts = append(texts, one.text)
		}
	}
	return texts
}

// Select appends the subscribers that an update with those topics is for, each once: those with a
// selector for one of the topics, and for a private update those that are also allowed one of them.
func (r *Router[S]) Select(topics []string, private bool, to []S) []S {
	r.round++
	for _, topic := range topics {
		to = r.selectBy(r.selectors["*"], topics, private, to)
		to = r.selectBy(r.selectors[topic], topics, private, to)
		for _, n := range r.lengths {
			if n > len(topic) {
				break
			}
			for _, one := range r.templates[topic[:n]] {
				if one.template.matches(topic) {
					to = r.selectBy(one, topics, private, to)
				}
			}
		}
	}
	return to
}

// selectBy appends the members of the groups that subscribe with that selector.
func (r *Router[S]) selectBy(one *shared[S], topics []string, private bool, to []S) []S {
	if one == nil {
		return to
	}
	for g := range one.groups {
		if g.seen == r.round {
			continue
		}
		g.seen = r.round
		if !private || r.allows(g, topics) {
			to = append(to, g.members...)
		}
	}
	return to
}

func (r *Router[S]) allows(g *group[S], topics []string) bool {
	return slices.ContainsFunc(g.allowed, func(one *shared[S]) bool {
		if one.tested != r.round {
			one.tested, one.passed = r.round, slices.ContainsFunc(topics, one.Matches)
		}
		return one.passed
	})
}
