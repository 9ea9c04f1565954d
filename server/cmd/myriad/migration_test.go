package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// firstCells returns the names in the first cells of the tables under a heading of a guide. A name
// without a dot is of the section of the name before it in the same cell.
func firstCells(t *testing.T, guide, heading string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs/guides", guide))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", guide, heading)
	}
	section, _, _ := strings.Cut(after, "\n#")
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(section) {
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !row || !strings.HasPrefix(line, "|") {
			continue
		}
		parent := ""
		for _, q := range quoted.FindAllStringSubmatch(cell, -1) {
			name := q[1]
			if dot := strings.LastIndex(name, "."); dot >= 0 && !strings.HasPrefix(parent, "proxies.") {
				parent = name[:dot+1]
			} else {
				name = parent + name
			}
			names = append(names, name)
		}
	}
	return names
}

// missing returns the wanted names that are not among the given ones, and whose section is not
// either.
func missing(want, given []string) (rest []string) {
	for _, name := range want {
		if !slices.ContainsFunc(given, func(g string) bool { return name == g || strings.HasPrefix(name, g+".") }) {
			rest = append(rest, name)
		}
	}
	return rest
}

// docs/guides/from-centrifugo.md has a row for each option of Centrifugo 6.9.1. The list is of its
// configuration's structures; sections that repeat, such as the fields of Redis, are one line.
func TestGuideHasEveryOptionOfCentrifugo(t *testing.T) {
	text, err := os.ReadFile("testdata/centrifugo-options.txt")
	if err != nil {
		t.Fatal(err)
	}
	var options, rules []string
	for _, name := range strings.Fields(string(text)) {
		if rule, ok := strings.CutPrefix(name, "namespace."); ok {
			rules = append(rules, rule)
		} else {
			options = append(options, name)
		}
	}
	if len(options) < 200 || len(rules) < 40 {
		t.Fatalf("the list has %d options and %d rules", len(options), len(rules))
	}
	given := firstCells(t, "from-centrifugo.md", "## Options")
	if rest := missing(options, given); rest != nil {
		t.Errorf("the guide has no row for %s", strings.Join(rest, ", "))
	}
	for _, name := range given {
		if !slices.ContainsFunc(options, func(o string) bool { return o == name || strings.HasPrefix(o, name+".") }) {
			t.Errorf("the guide has a row for %s, which Centrifugo does not have", name)
		}
	}
	of := firstCells(t, "from-centrifugo.md", "### Options of a namespace")
	if rest := missing(rules, of); rest != nil {
		t.Errorf("the guide has no row for the options %s of a namespace", strings.Join(rest, ", "))
	}
	if rest := missing(of, rules); rest != nil {
		t.Errorf("the guide has rows for %s, which Centrifugo does not have", strings.Join(rest, ", "))
	}
}

// The guides have rows for each method of Centrifugo's API and for each directive of Mercure's hub.
func TestGuidesHaveEveryMethodAndDirective(t *testing.T) {
	for _, tt := range []struct{ guide, heading, want string }{
		{"from-centrifugo.md", "## HTTP API", `batch publish broadcast subscribe unsubscribe disconnect presence
			presence_stats history history_remove info rpc refresh channels connections update_user_status
			get_user_status delete_user_status block_user unblock_user revoke_token invalidate_user_tokens
			device_register device_update device_remove device_list device_topic_list device_topic_update
			user_topic_list user_topic_update send_push_notification update_push_status cancel_push map_publish
			map_remove map_read_state map_read_stream map_stats map_clear shared_poll_publish`},
		{"from-mercure.md", "## Options", `issuer resource_identifier public_urls anonymous publish_origins
			cors_origins cookie_name protocol_version_compatibility subscriptions heartbeat max_request_body_size
			transport dispatch_timeout write_timeout topic_matcher_cache subscriber_list_cache_size debugger
			playground name transport_url publisher_jwt subscriber_jwt publisher_jwks_url subscriber_jwks_url
			path bucket_name cleanup_frequency size authorization_server publisher subscriber jwt jwks_uri`},
	} {
		if rest := missing(strings.Fields(tt.want), firstCells(t, tt.guide, tt.heading)); rest != nil {
			t.Errorf("%s has no row for %s", tt.guide, strings.Join(rest, ", "))
		}
	}
}
