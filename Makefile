# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Everything is built out of the tree, in build/<variant>.

VERSION := $(shell cat VERSION)
VARIANT ?= release
B       := build/$(VARIANT)
CC      ?= gcc
PREFIX  ?= /usr/local
DESTDIR ?=
V       ?= 0
Q       := $(if $(filter 1,$(V)),,@)
WERROR  ?= 1

PKGS := raft libuv sqlite3 libmicrohttpd jansson liburcu libprotobuf-c libxxhash libcurl zlib
# Asked of pkg-config only when something is compiled, so that `make deps` works before the packages are there.
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
SERVER_LIBS = $(shell pkg-config --libs $(PKGS)) -lm
CLI_LIBS = $(shell pkg-config --libs jansson libcurl sqlite3)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wcast-align \
        -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wundef -Wwrite-strings -Wpointer-arith \
        -Wformat=2 -Wimplicit-fallthrough -Wswitch-enum -Wvla -Wnull-dereference -Wdouble-promotion \
        -Wno-format-truncation -Wno-format-nonliteral
ifeq ($(WERROR),1)
WARN += -Werror
endif
HARDEN := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection \
          -fcf-protection=full -fno-strict-overflow -fno-delete-null-pointer-checks -fno-common -fPIE
HARDEN_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed

VARIANT_FLAGS_release := -O2 -g $(HARDEN)
VARIANT_FLAGS_debug   := -O0 -g
VARIANT_FLAGS_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
# gcc 12 sees null pointers where the sanitizer has rewritten the code.
VARIANT_FLAGS_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread -DRCU_TSAN
VARIANT_FLAGS_cov     := -O0 -g --coverage
# NULL + 0, which empty slices give, is no fault (C2y, N3322, and what both compilers always did); clang 14 has no finer
# switch for it, and what else pointer-overflow finds, AddressSanitizer meets at the access.
VARIANT_FLAGS_fuzz    := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
                         -fno-sanitize-recover=all \
                         -fno-sanitize=pointer-overflow -Wno-unknown-warning-option
VARIANT_WARN_tsan     := -Wno-null-dereference
VARIANT_LD_release    := $(HARDEN_LD)
VARIANT_LD_asan       := -fsanitize=address,undefined
VARIANT_LD_fuzz       := -fsanitize=address,undefined
VARIANT_LD_tsan       := -fsanitize=thread
VARIANT_LD_cov        := --coverage

CFLAGS ?=
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(VARIANT_FLAGS_$(VARIANT)) $(WARN) $(VARIANT_WARN_$(VARIANT)) -Isrc -I. -I$(B)/gen -MMD -MP \
             -DCADASTRE_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(VARIANT_LD_$(VARIANT)) $(LDFLAGS)

