#!/bin/sh
# SPDX-License-Identifier: MIT
# All C is as clang-format leaves it.
cd "$(dirname "$0")/../.." || exit 1
command -v clang-format >/dev/null || {
	echo "skipped: clang-format is missing"
	exit 77
}
git ls-files -co --exclude-standard '*.[ch]' | xargs clang-format --dry-run -Werror 2>&1 | head -n 40
test "$(git ls-files -co --exclude-standard '*.[ch]' | xargs clang-format --output-replacements-xml | grep -c '<replacement ')" = 0
