package mercure

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The expansions of RFC 6570 §1.2 and §3.2 match their templates.
func TestTemplatesOfTheRFC(t *testing.T) {
	for _, tt := range []struct {
		template string
		topics   []string
	}{
		{"{var}", []string{"value", "", "Hello%20World%21"}},
		{"map?{x,y}", []string{"map?1024,768", "map?1024", "map?"}},
		{"{x,hello,y}", []string{"1024,Hello%20World%21,768"}},
		{"{var:3}", []string{"val", "va", "%20%211"}},
		{"{var:30}", []string{"value"}},
		{"{list}", []string{"red,green,blue"}},
		{"{list*}", []string{"red,green,blue"}},
		{"{keys*}", []string{"semi=%3B,dot=.,comma=%2C"}},
		{"{+var}", []string{"value", "Hello%20World!"}},
		{"{+base}index", []string{"http://example.com/home/index"}},
		{"here?ref={+path}", []string{"here?ref=/foo/bar"}},
		{"up{+path}{var}/here", []string{"up/foo/barvalue/here"}},
		{"{+x,hello,y}", []string{"1024,Hello%20World!,768"}},
		{"{+path:6}/here", []string{"/foo/b/here"}},
		{"{+keys*}", []string{"semi=;,dot=.,comma=,"}},
		{"{#x,hello,y}", []string{"#1024,Hello%20World!,768", ""}},
		{"{#path:6}here", []string{"#/foo/bhere"}},
		{"{.who,who}", []string{".fred.fred"}},
		{"X{.list*}", []string{"X.red.green.blue", "X"}},
		{"X{.keys*}", []string{"X.semi=%3B.dot=..comma=%2C"}},
		{"{/var,x}/here", []string{"/value/1024/here", "/value/here", "/here"}},
		{"{/list*,path:4}", []string{"/red/green/blue/%2Ffoo"}},
		{"{;x,y,empty}", []string{";x=1024;y=768;empty", ";x=1024;y=768", ""}},
		{"{;hello:5}", []string{";hello=Hello"}},
		{"{;keys*}", []string{";semi=%3B;dot=.;comma=%2C"}},
		{"{?x,y,empty}", []string{"?x=1024&y=768&empty=", "?y=768", ""}},
		{"{?list*}", []string{"?list=red&list=green&list=blue"}},
		{"{?keys*}", []string{"?semi=%3B&dot=.&comma=%2C"}},
		{"?fixed=yes{&x}", []string{"?fixed=yes&x=1024", "?fixed=yes"}},
		{"{&x,y,empty}", []string{"&x=1024&y=768&empty="}},
		{"https://example.com/books/{id}", []string{"https://example.com/books/1", "https://example.com/books/"}},
		{"https://example.com/users/7/{?topic}", []string{"https://example.com/users/7/?topic=https%3A%2F%2Fa%2Fb"}},
		{"/.well-known/mercure/subscriptions{/topic}{/subscriber}", []string{"/.well-known/mercure/subscriptions",
			"/.well-known/mercure/subscriptions/a%2Fb/urn%3Auuid%3A0"}},
	} {
		s, err := Compile(tt.template)
		if err != nil || s.template == nil {
			t.Errorf("%s: %v, %v", tt.template, s, err)
			continue
		}
		for _, topic := range tt.topics {
			if !s.Matches(topic) {
				t.Errorf("%s does not match %q", tt.template, topic)
			}
		}
	}
}