BASE_SRC      := $(wildcard src/base/*.c)
DIRECTORY_SRC := $(wildcard src/directory/*.c)
RAFT_SRC      := $(wildcard src/raft/*.c)
BALANCER_SRC  := $(wildcard src/balancer/*.c)
SIMULATE_SRC  := $(wildcard src/simulate/*.c)
CONTROL_SRC   := $(wildcard src/control/*.c)
API_SRC       := $(wildcard src/api/*.c)
CLI_SRC       := $(wildcard src/cli/*.c)
CLIENT_SRC    := $(wildcard src/client/*.c)
# What of src/base is in the client library.
CLIENT_BASE   := $(patsubst %,src/base/%.c,assert buf clock err hash lines mem parse)
TOP_SRC       := $(filter-out src/main.c,$(wildcard src/*.c))

obj = $(patsubst %.c,$(B)/%.o,$(1))
PROTOS    := directory/command api/load
PROTO_OBJ := $(PROTOS:%=$(B)/gen/%.pb-c.o)
LIB_OBJ   := $(call obj,$(BASE_SRC) $(DIRECTORY_SRC) $(RAFT_SRC) $(BALANCER_SRC) $(SIMULATE_SRC) $(CONTROL_SRC) $(API_SRC) $(TOP_SRC)) $(PROTO_OBJ) \
             $(B)/src/api/openapi.o

.PHONY: all
all: $(B)/cadastred $(B)/cadastre client ## The server, the command line tool and the client library, in build/release

$(B)/libcadastred.a: $(LIB_OBJ)
	@pkg-config --exact-version=0.15.0 raft || { echo "libraft 0.15.0 is needed: src/raft/guard.h is for it alone" >&2; exit 1; }
	@rm -f $@
	$(Q)ar qcs $@ $^

$(B)/cadastred: $(B)/src/main.o $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $^ $(SERVER_LIBS) -lpthread

# Of the archive only what simulates: the planner, the directory's state machine.
$(B)/cadastre: $(call obj,$(CLI_SRC)) $(B)/libcadastreclient.a $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLI_LIBS) $(shell pkg-config --libs liburcu libxxhash libprotobuf-c) -lm -lpthread

# --- libcadastre: position-independent, and only cadastre_* is seen from outside ---

SOVERSION    := 0
CLIENT_LIBS   = $(shell pkg-config --libs libcurl jansson)
CLIENT_OBJ   := $(patsubst %.c,$(B)/pic/%.o,$(CLIENT_SRC) $(CLIENT_BASE))
CLIENT_SO    := $(B)/libcadastre.so.$(VERSION)
PIC_CFLAGS    = $(filter-out -fPIE,$(ALL_CFLAGS)) -fPIC -fvisibility=hidden -DXXH_INLINE_ALL

.PHONY: client
client: $(B)/libcadastre.a $(CLIENT_SO) ## The client library, static and shared

$(B)/pic/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC   $< (pic)"
	$(Q)$(CC) $(PIC_CFLAGS) -c -o $@ $<

$(B)/libcadastre.a: $(CLIENT_OBJ)
	@rm -f $@
	$(Q)ld -r -o $(B)/pic/libcadastre.o $^
	$(Q)objcopy --localize-hidden $(B)/pic/libcadastre.o
	$(Q)ar qcs $@ $(B)/pic/libcadastre.o

$(CLIENT_SO): $(CLIENT_OBJ)
	@echo "  LD   $@"
	$(Q)$(CC) -shared $(filter-out -pie,$(ALL_LDFLAGS)) -Wl,-soname,libcadastre.so.$(SOVERSION) -o $@ $^ \
	    $(CLIENT_LIBS) -lpthread
	$(Q)ln -sf $(@F) $(B)/libcadastre.so.$(SOVERSION)
	$(Q)ln -sf $(@F) $(B)/libcadastre.so

# --- examples/shardkv: a data node and its load generator, on the client library alone ---

SHARDKV_LIBS  = $(shell pkg-config --libs libmicrohttpd sqlite3) $(CLIENT_LIBS) -lpthread
SHARDKV_NODE := $(call obj,$(filter-out examples/shardkv/load%.c,$(wildcard examples/shardkv/*.c)))

.PHONY: shardkv
shardkv: $(B)/shardkv $(B)/shardkv-load ## The example of a data node, and its load generator

$(B)/shardkv: $(SHARDKV_NODE) $(B)/libcadastre.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(SHARDKV_LIBS)

$(B)/shardkv-load: $(call obj,$(wildcard examples/shardkv/load*.c)) $(B)/libcadastre.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLIENT_LIBS) -lpthread

# The same objects with their insides, for tests.
$(B)/libcadastreclient.a: $(call obj,$(CLIENT_SRC))
	@rm -f $@
	$(Q)ar qcs $@ $^

$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h: src/%.proto
	@mkdir -p $(@D)
	$(Q)protoc-c --proto_path=src --c_out=$(B)/gen $*.proto

$(B)/src/api/openapi.o: src/api/openapi.S openapi.yaml
	@mkdir -p $(@D)
	$(Q)$(CC) -c -o $@ $<

$(PROTO_OBJ): %.o: %.c
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(VARIANT_FLAGS_$(VARIANT)) -w -I$(B)/gen $(PKG_CFLAGS) -c -o $@ $<

$(B)/%.o: %.c | $(PROTOS:%=$(B)/gen/%.pb-c.h)
	@mkdir -p $(@D)
	@echo "  CC   $<"
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# --- tests: one program for each tests/<kind>/*_test.c, found by name ---

TAP_OBJ   := $(B)/tests/harness/tap.o
TEST_SRC  := $(wildcard tests/unit/*_test.c tests/property/*_test.c tests/sim/*_test.c tests/model/*_test.c)
TEST_BINS := $(patsubst %.c,$(B)/%,$(TEST_SRC))
# Programs for longer runs than a test may take, and the server that shows src/raft alone.
TEST_PROGS := $(B)/tests/sim/raft_fuzz $(B)/tests/harness/counter_server $(B)/tests/model/check \
              $(B)/tests/harness/writers_check $(B)/tests/sim/drill
# Helpers that several tests share: any tests/<kind>/*.c that is neither a test nor such a program.
TEST_LIB_SRC := $(filter-out %_test.c tests/harness/tap.c $(patsubst $(B)/%,%.c,$(TEST_PROGS)),$(wildcard tests/unit/*.c tests/property/*.c tests/sim/*.c tests/model/*.c tests/harness/*.c))
TEST_LIB_OBJ := $(call obj,$(TEST_LIB_SRC))

# The archives give only what a test refers to.
$(B)/libcadastrecli.a: $(call obj,$(filter-out src/cli/main.c,$(CLI_SRC)))
	@rm -f $@
	$(Q)ar qcs $@ $^

$(B)/tests/unit/shardkv_meter_test: $(B)/examples/shardkv/meter.o
$(B)/tests/unit/shardkv_kv_test: $(addprefix $(B)/examples/shardkv/,kv.o kv_change.o kv_copy.o)
$(TEST_BINS) $(TEST_PROGS): $(B)/%: $(B)/%.o $(TAP_OBJ) $(TEST_LIB_OBJ) $(B)/libcadastrecli.a $(B)/libcadastreclient.a $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $< $(filter $(B)/examples/%.o,$^) $(TEST_LIB_OBJ) $(TAP_OBJ) $(B)/libcadastrecli.a \
	    $(B)/libcadastreclient.a $(B)/libcadastred.a $(SERVER_LIBS) -lpthread

# libcadastre as a program, for tests in Python.
CLIENT_DRIVER := $(B)/tests/driver/client_driver
$(CLIENT_DRIVER): $(call obj,$(wildcard tests/driver/*.c)) $(B)/libcadastreclient.a $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $^ $(SERVER_LIBS) -lpthread

# Tests with real servers as processes of their own.
INTEGRATION_BINS := $(patsubst %.c,$(B)/%,$(wildcard tests/integration/*_test.c))

$(INTEGRATION_BINS): $(B)/%: $(B)/%.o $(TAP_OBJ) $(TEST_LIB_OBJ) $(B)/libcadastred.a $(TEST_PROGS)
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $< $(TEST_LIB_OBJ) $(TAP_OBJ) $(B)/libcadastred.a $(SERVER_LIBS) -lpthread

# --- fuzzing: tests/fuzz/<name>_fuzz.c, with its corpus in tests/fuzz/corpus/<name> ---

FUZZ_SECONDS ?= 60
FUZZ_NAMES   := $(patsubst tests/fuzz/%_fuzz.c,%,$(wildcard tests/fuzz/*_fuzz.c))
FUZZ_BINS    := $(FUZZ_NAMES:%=$(B)/tests/fuzz/%_fuzz)
FUZZ_REPLAYS := $(FUZZ_NAMES:%=$(B)/tests/fuzz/%_replay)
FUZZ_LIBS     = $(B)/tests/fuzz/server.o $(TEST_LIB_OBJ) $(TAP_OBJ) $(B)/libcadastred.a

# With libFuzzer, by clang: `make fuzz` says how.
$(FUZZ_BINS): $(B)/tests/fuzz/%_fuzz: $(B)/tests/fuzz/%_fuzz.o $(FUZZ_LIBS)
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(SERVER_LIBS) -lpthread

# Without it, by any compiler: the corpus is replayed by `make test`.
$(FUZZ_REPLAYS): $(B)/tests/fuzz/%_replay: $(B)/tests/fuzz/%_fuzz.o $(B)/tests/fuzz/replay_main.o $(FUZZ_LIBS)
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(SERVER_LIBS) -lpthread

$(B)/tests/fuzz/seeds: $(B)/tests/fuzz/seeds.o $(FUZZ_LIBS)
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(SERVER_LIBS) -lpthread

.PHONY: fuzz-build fuzz-replay
fuzz-build: $(FUZZ_BINS)
fuzz-replay: $(FUZZ_REPLAYS)
	CADASTRE_BUILD=$(B) tests/fuzz/replay_test.sh

# --- benches: programs of their own, tests/bench/bench.py runs them ---

BENCH_COMMON := $(B)/tests/bench/load.o $(TAP_OBJ) $(B)/tests/harness/world.o
BENCH_SRC  := $(filter-out tests/bench/load.c tests/bench/replica_bench.c tests/bench/report_bench.c,$(wildcard tests/bench/*.c))
BENCH_BINS := $(patsubst %.c,$(B)/%,$(BENCH_SRC))
# The simulated fleets of balancer_bench.
FLEET_OBJ  := $(call obj,$(wildcard tests/bench/fleet/*.c))
$(B)/tests/bench/balancer_bench: $(FLEET_OBJ)

$(BENCH_BINS): $(B)/%: $(B)/%.o $(BENCH_COMMON) $(B)/libcadastreclient.a $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(filter $(B)/tests/bench/fleet/%.o,$^) $(BENCH_COMMON) \
	    $(B)/libcadastreclient.a $(B)/libcadastred.a $(SERVER_LIBS) -lm -lpthread

$(B)/tests/bench/replica_bench $(B)/tests/bench/report_bench: $(B)/%: $(B)/%.o $(TAP_OBJ) $(TEST_LIB_OBJ) $(B)/libcadastred.a $(TEST_PROGS)
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $< $(TEST_LIB_OBJ) $(TAP_OBJ) $(B)/libcadastred.a $(SERVER_LIBS) -lpthread

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:

.PHONY: tests-build unit
tests-build: shardkv $(TEST_BINS) $(TEST_PROGS) $(INTEGRATION_BINS) $(FUZZ_REPLAYS) $(CLIENT_DRIVER)
unit: $(TEST_BINS) ## The C test programs
	prove $(patsubst %,./%,$(TEST_BINS))

# The examples, as a user builds them: against the archive and its one header.
EXAMPLE_BINS := $(B)/examples/router $(B)/examples/agent
tests-build: $(EXAMPLE_BINS)
$(EXAMPLE_BINS): $(B)/%: %.c src/client/cadastre.h $(B)/libcadastre.a
	@mkdir -p $(@D)
	@echo "  CC   $<"
	$(Q)$(CC) -std=c11 $(VARIANT_FLAGS_$(VARIANT)) $(WARN) -Isrc/client $(CFLAGS) $(ALL_LDFLAGS) -o $@ $< \
	    $(B)/libcadastre.a $(CLIENT_LIBS) -lpthread

# --- what a person calls ---

# Debian 12's packages: to build and run, and what the tests need beside them.
DEPS_BUILD := gcc make pkg-config libc6-dev libraft-dev libuv1-dev libsqlite3-dev libmicrohttpd-dev libjansson-dev \
              liburcu-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libxxhash-dev \
              libcurl4-openssl-dev zlib1g-dev tzdata
# The contract test runs on any node of version 18 or later.
DEPS_NODE   = $(if $(and $(shell command -v node 2>/dev/null),$(shell command -v npm 2>/dev/null)),,nodejs npm)
DEPS_TEST   = $(DEPS_NODE) perl python3 curl sqlite3 clang-14 clang-format-14 libclang-rt-14-dev pmccabe mandoc git iproute2 \
              iptables strace libfaketime
DEPS_BENCH := etcd-server zookeeper default-jre-headless nginx-light redis-server redis-tools nghttp2-client

.PHONY: deps deps-test deps-bench
deps: ## Installs what building and running need (apt, as root or through sudo)
	@tools/deps.sh $(DEPS_BUILD)
deps-test:
	@tools/deps.sh $(DEPS_BUILD) $(DEPS_TEST)
deps-bench:
	@tools/deps.sh $(DEPS_BUILD) $(DEPS_TEST) $(DEPS_BENCH)

.PHONY: run
run: deps ## Installs, builds and starts one server: data in ./cadastre-data, API on 127.0.0.1:7400
	@$(MAKE) --no-print-directory -s -j$(shell nproc) all
	@cat docs/try.txt
	@exec $(B)/cadastred

.PHONY: demo
demo: deps-test ## Four minutes: a map that changes; data nodes under load, a move, a kill, a drain; the balancer follows the sun
	@$(MAKE) --no-print-directory -s -j$(shell nproc) all shardkv
	@/usr/bin/python3 examples/demo.py

.PHONY: test
test: deps-test ## Installs, builds and passes every test that CI runs
	@$(MAKE) --no-print-directory -s -j$(shell nproc) all tests-build
	@tests/run.sh $(B)

.PHONY: lint
lint: all ## Includes, banned calls, sizes (a ratchet), formatting, error lists, man pages, tests that docs name
	@tests/lint/run.sh

.PHONY: sim raft-fuzz
SIM_SEEDS ?= 1:3001
sim: $(B)/tests/sim/directory_sim_test ## The simulation of the replicated state, SIM_SEEDS=from:to
	SIM_SEEDS=$(SIM_SEEDS) $<
SEEDS ?= 0:5000
raft-fuzz: $(B)/tests/sim/raft_fuzz ## Random schedules of guarded libraft, SEEDS=from:to
	$< --servers 3 --seeds $(SEEDS)
	$< --servers 5 --seeds $(SEEDS)

.PHONY: moves crash drill
moves: $(B)/tests/sim/moves_sim_test ## Moves of simulated data nodes, MOVES_SEEDS=from:to
	MOVES_SEEDS=$(or $(MOVES_SEEDS),1:5001) $<
crash: $(B)/tests/sim/crash_machine_test ## Each event in each stage of an operation, CRASH_SEEDS=from:to of each
	CRASH_SEEDS=$(or $(CRASH_SEEDS),1:201) $<
drill: $(B)/tests/sim/drill ## The four crash points of a move of 512 GiB: who has the authority, and what becomes of it
	@$<

.PHONY: scenarios
scenarios: $(B)/cadastre ## The balancer on every modeled fleet of tests/scenarios, SCENARIO_SEEDS="1 2 3"
	CADASTRE_BUILD=$(CURDIR)/$(B) SEEDS="$(or $(SCENARIO_SEEDS),1 2 3)" tests/scenarios/run.sh

.PHONY: model
model: $(B)/tests/model/check ## The protocol's model, and that each of its mutants is caught (2 GB of memory)
	$<

.PHONY: chaos
CHAOS_MINUTES ?= 5
SEED ?=
chaos: all ## Pairs of faults on real servers for CHAOS_MINUTES (5), SEED=n chooses them; as root
	CADASTRE_BUILD=$(CURDIR)/$(B) /usr/bin/python3 tests/chaos/chaos.py --minutes $(CHAOS_MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: chaos-move chaos-move-mutants
SEEDS_MOVE ?= 1
chaos-move: all tests-build ## Movements of shardkv, each stage broken by each fault; SEED=n, SEEDS_MOVE=n; as root
	CADASTRE_BUILD=$(CURDIR)/$(B) /usr/bin/python3 tests/chaos/movement.py --seeds $(SEEDS_MOVE) $(if $(SEED),--seed $(SEED))
chaos-move-mutants: all tests-build ## That chaos-move sees a build without one of its safeguards; as root
	/usr/bin/python3 tests/chaos/movement_mutants.py

.PHONY: chaos-balancer
SEEDS_BALANCER ?= 1
chaos-balancer: all tests-build ## The balancer in auto over real reports, servers and nodes broken; SEED=n, SEEDS_BALANCER=n; as root
	CADASTRE_BUILD=$(CURDIR)/$(B) /usr/bin/python3 tests/chaos/balancer.py --seeds $(SEEDS_BALANCER) $(if $(SEED),--seed $(SEED))

.PHONY: contract contract-lint contract-selftest
contract: all ## openapi.yaml against its ruleset, its examples and a live server
	CADASTRE_BUILD=$(CURDIR)/$(B) prove --verbose --exec '' tests/contract/contract_test.sh
contract-lint: ## openapi.yaml against its ruleset and its own examples
	tests/contract/lint.sh
contract-selftest: ## The contract test against a server made of openapi.yaml's examples
	cd tests/contract && node selftest.mjs

.PHONY: asan tsan
# What a leader does by itself runs in no C test, but in a server that leads.
ASAN_SERVER_TESTS := $(addprefix tests/integration/,fields_test.py budgets_test.py recovery_test.py)
asan: ## The C tests, and servers that bad input and lost nodes reach, under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory VARIANT=asan all unit
	CADASTRE_BUILD=$(CURDIR)/build/asan prove --exec '' $(ASAN_SERVER_TESTS)
tsan: ## The C tests under ThreadSanitizer
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp history_size=4" \
		$(MAKE) --no-print-directory VARIANT=tsan all unit

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZ_SECONDS (60); FUZZ=name for one. New finds join its corpus
	@$(MAKE) --no-print-directory VARIANT=fuzz CC=clang-14 WERROR=0 fuzz-build
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh build/fuzz $(or $(FUZZ),$(FUZZ_NAMES))

.PHONY: bench
bench: deps-bench ## Every target of docs/performance.md beside its peer or limit; BENCH_LONG=1 takes longer
	@$(MAKE) --no-print-directory all $(BENCH_BINS)
	@CADASTRE_BUILD=$(CURDIR)/$(B) /usr/bin/python3 tests/bench/bench.py $(BENCH)

.PHONY: bench-balancer bench-balancer-full bench-planner
bench-balancer: $(B)/tests/bench/balancer_bench ## The planner beside others on simulated fleets, FLEET_SEEDS=n of each set (1)
	FLEET_SEEDS=$(or $(FLEET_SEEDS),1) $<
bench-balancer-full: $(B)/tests/bench/balancer_bench ## The same with all seeds: three to tune on, two of each held-out set
	$<
bench-planner: $(B)/tests/bench/planner_bench ## What a plan costs at 1 000 000 partitions on 1 000 nodes
	$<

.PHONY: coverage
coverage: ## Line coverage of the C tests, in build/cov
	@$(MAKE) --no-print-directory VARIANT=cov unit
	@tools/coverage.sh build/cov

.PHONY: format
format: ## Formats the sources in place
	clang-format-14 -i $$(git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'examples/*.[ch]')

.PHONY: install uninstall
install: all ## Installs under PREFIX (/usr/local), with DESTDIR before it
	install -D -m 755 $(B)/cadastred $(DESTDIR)$(PREFIX)/sbin/cadastred
	install -D -m 755 $(B)/cadastre $(DESTDIR)$(PREFIX)/bin/cadastre
	install -D -m 644 src/client/cadastre.h $(DESTDIR)$(PREFIX)/include/cadastre.h
	install -D -m 644 $(B)/libcadastre.a $(DESTDIR)$(PREFIX)/lib/libcadastre.a
	install -D -m 755 $(CLIENT_SO) $(DESTDIR)$(PREFIX)/lib/$(notdir $(CLIENT_SO))
	ln -sf $(notdir $(CLIENT_SO)) $(DESTDIR)$(PREFIX)/lib/libcadastre.so.$(SOVERSION)
	ln -sf $(notdir $(CLIENT_SO)) $(DESTDIR)$(PREFIX)/lib/libcadastre.so
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' src/client/libcadastre.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/libcadastre.pc
	install -D -m 644 docs/man/cadastred.8 $(DESTDIR)$(PREFIX)/share/man/man8/cadastred.8
	install -D -m 644 docs/man/cadastre.1 $(DESTDIR)$(PREFIX)/share/man/man1/cadastre.1
	install -D -m 644 docs/man/libcadastre.3 $(DESTDIR)$(PREFIX)/share/man/man3/libcadastre.3
uninstall: ## Removes what install put there
	rm -f $(DESTDIR)$(PREFIX)/sbin/cadastred $(DESTDIR)$(PREFIX)/bin/cadastre \
		$(DESTDIR)$(PREFIX)/include/cadastre.h $(DESTDIR)$(PREFIX)/lib/libcadastre.a \
		$(DESTDIR)$(PREFIX)/lib/libcadastre.so $(DESTDIR)$(PREFIX)/lib/libcadastre.so.$(SOVERSION) \
		$(DESTDIR)$(PREFIX)/lib/$(notdir $(CLIENT_SO)) $(DESTDIR)$(PREFIX)/lib/pkgconfig/libcadastre.pc \
		$(DESTDIR)$(PREFIX)/share/man/man8/cadastred.8 $(DESTDIR)$(PREFIX)/share/man/man1/cadastre.1 \
		$(DESTDIR)$(PREFIX)/share/man/man3/libcadastre.3

.PHONY: integration
integration: $(INTEGRATION_BINS) ## Clusters of real processes on loopback
	prove $(patsubst %,./%,$(INTEGRATION_BINS))

.PHONY: clean
clean: ## Removes build/
	rm -rf build

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 18
