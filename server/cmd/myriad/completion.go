package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"
)

// scripts generate each shell's completion of commands, flags and values. They are self-contained:
// completion runs no program, and needs only the shell. The CLI library's scripts are not used:
// they run the program at each Tab. Its script for bash needs the package bash-completion, and
// passes the typed words to eval, which runs a $(command) that the user has not entered yet.
var scripts = map[string]func(commands []*cli.Command) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}

// choices are the values of flags that accept only a few.
var choices = map[string]string{"log-format": "text json", "log-level": "debug info warn error"}

func completionCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a script that completes commands, flags and values: bash, zsh, fish",
		ArgsUsage: "bash|zsh|fish",
		HideHelp:  true, // else the library would search the help for an unknown shell
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help"}},
		Description: "bash  source <(myriad completion bash)   in ~/.bashrc\nzsh   source <(myriad completion zsh)  " +
			"  in ~/.zshrc, below compinit\nfish  myriad completion fish > ~/.config/fish/completions/myriad.fish",
		Action: func(_ context.Context, c *cli.Command) error {
			script, ok := scripts[c.Args().First()]
			switch {
			case !c.Args().Present() || c.Bool("help"):
				return cli.ShowSubcommandHelp(c)
			case !ok || c.Args().Len() > 1:
				return fmt.Errorf("completion takes bash, zsh or fish, not %q",
					strings.Join(c.Args().Slice(), " "))
			}
			_, err := io.WriteString(stdout, script(c.Root().VisibleCommands()))
			return err
		},
	}
}

// A completed is a flag as the scripts need it.
type completed struct {
	name, usage string
	value       string // the name of its value in the usage; empty for a switch
	choices     string
	repeatable  bool
}

func (f completed) isFile() bool { return f.value == "FILE" }

var inBackquotes = regexp.MustCompile("`([^`]*)`")

func completedFlags(c *cli.Command) (list []completed) {
	for _, flag := range c.VisibleFlags() {
		documented, ok := flag.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		f := completed{name: flag.Names()[0], usage: strings.ReplaceAll(documented.GetUsage(), "`", "")}
		f.choices = choices[f.name]
		_, f.repeatable = flag.(*cli.StringSliceFlag)
		if documented.TakesValue() {
			f.value = "VALUE"
			if found := inBackquotes.FindStringSubmatch(documented.GetUsage()); found != nil {
				f.value = found[1]
			}
		}
		list = append(list, f)
	}
	return list
}

// wordsOf returns the words that may follow the command besides flags.
func wordsOf(c *cli.Command) string {
	switch c.Name {
	case "completion":
		return "bash zsh fish"
	case "init":
		return "serve"
	}
	return ""
}

// quoted quotes text as one word for all three shells.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func bashScript(commands []*cli.Command) string {
	var names, cases strings.Builder
	for _, c := range commands {
		names.WriteString(c.Name + " ")
		words := wordsOf(c)
		var free []string // flags whose values bash completes as file names
		for _, f := range completedFlags(c) {
			words += " --" + f.name
			switch {
			case f.choices != "":
				fmt.Fprintf(&cases, "\t%s:--%s) words=%s ;;\n", c.Name, f.name, quoted(f.choices))
			case f.value != "":
				free = append(free, c.Name+":--"+f.name)
			}
		}
		if free != nil {
			fmt.Fprintf(&cases, "\t%s) return ;;\n", strings.Join(free, "|"))
		}
		fmt.Fprintf(&cases, "\t%s:*) words=%s ;;\n", c.Name, quoted(strings.TrimSpace(words)))
	}
	return fmt.Sprintf(`# Completes myriad in bash. In ~/.bashrc: source <(myriad completion bash)
_myriad() {
	local word=$2 before=$3 words=%s
	if [[ $word == = ]]; then
		word=
	elif [[ $before == = ]]; then
		before=${COMP_WORDS[COMP_CWORD-2]}
	fi
	(( COMP_CWORD == 1 )) || case ${COMP_WORDS[1]}:$before in
%s	esac
	COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _myriad myriad
`, quoted(strings.TrimSpace(names.String())), cases.String())
}

func zshScript(commands []*cli.Command) string {
	var names, cases strings.Builder
	escape := strings.NewReplacer(":", `\:`, "[", `\[`, "]", `\]`).Replace
	for _, c := range commands {
		names.WriteString("\t\t" + quoted(c.Name+":"+c.Usage) + "\n")
		fmt.Fprintf(&cases, "\t%s) _arguments", c.Name)
		if words := wordsOf(c); words != "" {
			fmt.Fprintf(&cases, " \\\n\t\t'1:word:(%s)'", words)
		}
		for _, f := range completedFlags(c) {
			spec := "--" + f.name
			switch {
			case f.value == "":
				spec += "[" + escape(f.usage) + "]"
			case f.choices != "":
				spec += "=[" + escape(f.usage) + "]:" + f.value + ":(" + f.choices + ")"
			case f.isFile():
				spec += "=[" + escape(f.usage) + "]:" + f.value + ":_files"
			default:
				spec += "=[" + escape(f.usage) + "]:" + escape(f.value) + ": "
			}
			if f.repeatable {
				spec = "*" + spec
			}
			cases.WriteString(" \\\n\t\t" + quoted(spec))
		}
		cases.WriteString(" ;;\n")
	}
	return fmt.Sprintf(`#compdef myriad
# Completes myriad in zsh. In ~/.zshrc, below compinit: source <(myriad completion zsh)
_myriad() {
	local -a subcommands=(
%s	)
	if (( CURRENT == 2 )); then
		_describe command subcommands
		return
	fi
	shift words
	(( CURRENT-- ))
	case $words[1] in
%s	esac
}
if [[ $funcstack[1] == _myriad ]]; then
	_myriad "$@"
else
	compdef _myriad myriad
fi
`, names.String(), cases.String())
}

func fishScript(commands []*cli.Command) string {
	var b strings.Builder
	b.WriteString("# Completes myriad in fish. Once: myriad completion fish > " +
		"~/.config/fish/completions/myriad.fish\ncomplete -c myriad -f\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "complete -c myriad -n __fish_use_subcommand -a %s -d %s\n", c.Name, quoted(c.Usage))
		after := fmt.Sprintf("complete -c myriad -n '__fish_seen_subcommand_from %s'", c.Name)
		if words := wordsOf(c); words != "" {
			fmt.Fprintf(&b, "%s -a %s\n", after, quoted(words))
		}
		for _, f := range completedFlags(c) {
			kind := "" // a switch
			switch {
			case f.choices != "":
				kind = " -x -a " + quoted(f.choices)
			case f.isFile():
				kind = " -r -F"
			case f.value != "":
				kind = " -x"
			}
			fmt.Fprintf(&b, "%s -l %s%s -d %s\n", after, f.name, kind, quoted(f.usage))
		}
	}
	return b.String()
}
