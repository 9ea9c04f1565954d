package policy

import (
	"strings"
	"testing"
	"time"
)

func TestNamespaceOf(t *testing.T) {
	rules := tableOf(t, Namespace{Name: "chat", Presence: true}, Namespace{HistorySize: 5})
	for channel, want := range map[string]string{
		"chat:1": "chat", "chat:": "chat", "chat:a:b": "chat", "chat": "", "news": "", "other:1": "", ":": "",
		"Chat:1": "", "a:chat:": "",
	} {
		if got := rules.Of(channel).Name; got != want {
			t.Errorf("%q is of namespace %q, want %q", channel, got, want)
		}
	}
	if ns := rules.Of("news"); ns.HistorySize != 5 || ns.HistoryAge != defaultAge || ns.Publish != PublishClients ||
		ns.Slow != SlowDisconnect {
		t.Errorf("the default namespace is %+v", ns)
	}
	none := tableOf(t)
	if ns := none.Of("chat:1"); *ns != (Namespace{}).withDefaults() {
		t.Errorf("without namespaces the rules are %+v", ns)
	}
}

func TestNamespaceErrors(t *testing.T) {
	for _, tt := range []struct {
		list   []Namespace
		tokens bool
		want   string
	}{
		{[]Namespace{{Name: "a:b"}}, true, `push: namespace "a:b": a name is 1 to 64 letters`},
		{[]Namespace{{Name: strings.Repeat("x", 65)}}, true, `a name is 1 to 64 letters`},
		{[]Namespace{{Name: "a"}, {Name: "a"}}, true, `the name is used twice`},
		{[]Namespace{{}, {}}, true, `the name is used twice`},
		{[]Namespace{{HistorySize: -1}}, true, `history size -1: use 0 to 65536`},
		{[]Namespace{{HistorySize: 65537}}, true, `history size 65537: use 0 to 65536`},
		{[]Namespace{{HistorySize: 1, HistoryAge: -time.Second}}, true, `history age -1s: use a positive one`},
		{[]Namespace{{Recovery: true}}, true, `recovery without history`},
		{[]Namespace{{SlowQueue: -1}}, true, `slow queue of -1 bytes`},
		{[]Namespace{{SlowQueue: 1 << 20}}, true, `slow queue without the policy that has one`},
		{[]Namespace{{SlowQueue: 1 << 20, Slow: SlowLatestOnly}}, true, `set slow to drop-oldest too`},
		{[]Namespace{{HistoryAge: time.Hour}}, true, `history age without history`},
		{[]Namespace{{PushJoinLeave: true}}, true, `without any: set join-leave too`},
		{[]Namespace{{Slow: "drop"}}, true, `slow "drop": use disconnect, drop-oldest or latest-only`},
		{[]Namespace{{Publish: "all"}}, true, `publish "all": use clients, subscribers, token or nobody`},
		{[]Namespace{{SubscribeToken: true}}, false, `set a token secret too`},
		{[]Namespace{{Publish: PublishToken}}, false, `set a token secret too`},
	} {
		if _, err := NewNamespaces(tt.list, tt.tokens); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.list, err, tt.want)
		}
	}
}

// tableOf returns a table of the namespaces.
func tableOf(t *testing.T, list ...Namespace) *Table {
	t.Helper()
	all, err := NewNamespaces(list, true)
	if err != nil {
		t.Fatal(err)
	}
	table := &Table{LongestName: 255}
	table.Set(all)
	return table
}
