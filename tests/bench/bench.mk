# SPDX-License-Identifier: MIT
# The benchmark, see tests/bench/README.md. PROFILE is quick, full or "one CASE...".

PROFILE ?= quick

bench_bin := $(B)/bench/load $(B)/bench/floor

$(bench_bin): $(B)/bench/%: tests/bench/%.c $(wildcard tests/bench/*.h)
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $<

.PHONY: bench
bench: all $(bench_bin)
	B=$(B) tests/bench/bench $(PROFILE)
