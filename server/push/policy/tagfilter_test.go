package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

func TestTagFilters(t *testing.T) {
	tags := map[string]string{"team": "eng", "n": "10", "empty": ""}
	for text, want := range map[string]bool{
		`{"key":"team","cmp":"eq","val":"eng"}`:                                      true,
		`{"key":"team","cmp":"eq","val":"x"}`:                                        false,
		`{"key":"none","cmp":"eq","val":"x"}`:                                        false,
		`{"key":"none","cmp":"neq","val":"x"}`:                                       true,
		`{"key":"team","cmp":"in","vals":["a","eng"]}`:                               true,
		`{"key":"team","cmp":"nin","vals":["a","eng"]}`:                              false,
		`{"key":"team","cmp":"ex"}`:                                                  true,
		`{"key":"none","cmp":"ex"}`:                                                  false,
		`{"key":"none","cmp":"nex"}`:                                                 true,
		`{"key":"team","cmp":"sw","val":"en"}`:                                       true,
		`{"key":"team","cmp":"ew","val":"ng"}`:                                       true,
		`{"key":"team","cmp":"ct","val":"n"}`:                                        true,
		`{"key":"team","cmp":"ct","val":"x"}`:                                        false,
		`{"key":"n","cmp":"gt","val":"9"}`:                                           true,
		`{"key":"n","cmp":"gt","val":"10.0"}`:                                        false,
		`{"key":"n","cmp":"gte","val":"10.0"}`:                                       true,
		`{"key":"n","cmp":"lt","val":"10.00000000000000001"}`:                        true,
		`{"key":"n","cmp":"lte","val":"-1"}`:                                         false,
		`{"key":"team","cmp":"lt","val":"1"}`:                                        false,
		`{"op":"not","nodes":[{"key":"team","cmp":"ex"}]}`:                           false,
		`{"op":"and","nodes":[{"key":"team","cmp":"ex"},{"key":"none","cmp":"ex"}]}`: false,
		`{"op":"or","nodes":[{"key":"none","cmp":"ex"},{"key":"n","cmp":"ex"}]}`:     true,
	} {
		f, err := filterIn(t, text)
		if err != nil || f.matches(tags) != want {
			t.Errorf("%s: %v, want %v; %v", text, !want, want, err)
		}
	}
	for _, text := range []string{`{}`, `{"op":"xor"}`, `{"op":"and"}`, `{"op":"not","nodes":[]}`,
		`{"cmp":"eq","val":"x"}`,
		`{"key":"a","cmp":"eq"}`, `{"key":"a","cmp":"in"}`, `{"key":"a","cmp":"lt","val":"1e9"}`,
		`{"key":"a","cmp":"lt","val":"x"}`, `{"key":"a","cmp":"ex","val":"x"}`, `{"op":"and","nodes":[null]}`,
		`{"key":"a","cmp":"lt","val":"1/2"}`, `{"key":"a","cmp":"gt","val":"` + strings.Repeat("9", 65) + `"}`} {
		if _, err := filterIn(t, text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func filterIn(t *testing.T, text string) (*TagFilter, error) {
	t.Helper()
	var node centrifuge.FilterNode
	if err := json.Unmarshal([]byte(text), &node); err != nil {
		t.Fatal(err)
	}
	return filterOf(&node, new(FilterSize), 1)
}

// filterOf converts a filter, as a door does.
func filterOf(node *centrifuge.FilterNode, size *FilterSize, depth int) (*TagFilter, error) {
	if node == nil {
		return nil, answer.ErrBadRequest
	}
	if err := size.Grow(depth, len(node.Values)); err != nil {
		return nil, err
	}
	f := &TagFilter{Op: node.Op, Key: node.Key, Compare: node.Compare, Value: node.Value, Values: node.Values}
	for _, child := range node.Nodes {
		one, err := filterOf(child, size, depth+1)
		if err != nil {
			return nil, err
		}
		f.Nodes = append(f.Nodes, one)
	}
	return f, f.Prepare()
}
