# SPDX-License-Identifier: MIT
# Three public experiments, see tests/experiment/README.md: RUNTIME= seconds of
# a run, ROUNDS= runs a side.

.PHONY: experiment-A experiment-B experiment-C
experiment-A: deps-demo
	@$(MAKE) --no-print-directory all $(B)/pipe/report_a >&2
	@B=$(B) tests/experiment/a
experiment-B: deps-kernel
	@$(MAKE) --no-print-directory all $(guest_programs) >&2
	@B=$(B) tests/experiment/b
experiment-C: deps-demo
	@$(MAKE) --no-print-directory all >&2
	@B=$(B) tests/experiment/c
