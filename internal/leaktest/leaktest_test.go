package leaktest

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestLeftover(t *testing.T) {
	none := OpenFiles()
	base := leftover(none, nil) // the goroutine that runs the tests waits for this one
	if base != "" && !strings.Contains(base, "testing.") {
		t.Fatalf("at the start: %s", base)
	}
	left := 0
	blocks := Count{"blocks", func() int { return left }}
	left = 3
	if got := leftover(none, []Count{blocks}); got != "3 blocks" {
		t.Errorf("with three blocks: %q", got)
	}
	left = 0
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // goroutines of other tests may be ending
		got, want := leftover(none, []Count{blocks}), leftover(none, nil)
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("with none: %q, want %q", got, want)
		}
	}
}

func TestLeftoverSeesGoroutines(t *testing.T) {
	stop := make(chan struct{})
	ended := make(chan struct{})
	started := make(chan struct{})
	go func() { close(started); <-stop; close(ended) }()
	<-started
	if got := Goroutines(); !strings.Contains(got, "TestLeftoverSeesGoroutines.func") {
		t.Errorf("the waiting goroutine is not in %q", got)
	}
	close(stop)
	<-ended
}

func TestLeftoverSeesFiles(t *testing.T) {
	files := OpenFiles()
	if files == 0 {
		t.Skip("descriptors cannot be counted here")
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := leftover(files, nil); !strings.Contains(got, "descriptors") {
		t.Errorf("with an open file: %q", got)
	}
}

func TestReportWaitsForWhatIsEnding(t *testing.T) {
	asked := 0
	var out strings.Builder
	code := report(&out, patience, func() string {
		if asked++; asked < 3 {
			return "something"
		}
		return ""
	})
	if code != 0 || out.Len() != 0 {
		t.Errorf("exit code %d, said %q", code, &out)
	}
}

// A check that is held up until patience has ended looks once more before it reports.
func TestReportLooksBeforeItGivesUp(t *testing.T) {
	var out strings.Builder
	if code := report(&out, 0, func() string { return "" }); code != 0 || out.Len() != 0 {
		t.Errorf("with nothing left: exit code %d, said %q", code, &out)
	}
	if code := report(&out, 0, func() string { return "3 blocks" }); code != 1 ||
		!strings.Contains(out.String(), "3 blocks") {
		t.Errorf("with blocks left: exit code %d, said %q", code, &out)
	}
}
