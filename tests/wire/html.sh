#!/bin/bash
# SPDX-License-Identifier: MIT
# The page of nullb-compare in a real browser: light and dark, at a desk's and
# a telephone's width, without a network.  tests/lib/browser.py looks at it.  The
# pages are of made-up runs (unit/html writes them): the same each time.
# KEEP=DIRECTORY keeps the pictures.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"

look=$(dirname "$0")/../lib/browser.py
writer=$(dirname "$NULLBD")/unit/html

command -v chromium-headless-shell >/dev/null ||
	fail "chromium-headless-shell is missing: make deps-check installs it"
[ -x "$writer" ] || fail "$writer is missing: make check builds it"

# Nothing answers in a network namespace of its own.  Where none may be made,
# what the page asks for is counted all the same.
offline=
for how in 'unshare -n' 'unshare -rn'; do
	# shellcheck disable=SC2086 # words
	if $how true 2>/dev/null; then
		offline=$how
		break
	fi
done
echo "without a network: ${offline:-no, it cannot be taken away here}"

# look_at PAGE ARGUMENT...
look_at() {
	# shellcheck disable=SC2086 # words
	$offline /usr/bin/python3 "$look" "$1" "$tmp" "${@:2}" >"$tmp/said" 2>&1
}

# seen KIND [full] [LOOK]...: the page of that kind is as it should be
seen() {
	"$writer" "$1" "$tmp/$1.html" || fail "$writer cannot write '$1'"
	look_at "$tmp/$1.html" "${@:2}"
	status=$?
	sed "s/^/$1: /" "$tmp/said"
	[ -z "${KEEP:-}" ] || cp "$tmp/$1"*.png "$tmp/$1.html" "$KEEP"
	[ $status -eq 0 ] || {
		tail -n 5 "$tmp/browser.log" >&2
		fail "the page '$1': see above"
	}
}

seen usual full
seen large full light-desk dark-phone
seen hostile full dark-desk light-phone
seen one light-desk
seen empty dark-phone

# caught WHAT EXPRESSION PATTERN: what is wrong with a page that sed has
# changed so is found, and said: no check above is one that cannot fail
caught() {
	sed "$2" "$tmp/usual.html" >"$tmp/bad.html"
	cmp -s "$tmp/usual.html" "$tmp/bad.html" && fail "$1: sed changed nothing"
	look_at "$tmp/bad.html" full dark-desk && fail "$1: nobody sees it"
	grep -q -e "$3" "$tmp/said" || {
		cat "$tmp/said" >&2
		fail "$1: that is not what it says"
	}
	echo "caught: $1"
}

caught 'one colour for both sides' 's|--other:#f0a030|--other:#56b4e9|' \
	'cannot tell'
caught 'no dark' 's|prefers-color-scheme:dark|prefers-color-scheme:no|' \
	'dark-desk: the ground'
caught 'what is too wide' 's|<h1>|<h1 style="width:1500px">|' \
	'too wide: H1'
[ -n "${NULLB_LONG:-}" ] || exit 0
caught 'a picture from elsewhere' \
	's|<h1>|<img src="http://192.0.2.1/x.png" alt="">&|' 'asks for http://192'
caught 'text that is too faint' 's|--soft:#9aa4ae|--soft:#4a4f55|' 'contrast of'
caught 'an element that is never closed' 's|</h1>||' 'HTML:'
caught 'pictures without lines' 's|<svg |&style="visibility:hidden" |' \
	'pixels of'
caught 'figures that are not on paper' 's|details::details-content|x-none|' \
	'print: '
exit 0
