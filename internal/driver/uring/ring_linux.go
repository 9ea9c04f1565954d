package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is the memory that is shared with the kernel, and the three system calls of io_uring.
// All of the package's unsafe is here; docs/adr/0039 defends it. Names are those of
// <linux/io_uring.h>.

// A sqe is an entry of the submission queue: one operation.
type sqe struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	_        uint64
	addr     uint64
	len      uint32
	opFlags  uint32 // msg_flags, poll32_events, cancel_flags
	userData uint64
	bufGroup uint16
	_        uint16
	optlen   uint32
	_        [2]uint64
}

// A cqe is an entry of the completion queue: what an operation has come to.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

const (
	opSendmsg     = 9
	opPollAdd     = 6
	opAsyncCancel = 14
	opSend        = 26
	opRecv        = 27

	sqeBufferSelect = 1 << 5

	pollAddMulti    = 1 << 0
	recvMultishot   = 1 << 1
	cancelAll       = 1 << 0
	cancelAny       = 1 << 2
	cqeBuffer       = 1 << 0
	cqeMore         = 1 << 1
	cqeBufferShift  = 16
	sqCQOverflow    = 1 << 1
	sqTaskrun       = 1 << 2
	enterGetevents  = 1 << 0
	enterExtArg     = 1 << 3
	enterRegistered = 1 << 4
	enterNoIowait   = 1 << 7
	featNoIowait    = 1 << 17

	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupRDisabled    = 1 << 6
	setupSubmitAll    = 1 << 7
	setupTaskrunFlag  = 1 << 9
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupNoSQArray    = 1 << 16

	registerEnableRings = 12
	registerRingFDs     = 20
	unregisterRingFDs   = 21
	registerPbufRing    = 22
	offSQRing           = 0
	offSQEs             = 0x10000000
	theGroup            = 0 // of provided buffers: a ring has one

	// needed is what Linux 6.1 has. One thread enters the ring, and operations are completed in its
	// calls alone: without that, io_uring costs more than epoll.
	needed = setupCQSize | setupClamp | setupRDisabled | setupSubmitAll | setupTaskrunFlag | setupSingleIssuer |
		setupDeferTaskrun
)

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
	_                                                           uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
	_                                                           uint64
}

// geteventsArg is struct io_uring_getevents_arg.
type geteventsArg struct {
	sigmask   uint64
	sigmaskSZ uint32
	minWait   uint32
	ts        uint64
}

// timespec is struct __kernel_timespec, which is the same on all machines.
type timespec struct{ sec, nsec int64 }

// A ring is one io_uring. It belongs to the thread that enables it.
type ring struct {
	fd         int
	registered int // the number of fd among those of the thread; -1: it has none
	features   uint32
	queues     []byte // mapped
	entries    []byte // mapped: sqes
	sqHead     *uint32
	sqTail     *uint32
	sqFlags    *uint32
	sqMask     uint32
	sqes       []sqe
	tail       uint32 // of the entries that are written; the kernel is told before it is entered
	cqHead     *uint32
	cqTail     *uint32
	cqMask     uint32
	cqes       []cqe
	until      *deadline
	order      order
}

// A deadline is how long the kernel waits. The kernel reads it during the call.
type deadline struct {
	arg geteventsArg
	ts  timespec
}

