package natsbus

import (
	"testing"
)

// A seal is read as it was written, and a damaged one is none.
func TestSeal(t *testing.T) {
	dir := t.TempDir()
	var s seal
	s.open(dir, "log")
	if epoch, _, _, _ := s.read(); epoch != "" {
		t.Errorf("a new seal has the epoch %q", epoch)
	}
	for i := range uint64(300) {
		s.write("epoch", i*i*i, int64(i))
	}
	s.close()
	var again seal
	again.open(dir, "log")
	defer again.close()
	epoch, last, at, same := again.read()
	if epoch != "epoch" || last != 299*299*299 || at != 299 || same != (again.boot != "") {
		t.Errorf("read %q %d %d %v", epoch, last, at, same)
	}
	if _, err := again.file.WriteAt([]byte{1}, 7); err != nil {
		t.Fatal(err)
	}
	if epoch, _, _, _ := again.read(); epoch != "" {
		t.Errorf("a damaged seal has the epoch %q", epoch)
	}
	again.boot = "another"
	again.write("epoch", 1, 1)
	again.boot = "next"
	if _, _, _, same := again.read(); same {
		t.Error("after another boot, it is the same")
	}
}
