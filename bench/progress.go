package main

import (
	"io"
	"os"

	// schollz/progressbar: maintained, small, and silent where it should be.
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress shows how far a run is.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress is a bar on a terminal, and nothing anywhere else.
func newProgress(w io.Writer, turns int) progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progress{progressbar.DefaultSilent(int64(turns))}
	}
	return progress{progressbar.NewOptions(turns,
		progressbar.OptionSetWriter(w), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth(),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true),
	)}
}

func (p progress) say(what string)   { p.bar.Describe(what) }
func (p progress) advance(turns int) { _ = p.bar.Add(turns) }
func (p progress) clear()            { _ = p.bar.Clear() }
func (p progress) finish()           { _ = p.bar.Finish() }