// newRing makes a ring that is not enabled.
func newRing(entries, completions uint32, old bool) (*ring, error) {
	p := params{cqEntries: completions, flags: needed | setupNoSQArray}
	fd, errno := -1, unix.EINVAL
	if !old {
		fd, errno = ioUringSetup(entries, &p)
	}
	if errno == unix.EINVAL { // before Linux 6.6
		p = params{cqEntries: completions, flags: needed}
		fd, errno = ioUringSetup(entries, &p)
	}
	if errno != 0 {
		return nil, refusal(errno)
	}
	r := &ring{fd: fd, registered: -1, features: p.features, until: new(deadline)}
	if err := r.mapQueues(&p); err != nil {
		return nil, errors.Join(fmt.Errorf("uring: map the queues: %w", err), r.close())
	}
	if err := r.order.open(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// refusal says what a failed io_uring_setup means, and what to do.
func refusal(errno unix.Errno) error {
	why := "the kernel refuses it"
	switch errno {
	case unix.ENOSYS:
		why = "the kernel has no io_uring, or a seccomp filter hides it"
	case unix.EPERM, unix.EACCES:
		why = "sysctl kernel.io_uring_disabled or a seccomp filter (as of Docker) forbids it"
	case unix.EINVAL:
		why = "the kernel is older than Linux 6.1"
	case unix.ENOMEM:
		why = "there is no memory for it, or the limit on locked memory (ulimit -l) is too low"
	case unix.EMFILE, unix.ENFILE:
		why = "the limit on descriptors (ulimit -n) is too low"
	}
	return fmt.Errorf("uring: io_uring_setup: %s: %w", why, errno)
}

func (r *ring) mapQueues(p *params) (err error) {
	size := max(p.sq.array+4*p.sqEntries, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	if r.queues, err = mapped(r.fd, offSQRing, int(size)); err != nil {
		return err
	}
	if r.entries, err = mapped(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{}))); err != nil {
		return err
	}
	r.sqHead, r.sqTail, r.sqFlags = word(r.queues, p.sq.head), word(r.queues, p.sq.tail), word(r.queues, p.sq.flags)
	r.cqHead, r.cqTail = word(r.queues, p.cq.head), word(r.queues, p.cq.tail)
	r.sqMask, r.cqMask = p.sqEntries-1, p.cqEntries-1
	r.sqes = rows[sqe](r.entries, 0, p.sqEntries)
	r.cqes = rows[cqe](r.queues, p.cq.cqes, p.cqEntries)
	if p.flags&setupNoSQArray == 0 {
		for i, array := uint32(0), rows[uint32](r.queues, p.sq.array, p.sqEntries); i < p.sqEntries; i++ {
			array[i] = i
		}
	}
	return nil
}

// enable makes the ring the calling thread's.
func (r *ring) enable() error {
	if errno := ioUringRegister(r.fd, registerEnableRings, nil, 0); errno != 0 {
		return fmt.Errorf("uring: enable the ring: %w", errno)
	}
	up := ringUpdate{offset: ^uint32(0), data: uint64(r.fd)}
	if ioUringRegister(r.fd, registerRingFDs, unsafe.Pointer(&up), 1) == 0 { // a thread has 16 at most; fd serves, too
		r.registered = int(up.offset)
	}
	return nil
}

// ringUpdate is struct io_uring_rsrc_update.
type ringUpdate struct {
	offset, _ uint32
	data      uint64
}

// close releases all but what operations that still run may write to. The thread that has enabled
// the ring calls it.
func (r *ring) close() error {
	if r.registered >= 0 {
		up := ringUpdate{offset: uint32(r.registered)}
		_ = ioUringRegister(r.fd, unregisterRingFDs, unsafe.Pointer(&up), 1)
	}
	r.order.close()
	return errors.Join(unmapped(r.queues), unmapped(r.entries), os.NewSyscallError("close", unix.Close(r.fd)))
}

// room is how many entries can be written before the kernel is entered.
func (r *ring) room() int { return len(r.sqes) - r.pending() }

// pending is how many entries the kernel has not taken.
func (r *ring) pending() int { return int(r.tail - atomic.LoadUint32(r.sqHead)) }

// next is an empty entry. There must be room.
func (r *ring) next() *sqe {
	e := &r.sqes[r.tail&r.sqMask]
	r.tail++
	*e = sqe{}
	return e
}

// completed reports whether take has something to return.
func (r *ring) completed() bool { return atomic.LoadUint32(r.cqTail) != *r.cqHead }

// take removes the first completion.
func (r *ring) take() (c cqe, ok bool) {
	head := *r.cqHead // which is written here alone
	if atomic.LoadUint32(r.cqTail) == head {
		return c, false
	}
	c = r.cqes[head&r.cqMask]
	atomic.StoreUint32(r.cqHead, head+1)
	return c, true
}

// hasMore reports whether the kernel has completions that it puts into the queue when it is
// entered.
func (r *ring) hasMore() bool { return atomic.LoadUint32(r.sqFlags)&(sqTaskrun|sqCQOverflow) != 0 }

// submit has the kernel begin what is pending, and no more.
func (r *ring) submit() unix.Errno { return r.enter(0, false, nil) }

// collect has the kernel begin what is pending, and complete what it can. It does not wait.
func (r *ring) collect() unix.Errno { return r.enter(enterGetevents, false, nil) }

// wait is collect, and waits for a completion; a negative time has no end.
func (r *ring) wait(d time.Duration) unix.Errno {
	if d < 0 {
		return r.enter(enterGetevents, true, nil)
	}
	r.until.ts = timespec{int64(d / time.Second), int64(d % time.Second)}
	r.until.arg = geteventsArg{ts: uint64(uintptr(unsafe.Pointer(&r.until.ts)))}
	return r.enter(enterGetevents, true, r.until)
}

// rawSubmits is how many operations a call that does not wait begins without telling Go's scheduler
// of it. Each takes some microseconds, for which the processor serves no other goroutine.
const rawSubmits = 32

// enter is io_uring_enter. What is submitted in a call that then fails is not pending any more.
func (r *ring) enter(flags uintptr, waits bool, until *deadline) (errno unix.Errno) {
	pending := r.pending()
	atomic.StoreUint32(r.sqTail, r.tail)
	r.order.release()
	fd := r.fd
	if r.registered >= 0 {
		fd, flags = r.registered, flags|enterRegistered
	}
	var least, arg, size uintptr
	if waits {
		least = 1
		if r.features&featNoIowait != 0 {
			flags |= enterNoIowait
		}
	}
	if until != nil {
		flags, size = flags|enterExtArg, unsafe.Sizeof(until.arg)
		arg = uintptr(unsafe.Pointer(&until.arg)) // until is part of r, and stays where it is
	}
	if waits || pending > rawSubmits {
		_, _, errno = syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(pending), least, flags, arg, size)
	} else {
		_, _, errno = syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(pending), least, flags, arg,
			size)
	}
	r.order.acquire()
	return errno
}

