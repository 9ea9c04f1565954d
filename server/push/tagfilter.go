package push

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// A tagFilter selects publications by their tags. With op "and", "or" or "not" it combines nodes;
// without op it compares the tag named key.
type tagFilter struct {
	op      string
	key     string
	compare string
	value   string
	values  []string
	number  *big.Rat // value as a number, for lt, lte, gt and gte
	nodes   []*tagFilter
}

// These bound what a filter costs for each publication.
const (
	maxFilterNodes  = 64
	maxFilterDepth  = 16
	maxFilterValues = 256 // of all nodes together
)

// filterSize counts the parts of a filter while its door converts it.
type filterSize struct{ nodes, values int }

// grow counts one node at that depth with so many values. The error is a failBadRequest.
func (size *filterSize) grow(depth, values int) error {
	size.nodes++
	size.values += values
	if depth > maxFilterDepth || size.nodes > maxFilterNodes || size.values > maxFilterValues {
		return fmt.Errorf("push: a filter with more than %d nodes, %d levels or %d values: %w", maxFilterNodes,
			maxFilterDepth, maxFilterValues, failBadRequest)
	}
	return nil
}

// prepare checks the node, whose nodes are prepared. The error is a failBadRequest.
func (f *tagFilter) prepare() error {
	ok := false
	switch f.op {
	case "and", "or":
		ok = len(f.nodes) > 0
	case "not":
		ok = len(f.nodes) == 1
	case "":
		ok = f.isComparison()
	}
	if !ok {
		return fmt.Errorf("push: a filter's node with op %q and cmp %q: %w", f.op, f.compare, failBadRequest)
	}
	return nil
}

func (f *tagFilter) isComparison() bool {
	switch f.compare {
	case "ex", "nex":
		return f.value == "" && len(f.values) == 0
	case "in", "nin":
		return f.key != "" && f.value == "" && len(f.values) > 0
	case "lt", "lte", "gt", "gte":
		f.number = decimal(f.value)
		return f.key != "" && f.number != nil && len(f.values) == 0
	case "eq", "neq", "sw", "ew", "ct":
		return f.key != "" && f.value != "" && len(f.values) == 0
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
func (f *tagFilter) matches(tags map[string]string) bool {
	matches := func(node *tagFilter) bool { return node.matches(tags) }
	switch f.op {
	case "and":
		return !slices.ContainsFunc(f.nodes, func(node *tagFilter) bool { return !node.matches(tags) })
	case "or":
		return slices.ContainsFunc(f.nodes, matches)
	case "not":
		return !matches(f.nodes[0])
	}
	value, ok := tags[f.key]
	switch f.compare {
	case "neq":
		return !ok || value != f.value
	case "in":
		return slices.Contains(f.values, value)
	case "nin":
		return !slices.Contains(f.values, value)
	case "nex":
		return !ok
	}
	return ok && f.matchesValue(value)
}

// matchesValue makes the comparisons that need a tag.
func (f *tagFilter) matchesValue(value string) bool {
	switch f.compare {
	case "ex":
		return true
	case "eq":
		return value == f.value
	case "sw":
		return strings.HasPrefix(value, f.value)
	case "ew":
		return strings.HasSuffix(value, f.value)
	case "ct":
		return strings.Contains(value, f.value)
	}
	n := decimal(value)
	if n == nil {
		return false
	}
	switch order := n.Cmp(f.number); f.compare {
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
func (f *tagFilter) selected(list []Publication) []Publication {
	if f == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(p Publication) bool { return !f.matches(p.Tags) })
}
