package uring

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedEnv makes a process of TestRefused one whose filter answers io_uring_setup with the error
// of that number.
const refusedEnv = "MYRIAD_TEST_URING_REFUSED"

// Where the kernel or a sandbox refuses io_uring, Probe says so and how to change it.
func TestRefused(t *testing.T) {
	if text := os.Getenv(refusedEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		beRefused(t, unix.Errno(n))
		return
	}
	for _, tt := range []struct {
		errno unix.Errno
		says  string
	}{
		{unix.ENOSYS, "the kernel has no io_uring"},
		{unix.EPERM, "kernel.io_uring_disabled"},
		{unix.EINVAL, "older than Linux 6.1"},
		{unix.ENOMEM, "ulimit -l"},
		{unix.EMFILE, "ulimit -n"},
		{unix.EFAULT, "the kernel refuses it"},
	} {
		t.Run(tt.errno.Error(), func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^TestRefused$", "-test.v")
			c.Env = append(os.Environ(), refusedEnv+"="+strconv.Itoa(int(tt.errno)))
			out, err := c.CombinedOutput()
			if text := string(out); err != nil || !strings.Contains(text, tt.says) {
				t.Errorf("%v, without %q:\n%s", err, tt.says, text)
			}
		})
	}
}

// beRefused installs the filter for all threads of the process, for good.
func beRefused(t *testing.T, errno unix.Errno) {
	filter := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_IO_URING_SETUP, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // the filter of one thread is that of all
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program))); e != 0 {
		t.Fatal(e)
	}
	err := Probe()
	if !errors.Is(err, errno) {
		t.Errorf("Probe: %v, want %v", err, errno)
	}
	t.Log(err)
}