// buffers are memory that the kernel receives into. It takes one from their ring for each receive
// that has found bytes.
type buffers struct {
	size  int
	out   int    // how many are not in the ring
	arena []byte // mapped
	ring  []byte // mapped
	rows  []bufferRow
	mask  uint16
	tail  uint16
	first uint16  // the number in row 0, which shares a word with the tail
	word  *uint32 // of row 0
}

// bufferRow is struct io_uring_buf. The kernel reads the tail of the ring from the last field of
// row 0.
type bufferRow struct {
	addr uint64
	len  uint32
	id   uint16
	_    uint16
}

// bufferGroup is struct io_uring_buf_reg.
type bufferGroup struct {
	addr    uint64
	entries uint32
	group   uint16
	_       uint16
	_       [3]uint64
}

// newBuffers gives the ring count buffers, a power of two up to 32768.
func newBuffers(r *ring, count, size int) (b *buffers, err error) {
	b = &buffers{size: size, out: count, mask: uint16(count - 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("uring: %d buffers of %d bytes: %w", count, size, err), b.close())
		}
	}()
	if b.arena, err = mapped(-1, 0, count*size); err != nil {
		return nil, err
	}
	if b.ring, err = mapped(-1, 0, count*int(unsafe.Sizeof(bufferRow{}))); err != nil {
		return nil, err
	}
	b.rows = rows[bufferRow](b.ring, 0, uint32(count))
	b.word = word(b.ring, uint32(unsafe.Offsetof(bufferRow{}.id)))
	g := bufferGroup{addr: address(b.ring), entries: uint32(count), group: theGroup}
	if errno := ioUringRegister(r.fd, registerPbufRing, unsafe.Pointer(&g), 1); errno != 0 {
		return nil, errno
	}
	for i := range count {
		b.give(uint16(i))
	}
	return b, nil
}

