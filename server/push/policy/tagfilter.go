package policy

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
)

// A TagFilter selects publications by their tags. With op "and", "or" or "not" it combines nodes;
// without op it compares the tag named key.
type TagFilter struct {
	Op      string
	Key     string
	Compare string
	Value   string
	Values  []string
	number  *big.Rat // value as a number, for lt, lte, gt and gte
	Nodes   []*TagFilter
}

// These bound what a filter costs for each publication.
const (
	maxFilterNodes  = 64
	maxFilterDepth  = 16
	maxFilterValues = 256 // of all nodes together
)

// FilterSize counts the parts of a filter while its door converts it.
type FilterSize struct{ nodes, values int }

// Grow counts one node at that depth with so many values. The error is an ErrBadRequest.
func (size *FilterSize) Grow(depth, values int) error {
	size.nodes++
	size.values += values
	if depth > maxFilterDepth || size.nodes > maxFilterNodes || size.values > maxFilterValues {
		return fmt.Errorf("push: a filter with more than %d nodes, %d levels or %d values: %w", maxFilterNodes,
			maxFilterDepth, maxFilterValues, answer.ErrBadRequest)
	}
	return nil
}

// Prepare checks the node, whose nodes are prepared. The error is an ErrBadRequest.
func (f *TagFilter) Prepare() error {
	ok := false
	switch f.Op {
	case "and", "or":
		ok = len(f.Nodes) > 0
	case "not":
		ok = len(f.Nodes) == 1
	case "":
		ok = f.isComparison()
	}
	if !ok {
		return fmt.Errorf("push: a filter's node with op %q and cmp %q: %w", f.Op, f.Compare, answer.ErrBadRequest)
	}
	return nil
}

func (f *TagFilter) isComparison() bool {
	switch f.Compare {
	case "ex", "nex":
		return f.Value == "" && len(f.Values) == 0
	case "in", "nin":
		return f.Key != "" && f.Value == "" && len(f.Values) > 0
	case "lt", "lte", "gt", "gte":
		f.number = decimal(f.Value)
		return f.Key != "" && f.number != nil && len(f.Values) == 0
	case "eq", "neq", "sw", "ew", "ct":
		return f.Key != "" && f.Value != "" && len(f.Values) == 0
	}
	return false
}

// maxDecimal bounds the digits of a number, in bytes.
const maxDecimal = 64

// decimal parses a decimal number without an exponent. It returns nil if text is none.
func decimal(text string) *big.Rat {
	digits := strings.TrimLeft(text, "+-")
	if len(text) > maxDecimal || len(digits) < len(text)-1 || strings.Trim(digits, "0123456789.") != "" {
		return nil
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return n
}

// matches reports whether a publication with these tags is selected.
func (f *TagFilter) matches(tags map[string]string) bool {
	matches := func(node *TagFilter) bool { return node.matches(tags) }
	switch f.Op {
	case "and":
		return !slices.ContainsFunc(f.Nodes, func(node *TagFilter) bool { return !node.matches(tags) })
	case "or":
		return slices.ContainsFunc(f.Nodes, matches)
	case "not":
		return !matches(f.Nodes[0])
	}
	value, ok := tags[f.Key]
	switch f.Compare {
	case "neq":
		return !ok || value != f.Value
	case "in":
		return slices.Contains(f.Values, value)
	case "nin":
		return !slices.Contains(f.Values, value)
	case "nex":
		return !ok
	}
	return ok && f.matchesValue(value)
}

// matchesValue makes the comparisons that need a tag.
func (f *TagFilter) matchesValue(value string) bool {
	switch f.Compare {
	case "ex":
		return true
	case "eq":
		return value == f.Value
	case "sw":
		return strings.HasPrefix(value, f.Value)
	case "ew":
		return strings.HasSuffix(value, f.Value)
	case "ct":
		return strings.Contains(value, f.Value)
	}
	n := decimal(value)
	if n == nil {
		return false
	}
	switch order := n.Cmp(f.number); f.Compare {
	case "lt":
		return order < 0
	case "lte":
		return order <= 0
	case "gt":
		return order > 0
	}
	return n.Cmp(f.number) >= 0
}

// selected returns the publications that the filter selects. It does not change list.
func (f *TagFilter) Select(list []bus.Publication) []bus.Publication {
	if f == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(p bus.Publication) bool { return !f.matches(p.Tags) })
}
