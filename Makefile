# gpuimg: see README.md for the two commands, 'make help' for all targets.

PREFIX  ?= /usr/local
DESTDIR ?=
ifeq ($(origin CC),default)
CC       = gcc
endif
CFLAGS  ?= -O2 -g
BUILD   ?= build

VERSION  := 0.1.0
PACKAGES := libguestfs blkid zlib libzstd libarchive libcurl jansson yaml-0.1 ext2fs com_err libnbd libkmod libcrypto libselinux

bindir     := $(PREFIX)/bin
mandir     := $(PREFIX)/share/man
pkgdatadir := $(PREFIX)/share/gpuimg

# Evaluated when something is compiled, not before: 'make image' may have to install them.
PKG_CFLAGS = $(shell pkg-config --cflags $(PACKAGES))
PKG_LIBS   = $(shell pkg-config --libs $(PACKAGES))

# Where a target compiles by itself: all processors, unless the user said how many.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# 'make V=1' shows the whole commands.
V ?= 0
SAY_0 = @printf '  %-4s %s\n'
SAY_1 = @:
RUN_0 = @
RUN_1 =
SAY   = $(SAY_$(V))
RUN   = $(RUN_$(V))

# CFLAGS and LDFLAGS belong to the user; these are ours.
OUR_CPPFLAGS = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -DGPUIMG_VERSION='"$(VERSION)"' \
	-DGPUIMG_DATADIR='"$(pkgdatadir)"' $(PKG_CFLAGS)
OUR_CFLAGS   = -std=c17 -pthread -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wwrite-strings -Wformat=2 -Wno-format-nonliteral -Wvla
OUR_LDFLAGS  = -pthread

