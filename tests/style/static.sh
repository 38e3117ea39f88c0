#!/bin/sh
# SPDX-License-Identifier: MIT
# cppcheck and clang-tidy have nothing to say (.clang-tidy says what is asked).
cd "$(dirname "$0")/../.." || exit 1
for tool in cppcheck clang-tidy; do
	command -v $tool >/dev/null || {
		echo "skipped: $tool is missing"
		exit 77
	}
done
# its lists and trees are macros that cppcheck must see to understand the code
queue_h=$(echo '#include <sys/queue.h>' | gcc -E - |
	sed -n 's/^# 1 "\(.*sys\/queue\.h\)".*/\1/p' | head -n 1)
cppcheck --quiet --std=c11 --enable=warning,performance,portability \
	--inline-suppr --suppress=missingIncludeSystem --error-exitcode=1 \
	--include="$queue_h" --include=/usr/include/bsd/sys/tree.h --include=tests/style/cppcheck.h \
	-D_GNU_SOURCE -Idaemon -Iplugins -j 2 daemon plugins || exit 1
# the analyzer gives a function up early: all that has been found was found by
# then, in a third of the time
nodes=30000
[ -z "${NULLB_LONG:-}" ] || nodes=225000 # its default
tidy() {
	git ls-files -co --exclude-standard 'daemon/*.c' 'plugins/*.c' |
		xargs -P 2 -I FILE clang-tidy --quiet --warnings-as-errors='*' \
			--extra-arg=-Xclang --extra-arg=-analyzer-config \
			--extra-arg=-Xclang --extra-arg=max-nodes=$nodes \
			FILE -- -std=gnu17 -D_GNU_SOURCE -Idaemon -Iplugins $(pkg-config --cflags libnl-genl-3.0 fuse3 libmicrohttpd) \
			-DNULLBD_VERSION='"0"' 2>&1 |
		grep -v ' warnings\{0,1\} generated\|^Suppressed\|^Use -header'
}
tidy && exit 1
exit 0
