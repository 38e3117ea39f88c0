# SPDX-License-Identifier: MIT
# The benchmark, see tests/bench/README.md: make bench QUICK=1, or PROFILE=quick,
# full or "one CASE...".

PROFILE ?= $(if $(filter-out 0,$(QUICK)),quick,full)

bench_bin := $(B)/bench/load $(B)/bench/floor

$(bench_bin): $(B)/bench/%: tests/bench/%.c $(wildcard tests/bench/*.h)
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $<

.PHONY: bench
bench: all $(bench_bin)
	B=$(B) tests/bench/bench $(PROFILE)

# How exact completions are: a table in Markdown.
.PHONY: bench-timer
bench-timer: all $(bench_bin)
	@B=$(B) tests/bench/timer

# Single-page beside multipage bvecs, in-process: a table in Markdown.
$(B)/bench/multipage: $(B)/obj/tests/bench/multipage.o $(B)/libupper.a $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_CTL)

.PHONY: experiment-multipage
experiment-multipage: $(B)/bench/multipage
	@$(B)/bench/multipage

# What a bio costs, for tests/wire/cost.sh to count.
$(B)/bench/cost: $(B)/obj/tests/bench/cost.o $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ -lm

tests: $(B)/bench/cost $(B)/bench/load
