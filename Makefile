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
SERVER_LIBS = $(shell pkg-config --libs $(PKGS))
CLI_LIBS = $(shell pkg-config --libs jansson libcurl)

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
VARIANT_FLAGS_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread -DRCU_TSAN
VARIANT_FLAGS_cov     := -O0 -g --coverage
VARIANT_LD_release    := $(HARDEN_LD)
VARIANT_LD_asan       := -fsanitize=address,undefined
VARIANT_LD_tsan       := -fsanitize=thread
VARIANT_LD_cov        := --coverage

CFLAGS ?=
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(VARIANT_FLAGS_$(VARIANT)) $(WARN) -Isrc -I. -I$(B)/gen -MMD -MP \
             -DCADASTRE_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(VARIANT_LD_$(VARIANT)) $(LDFLAGS)

BASE_SRC      := $(wildcard src/base/*.c)
DIRECTORY_SRC := $(wildcard src/directory/*.c)
RAFT_SRC      := $(wildcard src/raft/*.c)
CONTROL_SRC   := $(wildcard src/control/*.c)
API_SRC       := $(wildcard src/api/*.c)
CLI_SRC       := $(wildcard src/cli/*.c)
TOP_SRC       := $(filter-out src/main.c,$(wildcard src/*.c))

obj = $(patsubst %.c,$(B)/%.o,$(1))
PROTO_OBJ := $(B)/gen/directory/command.pb-c.o
LIB_OBJ   := $(call obj,$(BASE_SRC) $(DIRECTORY_SRC) $(RAFT_SRC) $(CONTROL_SRC) $(API_SRC) $(TOP_SRC)) $(PROTO_OBJ)

.PHONY: all
all: $(B)/cadastred $(B)/cadastre ## The server and the command line tool, in build/release

$(B)/libcadastred.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/cadastred: $(B)/src/main.o $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $^ $(SERVER_LIBS) -lpthread

$(B)/cadastre: $(call obj,$(CLI_SRC) $(BASE_SRC))
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLI_LIBS) $(shell pkg-config --libs liburcu libxxhash) -lpthread

$(B)/gen/directory/command.pb-c.c $(B)/gen/directory/command.pb-c.h &: src/directory/command.proto
	@mkdir -p $(B)/gen/directory
	$(Q)protoc-c --proto_path=src --c_out=$(B)/gen directory/command.proto

$(PROTO_OBJ): $(B)/gen/directory/command.pb-c.c
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(VARIANT_FLAGS_$(VARIANT)) -w -I$(B)/gen $(PKG_CFLAGS) -c -o $@ $<

$(B)/%.o: %.c | $(B)/gen/directory/command.pb-c.h
	@mkdir -p $(@D)
	@echo "  CC   $<"
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# --- tests: one program for each tests/<kind>/*_test.c, found by name ---

TAP_OBJ   := $(B)/tests/harness/tap.o
TEST_SRC  := $(wildcard tests/unit/*_test.c tests/property/*_test.c tests/sim/*_test.c)
TEST_BINS := $(patsubst %.c,$(B)/%,$(TEST_SRC))
# Programs for longer runs than a test may take.
TEST_PROGS := $(B)/tests/sim/raft_fuzz
# Helpers that several tests share: any tests/<kind>/*.c that is neither a test nor such a program.
TEST_LIB_SRC := $(filter-out %_test.c tests/harness/tap.c tests/sim/raft_fuzz.c,$(wildcard tests/unit/*.c tests/property/*.c tests/sim/*.c tests/harness/*.c))
TEST_LIB_OBJ := $(call obj,$(TEST_LIB_SRC))

$(TEST_BINS) $(TEST_PROGS): $(B)/%: $(B)/%.o $(TAP_OBJ) $(TEST_LIB_OBJ) $(B)/libcadastred.a
	@echo "  LD   $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $< $(TEST_LIB_OBJ) $(TAP_OBJ) $(B)/libcadastred.a $(SERVER_LIBS) -lpthread

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:

.PHONY: tests-build unit
tests-build: $(TEST_BINS)
unit: $(TEST_BINS) ## The C test programs
	prove $(patsubst %,./%,$(TEST_BINS))

FUZZ_SEEDS ?= 0:5000
.PHONY: raft-fuzz
raft-fuzz: $(B)/tests/sim/raft_fuzz ## Random schedules over libraft and its guard (FUZZ_SEEDS=A:B)
	for n in 1 2 3 5; do nice $< --servers $$n --steps 300 --seeds $(FUZZ_SEEDS) || exit 1; done

.PHONY: clean
clean: ## Removes build/
	rm -rf build

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 18
