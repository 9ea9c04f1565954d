# The four verbs, and what goes with them. CI calls the same ones (.ci/run). Tool versions are pinned here and the tools run
# by "go run", because tool lines would put their requirements into the library's go.mod.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Everything but the form of doc comments: what they say matters, and how they begin does not.
CHECKS := all,-ST1020,-ST1021,-ST1022


# Every Go file of ours, and none that came with a client library.
SOURCES := find . \( -name node_modules -o -name '.?*' \) -prune -o -name '*.go'

# What "make dev" tests, as in: make dev PKG=./web
PKG ?= ./...

# What "make soak" and "make others" run of their lists: all of it.
SHARE ?= 1/1

.PHONY: fmt lint test compile test-bench race drivers bound-drivers uring-driver fallback-driver soak others mutate minutes bench run dev release

fmt:
	$(SOURCES) -exec gofmt -s -w {} +

lint:
	@unformatted="$$($(SOURCES) -exec gofmt -s -l {} +)"; test -z "$$unformatted" || { echo "make fmt would change: $$unformatted"; exit 1; }
	go vet work
	go run $(STATICCHECK) -checks $(CHECKS) work

# Half of the time of tests is spent waiting, for timeouts and for other processes. So more of them
# run at a time than there are processors: packages (-p), and in a package those tests that are
# marked as parallel.
WAITING := -p 6 -parallel 8

# Test programs have nothing for debuggers in them, which is a third of the linker's time.
LINKING := -ldflags=-w

# Packages start in the order in which they are named: these first, which take longest, so that
# none of them is left to run alone. Those that use the processors stand among those that wait.
LONGEST := ./server/clients ./server/clustertest ./web ./internal/driver/std ./server/push/natsbus \
	./internal/driver/epoll ./internal/driver/uring ./internal/enginetest ./examples/million ./websocket ./internal/driver/kqueue ./server/push ./server/cmd/myriad

# The packages of every module but bench, whose servers are other libraries: without it the go command neither compiles nor
# downloads them.
TESTED := ./... ./server/... ./examples/... ./others/... ./tools/...

# The last line compiles the library and its tests with the dependency versions that its own users get.
test: compile
	go test $(LINKING) $(WAITING) -timeout 12m $(LONGEST) $(TESTED)
	GOWORK=off go vet ./...

# Tests build programs and read what the compiler has exported. The time of a package's tests is limited, and on a slow machine
# with an empty cache compilers would use it up. So everything is compiled, but not linked, before a test starts. The clients in
# Go are modules of their own. They need a network at first, without which their tests are skipped.
compile:
	go list -test -export $(TESTED) >/dev/null
	@for dir in server/clients/testdata/*/go.mod; do \
		(cd "$$(dirname "$$dir")" && GOWORK=off go list -export . >/dev/null 2>&1) || echo "$$dir: not compiled"; \
	done

# The tests of bench, which run all its servers. These are built first, and linked.
test-bench:
	go list -test -export ./bench/... >/dev/null
	cd bench && go run . build
	go test $(LINKING) $(WAITING) -timeout 12m ./bench/...

# The detector finds nothing in other programs, which are built without it, in pure functions, and in
# simulations: one goroutine runs at a time there, and each passes the token on to the next. These
# are left to "make test". PURE are tests of pure functions in packages where others are not.
UNRACED := /server/clients$$|/bench$$|/tools/release$$|/tools/minutes$$|/internal/(h1|h2|hpack)$$|/internal/driver/sim$$|/push/internal/(centrifuge|fossil)$$
SIMULATED := 'Simulat|^TestSameSeed|^TestMutantsAreCaught$$|^TestAuto(KeepsNeighbours|ThousandRoutes)$$|^TestSiege$$|^TestCompressedSessions$$'
PURE := '|^Test(Architecture|SnippetsCompile|DeflateRoundTrip|InflateBomb)$$'
race:
	go test -race -short $(LINKING) $(WAITING) -timeout 20m -skip $(SIMULATED)$(PURE) \
		$$(go list $(LONGEST) work | grep -vE '$(UNRACED)')

# The engine's tests once more: on drivers that are bound to their threads, on io_uring, and on package net.
# Simulations have a driver of their own.
drivers: bound-drivers uring-driver fallback-driver

bound-drivers:
	MYRIAD_DRIVER=bound go test -short $(LINKING) $(WAITING) -timeout 10m -skip $(SIMULATED) . ./internal/enginetest

# Where the kernel refuses io_uring these run on epoll. resp and the client stand for the protocols: what they dispatch inline in
# their tests does not block.
uring-driver:
	MYRIAD_DRIVER=uring go test -short $(LINKING) $(WAITING) -timeout 10m -skip $(SIMULATED) ./internal/enginetest
	go test -short "-ldflags=-w -X=github.com/myriad-go/myriad.defaultDriver=uring" $(WAITING) -timeout 10m -skip $(SIMULATED) \
		./resp ./websocket ./client ./tlsloop

fallback-driver:
	MYRIAD_DRIVER=std go test -race -short $(LINKING) $(WAITING) -timeout 10m -skip $(SIMULATED) . ./internal/enginetest

# The tests that have a full size, at that size: crowds, figures, witnesses, idle worlds, all seeds. "make soak SHARE=3/8" runs the
# third of eight parts.
soak:
	.ci/soak $(SHARE)

# The own tests of programs that people use, once on net/http and once on this library, downloaded and compared test by test.
# "make others SHARE=3/8" runs the third of eight parts, and "make others ONLY=gin" the programs whose names match.
others:
	cd others && go run . -share $(SHARE) $(if $(ONLY),-only '$(ONLY)')

# Do the tests notice a mistake? "make mutate FILE=web/internal/http1/conn.go" makes small ones in one file or several of a package, one at a
# time, and says which of them the short tests of the package let pass. RUN limits the tests as go test -run does, MOST=1s to
# those that take no longer, and AT=conn.go:75,conn.go:90 the mistakes to those lines.
mutate:
	go run ./tools/mutate $(if $(RUN),-run '$(RUN)') $(if $(MOST),-most $(MOST)) $(if $(AT),-at $(AT)) $(FILE)

# The seconds that each package's tests take, for the table in docs/HACKING.md.
minutes: compile
	go test -json -count=1 $(LINKING) $(WAITING) -timeout 12m $(LONGEST) $(TESTED) | go run ./tools/minutes

bench:
	go test -run '^$$' -bench . -benchmem work
	go run ./bench all

run:
	go run ./server/cmd/myriad serve

# As in: make release VERSION=v0.2.0; docs/RELEASING.md has the steps around it.
release:
	go run ./tools/release $(VERSION)

dev:
	@seen=; while sleep 1; do \
		now="$$($(SOURCES) -exec cksum {} + | cksum)"; \
		if [ "$$now" != "$$seen" ]; then seen="$$now"; go test $(PKG); echo "waiting for the next save"; fi; \
	done
