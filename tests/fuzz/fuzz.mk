# SPDX-License-Identifier: MIT
# Fuzzing, see tests/fuzz/README.md: make fuzz FUZZ_SECONDS=600, or of some
# targets alone, make fuzz FUZZ="config control".

fuzz_targets := handshake transmission config control iolog
FUZZ         ?= $(fuzz_targets)
FUZZ_SECONDS ?= 60

fuzzers  := $(patsubst %,$(B)/fuzz/%,$(fuzz_targets))
fuzz_obj := $(call obj,$(patsubst %,tests/fuzz/%.c,fuzz oracle peer)) \
	    $(call obj,daemon/replay.c)
# Whose main() it is: ours, which takes files, or libFuzzer's (FUZZ_LINK).
FUZZ_MAIN = $(call obj,tests/fuzz/standalone.c)
FUZZ_LINK =

$(fuzzers): $(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(fuzz_obj) $(FUZZ_MAIN) \
    $(B)/libupper.a $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(FUZZ_LINK) $(LIBS_CTL)

$(B)/dict: $(call obj,tests/fuzz/dict.c) $(B)/libupper.a $(B)/libnullb.a
	@mkdir -p $(@D)
	$(E) '  LD    $@'
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS_CTL)

# What looks for paths is to look for those of the daemon.
$(B)/obj/tests/fuzz/%.o: override SAN := $(filter-out %fuzzer-no-link,$(SAN))

.PHONY: fuzzers fuzz
fuzzers: $(fuzzers) $(B)/dict
tests cores: $(fuzzers)

# Warnings are gcc's affair.  clang lacks the macro by which gcc tells that it
# is ASan's.
FUZZ_SAN := -fsanitize=fuzzer-no-link $(ASAN) -D__SANITIZE_ADDRESS__
fuzz: deps-fuzz
	@$(MAKE) --no-print-directory -j2 B=$(B)/clang CC=clang OPT='-O2 -g' \
	    WARN=-w SAN='$(FUZZ_SAN)' FUZZ_MAIN= FUZZ_LINK=-fsanitize=fuzzer fuzzers
	@tests/fuzz/fuzz $(B)/clang/fuzz $(FUZZ_SECONDS) $(FUZZ)