// close releases the memory, which no operation may use any more.
func (b *buffers) close() error { return errors.Join(unmapped(b.ring), unmapped(b.arena)) }

// empty reports whether the kernel has none left.
func (b *buffers) empty() bool { return b.out > int(b.mask) }

// take is the buffer that a receive has filled with n bytes. It is the caller's until give.
func (b *buffers) take(id uint16, n int) []byte {
	b.out++
	return b.of(id, n)
}

// of are the first n bytes of a buffer.
func (b *buffers) of(id uint16, n int) []byte {
	from := int(id) * b.size
	return b.arena[from : from+n : from+n]
}

// give returns a buffer to the kernel.
func (b *buffers) give(id uint16) {
	at := b.tail & b.mask
	row := &b.rows[at]
	row.addr, row.len = address(b.arena[int(id)*b.size:]), uint32(b.size)
	if at == 0 {
		b.first = id
	} else {
		row.id = id
	}
	b.tail++
	b.out--
	atomic.StoreUint32(b.word, pair(b.first, b.tail)) // a store of 16 bits would do, and Go has none
}

// vectorsPerSend is how many blocks of memory one operation sends at most.
const vectorsPerSend = 64

// A message is the memory of an operation that sends several blocks.
type message struct {
	header  unix.Msghdr
	iovecs  [vectorsPerSend]unix.Iovec
	vectors [][]byte
}

// fill has the message send the vectors. It returns how many bytes that is.
func (m *message) fill() (n int) {
	for i, p := range m.vectors {
		m.iovecs[i].Base = unsafe.SliceData(p)
		m.iovecs[i].SetLen(len(p))
		n += len(p)
	}
	m.header.Iov = &m.iovecs[0]
	m.header.SetIovlen(len(m.vectors))
	return n
}

// clear forgets the blocks.
func (m *message) clear() {
	clear(m.iovecs[:len(m.vectors)])
	clear(m.vectors)
	m.vectors = m.vectors[:0]
}

// addr is where the message is. It must be kept until its operation has completed.
func (m *message) addr() uint64 { return uint64(uintptr(unsafe.Pointer(&m.header))) }

// address is where p is. The Go heap does not move; p must be kept until the kernel uses it no
// more.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// pair is a word of two fields of 16 bits, in the order in which they are in memory.
func pair(first, second uint16) uint32 {
	var w [4]byte
	binary.NativeEndian.PutUint16(w[:], first)
	binary.NativeEndian.PutUint16(w[2:], second)
	return binary.NativeEndian.Uint32(w[:])
}

// mapped is memory that is shared with the kernel, or for fd -1 memory of our own.
func mapped(fd int, offset int64, size int) ([]byte, error) {
	flags := unix.MAP_SHARED | unix.MAP_POPULATE
	if fd < 0 {
		flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	}
	mem, err := unix.Mmap(fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	return mem, os.NewSyscallError("mmap", err)
}

func unmapped(mem []byte) error {
	if mem == nil {
		return nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(mem))
}

// word is four bytes of mapped memory.
func word(mem []byte, offset uint32) *uint32 { return &rows[uint32](mem, offset, 1)[0] }

// rows is mapped memory from an offset on, as n values without pointers.
func rows[T uint32 | sqe | cqe | bufferRow](mem []byte, offset, n uint32) []T {
	var zero T
	part := mem[offset:][:uintptr(n)*unsafe.Sizeof(zero)]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(part))), n)
}

func ioUringSetup(entries uint32, p *params) (fd int, errno unix.Errno) {
	n, _, errno := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), 0
}

func ioUringRegister(fd int, op uintptr, arg unsafe.Pointer, n uintptr) unix.Errno {
	_, _, errno := syscall.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), op, uintptr(arg), n, 0, 0)
	return errno
}
