package buf

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if n := InUse(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "buf: %d blocks in use after all tests\n", n)
		code = 1
	}
	os.Exit(code)
}