func TestSelectorsThatDoNotMatch(t *testing.T) {
	for _, tt := range []struct{ selector, topic string }{
		{"https://example.com/books/{id}", "https://example.com/books/1/secret"},
		{"https://example.com/books/{id}", "https://example.com/users/1"},
		{"https://example.com/books/{id}", "xhttps://example.com/books/1"},
		{"https://example.com/books/{id}.json", "https://example.com/books/1.jsonx"},
		{"/users/{id:2}", "/users/123"},
		{"{;x}", ";y=1"},
		{"{?x}", "?x"},
		{"{x}", "a b"},
		{"{/x}", "/a/b"},
		{"news", "new"},
		{"news", "newss"},
		{"a{", "ab"},     // no templates: they match themselves only
		{"a}b", "ab"},    //
		{"{}", "x"},      //
		{"{a b}", "x"},   //
		{"{=a}", "x"},    // RFC 6570 §2.2 reserves the operator
		{"{a:0}", "x"},   //
		{"{a:2*}", "x"},  //
		{"{.}", ".x"},    //
		{"**", "x"},      //
		{"{a{b}}", "xy"}, //
	} {
		s, err := Compile(tt.selector)
		if err != nil {
			t.Errorf("%s: %v", tt.selector, err)
		} else if s.Matches(tt.topic) || !s.Matches(tt.selector) {
			t.Errorf("%s: matches %q: %v, itself: %v", tt.selector, tt.topic, s.Matches(tt.topic),
				s.Matches(tt.selector))
		}
	}
	if s, err := Compile("*"); err != nil || !s.Matches("anything at all") {
		t.Errorf("* does not match: %v", err)
	}
}

// Selectors that would cost too much are refused, and the costliest ones that are not take bounded
// steps.
func TestSelectorsAreBounded(t *testing.T) {
	for _, text := range []string{"", "a\nb", "a\x00", "\xff", strings.Repeat("x", MaxTopic+1), strings.Repeat("{+a}",
		200),
		"{a:9999}", "{a}" + strings.Repeat("x", maxProgram), "{a,b,c:100}" + strings.Repeat("{?x*}", 20)} {
		if s, err := Compile(text); err == nil {
			t.Errorf("%.20q was accepted, with %d steps", text, len(s.template.code))
		}
	}
	s, err := Compile(strings.Repeat("{+a*}", 50) + "!")
	if err != nil {
		s, err = Compile(strings.Repeat("{+a*}", 20) + "!")
	}
	if err != nil || len(s.template.code) > maxProgram+1 {
		t.Fatalf("%v, %v", s, err)
	}
	if s.Matches(strings.Repeat("a", MaxTopic)) {
		t.Error("it matches without its last character")
	}
}

func FuzzCompile(f *testing.F) {
	for _, text := range []string{"{a}", "{+a,b*}x{?c:3}", "{#a}", "a{", "{;x,y}/{z}"} {
		f.Add(text, "a,b")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		s, err := Compile(text)
		if err != nil {
			return
		}
		if s.template != nil && len(s.template.code) > maxProgram+1 {
			t.Errorf("%q has %d steps", text, len(s.template.code))
		}
		s.Matches(value)
		// what a plain variable expands to matches
		if strings.ContainsFunc(value, func(r rune) bool { return r >= 0x80 || !unreserved.has(byte(r)) }) {
			return
		}
		if s, err := Compile("x/{v}/y" + strings.Repeat("{v}", 3)); err != nil || !s.Matches("x/"+value+"/y"+
			strings.Repeat(value, 3)) {
			t.Errorf("%q: %v", value, err)
		}
	})
}

func interest(t *testing.T, topics, allowed []string) (want Interest) {
	t.Helper()
	for _, part := range []struct {
		texts []string
		to    *[]Selector
	}{{topics, &want.Topics}, {allowed, &want.Allowed}} {
		for _, text := range part.texts {
			s, err := Compile(text)
			if err != nil {
				t.Fatal(err)
			}
			*part.to = append(*part.to, s)
		}
	}
	return want
}

