# SPDX-License-Identifier: MIT
# nullbd: `make help` says what there is to make.

PREFIX  ?= /usr/local
DESTDIR ?=
B       ?= build
CC      ?= gcc
VERSION := 0.1.0

# What is needed, as Debian 12 names it.  `make deps` installs what is missing.
DEPS_BUILD := gcc make pkg-config libc6-dev libev-dev libinih-dev libjansson-dev libbsd-dev uthash-dev libfuse3-dev \
	      libgnutls28-dev libnl-genl-3-dev libmicrohttpd-dev nbdkit-plugin-dev \
	      libgsl-dev
DEPS_DEMO  := fio
DEPS_CHECK := valgrind strace libcmocka-dev libnbd-dev libnbd-bin python3-libnbd fio nbd-client qemu-utils \
	      e2fsprogs blktrace clang-format clang-tidy cppcheck mandoc systemd gnutls-bin nbdkit \
	      curl python3-prometheus-client \
	      chromium-headless-shell python3-pil python3-html5lib \
	      libsqlite3-dev
DEPS_KERNEL := qemu-system-x86 busybox-static kmod cpio xz-utils zstd fio nbd-client \
	       fdisk e2fsprogs xfsprogs btrfs-progs lvm2 cryptsetup-bin libsqlite3-dev
DEPS_BENCH := fio libnbd-dev nbdkit nbd-server qemu-utils strace
DEPS_FUZZ  := clang libclang-rt-dev

WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wconversion \
	    -Wno-sign-conversion -Wmissing-prototypes -Wpointer-arith -Wformat=2
OPT      ?= -O2 -g
SAN      ?=
CFLAGS   ?=
# make V=1 shows the commands
E        := $(if $(V),@:,@echo)
Q        := $(if $(V),,@)
# As all of it may be part of a plugin; hidden, so that it costs nothing.
PIC      := -fPIC -fvisibility=hidden
ALL_CFLAGS = -std=gnu17 $(OPT) $(WARN) $(SAN) $(PIC) -fno-strict-aliasing -pthread \
	    -D_GNU_SOURCE -DNULLBD_VERSION='"$(VERSION)"' -Idaemon -Iplugins -Itests \
	    $(shell pkg-config --cflags jansson inih libnl-genl-3.0 fuse3 libmicrohttpd 2>/dev/null) $(CFLAGS)
LIBS_CTL = $(shell pkg-config --libs jansson inih 2>/dev/null) -lm
LIBS_EV  = -lev
LIBS_FUSE = $(shell pkg-config --libs fuse3 2>/dev/null)
LIBS_HTTP = $(shell pkg-config --libs libmicrohttpd 2>/dev/null)
LIBS_TLS = $(shell pkg-config --libs gnutls 2>/dev/null)
LIBS_NL  = $(shell pkg-config --libs libnl-genl-3.0 2>/dev/null)
LIBS_NBD = $(shell pkg-config --libs libnbd 2>/dev/null)
LIBS_STAT = $(shell pkg-config --libs gsl jansson 2>/dev/null) -lm

# ---------------------------------------------------------------- what there is

