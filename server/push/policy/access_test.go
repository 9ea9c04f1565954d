package policy

import (
	"fmt"
	"testing"
)

func TestRegexesAreBounded(t *testing.T) {
	var cache RegexCache
	for i := range maxCachedRegexes + 10 {
		if re, err := cache.compile(fmt.Sprintf("^%d$", i)); err != nil || !re.MatchString(fmt.Sprint(i)) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if len(cache.made) != maxCachedRegexes {
		t.Errorf("%d expressions are cached", len(cache.made))
	}
}