// The router selects the subscribers that a comparison with each one's selectors selects.
func TestRouterSelects(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"*", "a", "b", "a/{x}", "a/{x}/{y}", "{z}", "c{?q}", "a/1"}
	topics := []string{"a", "b", "a/1", "a/1/2", "c", "c?q=1", "other"}
	some := func(list []string, least int) (out []string) {
		for range least + random.IntN(3) {
			out = append(out, list[random.IntN(len(list))])
		}
		return out
	}
	var r Router[int]
	all := make(map[int]Interest)
	for i := range 3000 {
		s := random.IntN(60)
		if _, in := all[s]; in {
			r.Leave(s)
			delete(all, s)
		} else {
			all[s] = interest(t, some(texts, 1), some(texts, 0))
			if err := r.Join(s, all[s]); err != nil {
				t.Fatal(err)
			}
		}
		update, private := some(topics, 1), random.IntN(2) == 0
		var want []int
		for s, i := range all {
			if i.Has(Update{Topics: update, Private: private}) {
				want = append(want, s)
			}
		}
		got := r.Select(update, private, nil)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("step %d, %q private %v: %v, want %v", i, update, private, got, want)
		}
	}
	for s := range all {
		r.Leave(s)
	}
	r.Leave(7)
	if len(r.groups)+len(r.selectors)+len(r.templates)+len(r.lengths)+len(r.All()) != 0 {
		t.Errorf("the empty router holds %d groups, %d selectors, %d templates, %d lengths", len(r.groups),
			len(r.selectors), len(r.templates), len(r.lengths))
	}
}

// Templates that begin alike are bounded; others are not.
func TestRouterIsBounded(t *testing.T) {
	var r Router[int]
	for i := range MaxAlike {
		if err := r.Join(i, interest(t, []string{fmt.Sprintf("a/{x}/%d", i)}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Join(-1, interest(t, []string{"a/{y}"}, nil)); err != ErrTooMany {
		t.Errorf("one more: %v", err)
	}
	for i := range 1000 {
		if err := r.Join(1000+i, interest(t, []string{fmt.Sprintf("user/%d/{x}", i), "a/{x}/3"}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	r.Leave(0)
	if err := r.Join(-1, interest(t, []string{"a/{y}"}, nil)); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}

func TestUpdates(t *testing.T) {
	u, err := ParseUpdate(map[string][]string{"topic": {"a", "b"}, "data": {"one\ntwo\r\nthree\rfour\n"}, "id": {"7"},
		"type": {"t"}, "retry": {"10"}, "private": {""}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "event: t\nretry: 10\nid: 7\ndata: one\ndata: two\ndata: three\ndata: four\ndata: \n\n"
	if got := string(u.AppendEvent(nil)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := FromTags(u.Tags(), u.Data); fmt.Sprint(got) != fmt.Sprint(u) {
		t.Errorf("%v, want %v", got, u)
	}
	for _, form := range []map[string][]string{{}, {"topic": {""}}, {"topic": {"a\nb"}}, {"topic": {"a"},
		"id": {"1\ndata: x"}},
		{"topic": {"a"}, "type": {"x\r"}}, {"topic": {"a"}, "id": {"#1"}}, {"topic": {"a"}, "retry": {"-1"}},
		{"topic": {"a"}, "data": {"\xff"}}, {"topic": slices.Repeat([]string{"a"}, MaxTopics+1)}} {
		if u, err := ParseUpdate(form); err == nil {
			t.Errorf("%v was accepted: %v", form, u)
		}
	}
}

func TestEventIDs(t *testing.T) {
	for _, offset := range []uint64{0, 1, 1 << 40, 1<<62 - 1} {
		id := EventID("epoch", offset)
		if got, ok := ParseEventID(id, "epoch"); !ok || got != offset {
			t.Errorf("%s: %d, %v; want %d", id, got, ok, offset)
		}
		if _, ok := ParseEventID(id, "another"); ok {
			t.Errorf("%s is of another epoch", id)
		}
	}
	for _, id := range []string{"", "urn:uuid:", "urn:uuid:00000000-0000-0000-0000-000000000000", "epoch:1",
		Earliest} {
		if _, ok := ParseEventID(id, "epoch"); ok {
			t.Errorf("%q was parsed", id)
		}
	}
}

// An update for one of many users costs the same, however many there are.
func BenchmarkSelect(b *testing.B) {
	var r Router[int]
	for i := range 15_000 {
		one, err := Compile(fmt.Sprintf("https://example.com/users/%d/{?topic}", i))
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Join(i, Interest{Topics: []Selector{one}, Allowed: []Selector{one}}); err != nil {
			b.Fatal(err)
		}
	}
	var to []int
	for b.Loop() {
		to = r.Select([]string{"https://example.com/users/777/?topic=a"}, true, to[:0])
	}
	if len(to) != 1 {
		b.Fatal(to)
	}
}
