package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	// BurntSushi/toml is maintained and complete, and has no dependencies.
	"github.com/BurntSushi/toml"
	"github.com/myriad-go/myriad/server/push"
)

// centrifugoHelp ends errors about a file that may have been written for Centrifugo.
const centrifugoHelp = "; docs/guides/from-centrifugo.md has the names for options of Centrifugo"

// A configFile is the TOML file of --config. Its keys are the options' names; each namespace is a
// [[namespace]].
type configFile struct {
	name   string
	mode   os.FileMode
	values map[string]any // by option name
}

// readConfiguration reads the file of that name, or none if name is empty. Besides an error it
// returns the valid part of the file.
func readConfiguration(name string) (f configFile, err error) {
	if name == "" {
		return f, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return f, fmt.Errorf("--config: %w", err)
	}
	f = configFile{name: name, mode: info.Mode()}
	if _, err := toml.DecodeFile(name, &f.values); err != nil {
		f.values = nil
		if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name)) {
			return f, fmt.Errorf("--config %s: %w: the file must be TOML: write name = value lines, as in "+
				"docs/guides/operate.md"+centrifugoHelp, name, err)
		}
		return f, fmt.Errorf("--config %s: %w", name, err)
	}
	known := map[string]bool{}
	var names []string
	for _, o := range options {
		known[o.name] = true
		names = append(names, o.name)
	}
	var wrong []error
	for _, key := range sortedKeys(f.values) {
		if !known[key] {
			help := ": see myriad serve --help"
			if _, section := f.values[key].(map[string]any); section {
				help += centrifugoHelp
			}
			wrong = append(wrong, fmt.Errorf("%s has the unknown key %q%s", name, key,
				cmp.Or(didYouMean(key, names), help)))
			delete(f.values, key)
		}
	}
	return f, errors.Join(wrong...)
}

// namespaces returns the namespaces of [[namespace]] tables, or of a list of strings as in the
// flag.
func (f configFile) namespaces() (list []push.Namespace, err error) {
	var wrong []error
	switch given := f.values["namespace"].(type) {
	case []map[string]any:
		for i, one := range given {
			ns, err := namespaceOf(one)
			prefix := fmt.Sprintf("[[namespace]] %d in %s: ", i+1, f.name)
			list, wrong = append(list, ns), append(wrong, eachLine(prefix, err))
		}
	case []any:
		for i, one := range given {
			text, _ := one.(string)
			ns, err := parseNamespace(text)
			prefix := fmt.Sprintf("namespace %d in %s: ", i+1, f.name)
			list, wrong = append(list, ns), append(wrong, eachLine(prefix, err))
		}
	default:
		return nil, fmt.Errorf("namespace in %s is neither a list nor [[namespace]]", f.name)
	}
	return list, errors.Join(wrong...)
}

// exposesSecrets reports whether the file holds keys and every user of this machine may read it.
func (f configFile) exposesSecrets() bool {
	const others = 0o004
	for _, name := range []string{"api-key", "console-key", "token-secret", "mercure-publisher-secret",
		"cluster-secret"} {
		if _, ok := f.values[name]; ok && f.mode&others != 0 {
			return true
		}
	}
	return false
}

// textsOf returns a value of the file in the notation of a flag: one text, or one for each element
// of a list.
func textsOf(value any) ([]string, error) {
	switch value := value.(type) {
	case string:
		return []string{value}, nil
	case bool:
		return []string{strconv.FormatBool(value)}, nil
	case int64:
		return []string{strconv.FormatInt(value, 10)}, nil
	case []any:
		var all []string
		for _, one := range value {
			text, ok := one.(string)
			if !ok {
				return nil, errors.New("write a list of strings")
			}
			all = append(all, text)
		}
		return all, nil
	}
	return nil, errors.New("write a string, a whole number, true or false")
}