SOURCES   := $(filter-out builder/main.c,$(wildcard builder/*.c builder/*/*.c stages/*.c publish/*.c))
OBJECTS   := $(SOURCES:%.c=$(BUILD)/%.o)
UNITS     := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
# Programs that bats files drive: a module of ours, alone, on a real root.
TRIES     := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(wildcard tests/tools/*.c))
C_FILES   := $(wildcard builder/*.[ch] builder/*/*.[ch] stages/*.[ch] publish/*.[ch] tests/unit/*.[ch] tests/tools/*.[ch] \
	tests/fuzz/*.[ch])
SH_FILES  := $(wildcard tools/*.sh tools/*/*.sh builder/sandbox/*.sh boot/smoke/*.sh boot/initramfs-tools/* tests/*/*.sh tests/*/*/*.sh tests/*/*.bash) .ci/run

.PHONY: all
all: $(BUILD)/gpuimg $(BUILD)/build-gpu-base-image

$(BUILD)/gpuimg: $(BUILD)/builder/main.o $(BUILD)/libgpuimg.a
	$(SAY) LD $@
	$(RUN)$(CC) $(CFLAGS) $(OUR_LDFLAGS) $(LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(BUILD)/build-gpu-base-image: $(BUILD)/gpuimg
	$(RUN)ln -sf gpuimg $@

$(BUILD)/libgpuimg.a: $(OBJECTS)
	$(SAY) AR $@
	$(RUN)rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(RUN)$(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) $(OUR_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: tests/unit/%.c $(BUILD)/libgpuimg.a
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(RUN)$(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) $(OUR_CFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(OUR_LDFLAGS) \
		$(LDFLAGS) -o $@ $< $(BUILD)/libgpuimg.a $(PKG_LIBS)

$(BUILD)/tests/tools/%: tests/tools/%.c $(BUILD)/libgpuimg.a
	@mkdir -p $(@D)
	$(SAY) CC $<
	$(RUN)$(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) $(OUR_CFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $(OUR_LDFLAGS) \
		$(LDFLAGS) -o $@ $< $(BUILD)/libgpuimg.a $(PKG_LIBS)

-include $(wildcard $(BUILD)/builder/*.d $(BUILD)/builder/*/*.d $(BUILD)/stages/*.d $(BUILD)/publish/*.d $(BUILD)/tests/*.d \
	$(BUILD)/tests/tools/*.d)

# --- for users ---------------------------------------------------------------------------

# BASE=path takes a base of yours; without it a small Debian is made. ARGS go to the build.
BASE ?=
ARGS ?=

.PHONY: image
image: ## install what is missing, build, make dist/NAME.qcow2, boot-test it
	tools/install-deps.sh build
	$(MAKE) $(JOBS) all
	$(BUILD)/build-gpu-base-image $(ARGS) $(BASE)

.PHONY: deps
deps: ## install what building and testing need
	tools/install-deps.sh build test

.PHONY: install
install: all ## honours DESTDIR and PREFIX
	install -D -m 0755 $(BUILD)/gpuimg $(DESTDIR)$(bindir)/gpuimg
	ln -sf gpuimg $(DESTDIR)$(bindir)/build-gpu-base-image
	install -D -m 0644 docs/gpuimg.1 $(DESTDIR)$(mandir)/man1/gpuimg.1
	ln -sf gpuimg.1 $(DESTDIR)$(mandir)/man1/build-gpu-base-image.1
	for f in boot/*/* profiles/*.yaml cloud-init/*.cfg; do \
		install -D -m 0644 $$f $(DESTDIR)$(pkgdatadir)/$$f || exit 1; done
	for f in grub-probe grub-mkrelpath; do \
		install -D -m 0755 builder/sandbox/$$f.sh $(DESTDIR)$(pkgdatadir)/sandbox/$$f.sh || exit 1; done
	install -D -m 0755 tools/make-base.sh $(DESTDIR)$(pkgdatadir)/make-base.sh
	for f in tools/make-base/*.sh; do \
		install -D -m 0644 $$f $(DESTDIR)$(pkgdatadir)/make-base/$${f##*/} || exit 1; done

.PHONY: uninstall
uninstall:
	rm -f $(DESTDIR)$(bindir)/gpuimg $(DESTDIR)$(bindir)/build-gpu-base-image
	rm -f $(DESTDIR)$(mandir)/man1/gpuimg.1 $(DESTDIR)$(mandir)/man1/build-gpu-base-image.1
	rm -rf $(DESTDIR)$(pkgdatadir)

# --- tests -------------------------------------------------------------------------------

CHECK_BATS := $(wildcard tests/cli/*.bats)
IMAGE_BATS := $(wildcard tests/image/*.bats)
QEMU_BATS  := $(wildcard tests/qemu/*.bats)
ASAN_BUILD := $(BUILD)/asan
ASAN_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
FUZZ_SECONDS ?= 12

.PHONY: test
test: deps ## everything that a fresh machine can run; what CI runs
	rm -rf $(BUILD)/test-out
	$(MAKE) $(JOBS) all units tries
	$(MAKE) $(JOBS) BUILD=$(ASAN_BUILD) CFLAGS='$(ASAN_FLAGS)' LDFLAGS='$(ASAN_FLAGS)' units
	$(MAKE) $(JOBS) fuzz
	tests/lib/run-tests.sh $(UNITS:$(BUILD)/%=$(ASAN_BUILD)/%) $(CHECK_BATS) $(IMAGE_BATS) tests/publish/dir.bats $(QEMU_BATS)

.PHONY: units
units: $(UNITS)

.PHONY: tries
tries: $(TRIES)

.PHONY: check
check: all units ## unit tests and the command line, without appliance or network
	tests/lib/run-tests.sh $(UNITS) $(CHECK_BATS)

.PHONY: check-asan
check-asan: ## the unit tests under ASan and UBSan
	$(MAKE) $(JOBS) BUILD=$(ASAN_BUILD) CFLAGS='$(ASAN_FLAGS)' LDFLAGS='$(ASAN_FLAGS)' units
	tests/lib/run-tests.sh $(UNITS:$(BUILD)/%=$(ASAN_BUILD)/%)

.PHONY: check-image
check-image: all tries ## builds of real images
	tests/lib/run-tests.sh $(IMAGE_BATS)

.PHONY: check-qemu
check-qemu: all ## boot tests
	tests/lib/run-tests.sh $(QEMU_BATS)

.PHONY: check-guests
check-guests: deps all ## slow: the matrix of real guests, about an hour
	tests/lib/run-tests.sh $(filter-out tests/guests/driver-%,$(wildcard tests/guests/*.bats))
	tests/lib/guest-table.sh

.PHONY: check-drivers
check-drivers: deps all ## slow: real driver packages on real guests, about an hour
	tests/lib/run-tests.sh $(wildcard tests/guests/driver-*.bats)
	tests/lib/driver-table.sh

# The servers are real ones of Debian's packages, on loopback, started and stopped by the tests.
PUBLISH_BATS := $(wildcard tests/publish/*.bats)

.PHONY: check-publish
check-publish: all ## publish to real servers: nginx, Apache, Swift, a registry, Glance, a mock of VCO
	tools/install-deps.sh build test publish
	tests/lib/run-tests.sh $(PUBLISH_BATS)
	tests/lib/publish-table.sh

FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))

.PHONY: fuzz
fuzz: $(FUZZERS) ## each fuzzer for FUZZ_SECONDS
	printf '%s\n' $(FUZZERS) | xargs -P $(shell nproc) -n 1 sh -c '"$$0" \
		-max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=20 -print_final_stats=0 -verbosity=0'

FUZZ_SOURCES := $(wildcard builder/initramfs*.c builder/config*.c builder/qcow2*.c builder/fatfs-*.c \
		builder/bls*.c builder/cmdline*.c builder/default-grub*.c builder/toml*.c builder/module-*.c) \
	$(addprefix builder/,$(addsuffix .c,containerd-files containerd-edits containerd-paths \
		containerd-wanted containerd-dump clock error fd grubenv json-text log proc rootfs str sums uki)) \
	$(addprefix publish/,$(addsuffix .c,jwt layout oci-challenge xml-tags))
FUZZ_OBJECTS := $(FUZZ_SOURCES:%.c=$(BUILD)/fuzz/%.o)
FUZZ_CFLAGS  := -std=c17 -g -O1 -pthread
.SECONDARY: $(FUZZ_OBJECTS)
$(FUZZ_OBJECTS): $(BUILD)/fuzz/%.o: %.c
	@mkdir -p $(@D)
	$(SAY) FUZZ $<
	$(RUN)clang $(OUR_CPPFLAGS) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link,address,undefined -c -o $@ $<

$(BUILD)/fuzz/%: tests/fuzz/%.c $(FUZZ_OBJECTS)
	@mkdir -p $(@D)
	$(SAY) FUZZ $<
	$(RUN)clang $(OUR_CPPFLAGS) $(FUZZ_CFLAGS) -fsanitize=fuzzer,address,undefined \
		-o $@ $< $(FUZZ_OBJECTS) $(PKG_LIBS)

# --- how fast ----------------------------------------------------------------------------

BENCH_ARGS ?=

.PHONY: bench
bench: all ## measure against virt-customize and a root script; BASE=file, BENCH_ARGS='-n 3 --write-docs'
	tools/install-deps.sh build bench
	tools/bench.sh --gpuimg $(BUILD)/gpuimg $(if $(BASE),--base '$(BASE)') $(BENCH_ARGS)

.PHONY: bench-growth
bench-growth: all ## gpuimg's cost by kernels and by data
	tools/install-deps.sh build bench
	tools/bench.sh --gpuimg $(BUILD)/gpuimg --growth $(BENCH_ARGS)

.PHONY: bench-publish
bench-publish: all ## publish of 2 GB against 'curl -T' to the same servers; as root
	tools/install-deps.sh build test publish
	tools/bench-publish.sh --gpuimg $(BUILD)/gpuimg $(BENCH_ARGS)

# --- for those who change it -------------------------------------------------------------

.PHONY: lint
lint: format-check ## compilers' warnings, clang-tidy, cppcheck, shellcheck, formatting
	$(MAKE) BUILD=$(BUILD)/lint-gcc CC=gcc CFLAGS='-O2 -Werror' all units tries
	$(MAKE) BUILD=$(BUILD)/lint-clang CC=clang CFLAGS='-O1 -Werror' all units tries
	printf '%s\n' $(filter %.c,$(C_FILES)) | xargs -P 2 -n 8 sh -c \
		'clang-tidy --quiet "$$@" -- -std=c17 $(OUR_CPPFLAGS_TIDY)' sh
	# resourceLeak: cppcheck does not know the cleanup attribute; the analyzer above does
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
		-D__cppcheck__ --suppress=missingIncludeSystem --suppress=resourceLeak \
		--error-exitcode=1 -I. builder stages publish
	shellcheck $(SH_FILES)
OUR_CPPFLAGS_TIDY = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -DGPUIMG_VERSION=\"\" \
	-DGPUIMG_DATADIR=\"\" $(PKG_CFLAGS)

.PHONY: format
format:
	clang-format -i $(C_FILES)

.PHONY: format-check
format-check:
	clang-format --dry-run --Werror $(C_FILES)

.PHONY: dist
dist: ## a source archive of the commit
	mkdir -p $(BUILD)
	git archive --prefix=gpuimg-$(VERSION)/ -o $(BUILD)/gpuimg-$(VERSION).tar.gz HEAD

.PHONY: clean
clean:
	rm -rf $(BUILD)

.PHONY: help
help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r t w; do \
		printf '  %-12s %s\n' "$$t" "$$w"; done