core_src  := $(wildcard daemon/base/*.c daemon/blk/*.c daemon/dev/*.c)
upper_src := $(wildcard daemon/nbd/*.c daemon/ctl/*.c)
compare_src := $(wildcard daemon/compare/*.c)
replay_src := daemon/nullb-replay.c daemon/replay.c
calibrate_src := daemon/nullb-calibrate.c
client_src := daemon/nullbctl.c daemon/ask.c daemon/report.c daemon/attach.c daemon/persist.c
comparer_src := daemon/nullb-compare.c daemon/bench.c daemon/heat.c
main_src  := $(filter-out $(client_src) $(replay_src) $(comparer_src) $(calibrate_src),$(wildcard daemon/*.c))
unit_src  := $(wildcard tests/unit/*.c)
pipe_src  := $(wildcard tests/pipe/*.c)
wire_src  := $(wildcard tests/wire/*.c)
tls_src   := tests/lib/tls.c
lib_src   := $(filter-out $(tls_src),$(wildcard tests/lib/*.c))
wire_sh   := $(wildcard tests/wire/*.sh)
style_sh  := $(wildcard tests/style/*.sh)
man_src   := $(wildcard daemon/*.[1578].in)

# Where nbdkit looks for plugins; nothing of ours where it cannot be asked.
plugin_dir := $(shell pkg-config --variable=plugindir nbdkit 2>/dev/null)
ifneq ($(plugin_dir),)
plugin    := $(B)/nbdkit-nullb-plugin.so
man_src   += $(wildcard plugins/*.1.in)
endif

obj   = $(patsubst %.c,$(B)/obj/%.o,$(1))
units := $(patsubst tests/unit/%.c,$(B)/unit/%,$(unit_src))
compare_units := $(patsubst daemon/compare/%.c,$(B)/unit/%,$(compare_src))
pipes := $(patsubst tests/pipe/%.c,$(B)/pipe/%,$(pipe_src))
wires := $(patsubst tests/wire/%.c,$(B)/wire/%,$(wire_src))
mans  := $(addprefix $(B)/man/,$(notdir $(man_src:.in=)))

.PHONY: all
all: $(B)/nullbd $(B)/nullbctl $(B)/nullb-replay $(B)/nullb-compare \
     $(B)/nullb-calibrate $(B)/libnullb.a $(plugin) $(mans)

$(B)/libnullb.a: $(call obj,$(core_src))
	$(E) '  AR    $@'
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/libupper.a: $(call obj,$(upper_src))
	$(E) '  AR    $@'
	$(Q)rm -f $@ && ar rcs $@ $^

# Statistics of several runs: what it needs, no daemon does.
$(B)/libcompare.a: $(call obj,$(compare_src))
	$(E) '  AR    $@'
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/nullbd: $(call obj,$(main_src)) $(B)/libupper.a $(B)/libnullb.a
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_EV) $(LIBS_FUSE) $(LIBS_HTTP) $(LIBS_TLS) $(LIBS_CTL)

$(B)/nullbctl: $(call obj,$(client_src)) $(B)/libupper.a $(B)/libnullb.a
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_NL) $(LIBS_CTL)

$(B)/nullb-replay: $(call obj,$(replay_src)) $(B)/libupper.a $(B)/libnullb.a
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_CTL)

$(B)/nullb-compare: $(call obj,$(comparer_src) daemon/ask.c) $(B)/libcompare.a $(B)/libupper.a $(B)/libnullb.a
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_STAT) $(LIBS_CTL)

$(B)/nullb-calibrate: $(call obj,$(calibrate_src)) $(B)/libupper.a $(B)/libnullb.a
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_CTL)

$(B)/nbdkit-nullb-plugin.so: $(call obj,$(wildcard plugins/*.c)) $(B)/libupper.a $(B)/libnullb.a
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -shared -o $@ $^ $(LIBS_CTL)

$(B)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(E) '  CC    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Tests do not need to be fast, but to be there soon: this halves what they take
# to compile, for a twentieth more when they run.
TEST_OPT ?= -Og -g1
test_obj := $(foreach d,lib pipe unit wire,$(B)/obj/tests/$(d)/%.o)
$(test_obj): override OPT = $(TEST_OPT)

$(filter-out $(compare_units),$(units)): $(B)/unit/%: $(B)/obj/tests/unit/%.o $(B)/libupper.a $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -lcmocka $(LIBS_CTL)

$(filter $(compare_units),$(units)): $(B)/unit/%: $(B)/obj/tests/unit/%.o $(B)/libcompare.a $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -lcmocka $(LIBS_STAT)

$(B)/unit/service: $(call obj,plugins/service.c)

$(filter-out $(B)/pipe/device_curves,$(pipes)): $(B)/pipe/%: $(B)/obj/tests/pipe/%.o $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -lcmocka -lm

# what conf/devices/*.conf give: the tables in their comments
$(B)/pipe/device_curves: $(B)/obj/tests/pipe/device_curves.o $(B)/libupper.a \
    $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_CTL)

.PHONY: device-curves
device-curves: $(B)/pipe/device_curves
	$(B)/pipe/device_curves --update

# what real kernels did
$(B)/pipe/counters $(B)/pipe/traces: $(call obj,tests/lib/counted.c)

$(wires): $(B)/wire/%: $(B)/obj/tests/wire/%.o $(call obj,$(lib_src))
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -lcmocka $(LIBS_NBD)

$(B)/soak: $(call obj,tests/soak/soak.c $(lib_src))
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -lcmocka $(LIBS_NBD)

# what runs in a guest
guest_programs := $(addprefix $(B)/kernel/,msync-mt fsync-load sqlite-load)
$(guest_programs): $(B)/kernel/%: $(B)/obj/tests/kernel/%.o
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)
$(B)/kernel/sqlite-load: LIBS += -lsqlite3

# a client with TLS
$(B)/wire/tls: $(call obj,$(tls_src))
$(B)/wire/tls: LIBS_NBD += $(LIBS_TLS)

# A manual page: where it says @devices@ or @daemon@ the attribute table goes.
vpath %.in daemon plugins
$(B)/man/%: %.in $(B)/nullbd
	@mkdir -p $(@D)
	$(E) '  MAN   $@'
	$(Q)$(B)/nullbd --man-devices >$@.devices
	$(Q)$(B)/nullbd --man-daemon >$@.daemon
	$(Q)sed -e 's/@version@/$(VERSION)/' -e '/^@devices@$$/{r $@.devices' \
	    -e 'd}' -e '/^@daemon@$$/{r $@.daemon' -e 'd}' $< >$@
	@rm -f $@.devices $@.daemon

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# ------------------------------------------------------------------ what to do

.PHONY: help
help:
	@echo 'make            build/nullbd, build/nullbctl, build/nullb-replay,'
	@echo '                build/nullb-compare, build/nullb-calibrate,'
	@echo '                build/libnullb.a, manuals, a plugin for nbdkit'
	@echo 'make demo       install what is missing, build, stress a device with fio'
	@echo 'make check      install what is missing, build, run every test'
	@echo 'make check-kernel'
	@echo '                attach it in real kernels, which qemu boots: 20 minutes'
	@echo 'make bench      compare with other NBD servers: an hour, QUICK=1 two minutes'
	@echo 'make bench-timer'
	@echo '                how exact completion_nsec is, and what it costs'
	@echo 'make experiment-multipage'
	@echo '                single-page beside multipage bvecs, in numbers'
	@echo 'make experiment-A experiment-B experiment-C'
	@echo '                three public experiments again, beside what was published'
	@echo 'make device-curves'
	@echo '                what conf/devices/*.conf give: the tables in them'
	@echo 'make soak       SECONDS=$(SECONDS) among clients of every kind, under ASan,'
	@echo '                then under TSan'
	@echo 'make fuzz       libFuzzer on all that reads what others send or write:'
	@echo '                FUZZ_SECONDS=60 each'
	@echo 'make asan tsan  build/asan, build/tsan: everything under a sanitizer'
	@echo 'make install    DESTDIR=$(DESTDIR) PREFIX=$(PREFIX);  make uninstall'
	@echo 'make deps       install what building and testing need (Debian)'
	@echo 'make clean'

.PHONY: deps deps-build deps-demo deps-check deps-kernel deps-bench deps-fuzz
deps: deps-check deps-kernel deps-bench deps-fuzz
deps-build: ; @tests/deps $(DEPS_BUILD)
deps-demo:  ; @tests/deps $(DEPS_BUILD) $(DEPS_DEMO)
deps-check: ; @tests/deps $(DEPS_BUILD) $(DEPS_CHECK)
deps-kernel: ; @tests/deps $(DEPS_BUILD) $(DEPS_KERNEL)
deps-bench: ; @tests/deps $(DEPS_BUILD) $(DEPS_BENCH)
deps-fuzz:  ; @tests/deps $(DEPS_BUILD) $(DEPS_FUZZ)

.PHONY: demo
demo: deps-demo
	@$(MAKE) --no-print-directory all
	@tests/demo

ASAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined
TSAN := -fsanitize=thread
# What of it: make check takes only what is run, for clients need no sanitizer.
WHAT ?= tests
.PHONY: asan tsan tests cores threads
asan:
	@$(MAKE) --no-print-directory B=$(B)/asan SAN='$(ASAN)' OPT='-O1 -g1' $(WHAT)
tsan:
	@$(MAKE) --no-print-directory B=$(B)/tsan SAN='$(TSAN)' OPT='-O1 -g1' $(WHAT)
tests: all $(units) $(pipes) $(wires) $(guest_programs)
programs := $(B)/nullbd $(B)/nullbctl $(B)/nullb-replay $(B)/nullb-compare $(B)/nullb-calibrate $(plugin)
sanitized_pipes := worked_examples deadline freeze batching traces
cores: $(programs) $(units) $(addprefix $(B)/pipe/,$(sanitized_pipes))
threads: $(programs) $(patsubst tests/unit/%.c,$(B)/unit/%,\
    $(shell grep -l pthread_create tests/unit/*.c))

.PHONY: check
check: deps-check
	@$(MAKE) --no-print-directory -j2 tests
	@$(MAKE) --no-print-directory -j2 asan WHAT=cores
	@$(MAKE) --no-print-directory -j2 tsan WHAT=threads
	@tests/check $(B)

# /dev/nbdX in real kernels, which qemu emulates.
.PHONY: check-kernel
check-kernel: deps-kernel
	@$(MAKE) --no-print-directory -j2 all $(guest_programs)
	@tests/kernel/check $(B)

# Both daemons, so long each: tests/soak/soak.c says what is looked at.
SECONDS ?= 600
.PHONY: soak
soak: deps-check $(B)/soak
	@$(MAKE) --no-print-directory B=$(B)/asan SAN='$(ASAN)' OPT='-O1 -g1' all
	@$(MAKE) --no-print-directory B=$(B)/tsan SAN='$(TSAN)' OPT='-O1 -g1' all
	ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16 \
	    NULLBD=$(B)/asan/nullbd $(B)/soak $(SECONDS)
	TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp halt_on_error=1 history_size=7" \
	    NULLBD=$(B)/tsan/nullbd $(B)/soak $(SECONDS)

.PHONY: install uninstall
bin_dir := $(DESTDIR)$(PREFIX)
completion_dir := $(bin_dir)/share/bash-completion/completions
unit_dir := $(bin_dir)/lib/systemd/system
units_src := $(wildcard conf/systemd/*)
install: all
	install -d $(bin_dir)/sbin $(bin_dir)/bin $(bin_dir)/share/doc/nullbd
	install -m 755 $(B)/nullbd $(bin_dir)/sbin/
	install -m 755 $(B)/nullbctl $(B)/nullb-replay $(B)/nullb-compare $(B)/nullb-calibrate daemon/nullb-sysfs \
	    $(bin_dir)/bin/
ifneq ($(plugin),)
	install -d $(DESTDIR)$(plugin_dir)
	install -m 644 $(plugin) $(DESTDIR)$(plugin_dir)/
endif
	for m in $(mans); do s=$${m##*.}; install -d $(bin_dir)/share/man/man$$s && \
	    install -m 644 $$m $(bin_dir)/share/man/man$$s/ || exit 1; done
	install -d $(completion_dir) $(unit_dir)
	install -m 644 daemon/nullbctl.bash $(completion_dir)/nullbctl
	for u in $(units_src); do sed 's|/usr/local/|$(PREFIX)/|' $$u \
	    >$(unit_dir)/$${u##*/} && chmod 644 $(unit_dir)/$${u##*/} || exit 1; done
	install -m 644 README.md LICENSE $(bin_dir)/share/doc/nullbd/
	cp -r conf $(bin_dir)/share/doc/nullbd/

uninstall:
	rm -f $(bin_dir)/sbin/nullbd $(bin_dir)/bin/nullbctl $(bin_dir)/bin/nullb-replay \
	    $(bin_dir)/bin/nullb-compare $(bin_dir)/bin/nullb-calibrate $(bin_dir)/bin/nullb-sysfs
ifneq ($(plugin),)
	rm -f $(DESTDIR)$(plugin_dir)/$(notdir $(plugin))
endif
	for m in $(notdir $(mans)); do rm -f $(bin_dir)/share/man/man$${m##*.}/$$m; done
	rm -f $(patsubst conf/systemd/%,$(unit_dir)/%,$(units_src))
	rm -f $(completion_dir)/nullbctl
	rm -rf $(bin_dir)/share/doc/nullbd

.PHONY: clean
clean:
	rm -rf $(B)

-include tests/bench/bench.mk
-include tests/experiment/experiment.mk
-include tests/fuzz/fuzz.mk
