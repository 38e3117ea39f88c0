#!/bin/bash
# SPDX-License-Identifier: MIT
# ITEMS says which case checks which item of spec/nbd-protocol.md.  It is made
# from the tables of cases: `items.sh --update` writes it, without argument
# this checks that it is up to date and that no item is forgotten.

set -u -o pipefail
cd "$(dirname "$0")" || exit 1

# Items that no case can check, and why.
not_tested() {
	cat <<-'END'
	N37	-	listing cannot be disabled
	N78	-	structured replies are never refused
	N125	-	an error is known before the header is sent
	END
}

# CASE("items", "a " "sentence", function): one line an item
cases() {
	awk '
	/CASE\(/ { text = ""; open = 1 }
	open { text = text $0 }
	open && /\),?$/ {
		open = 0
		n = 0
		sentence = ""
		while (match(text, /"([^"\\]|\\.)*"/)) {
			s = substr(text, RSTART + 1, RLENGTH - 2)
			text = substr(text, RSTART + RLENGTH)
			if (!n++)
				items = s
			else
				sentence = sentence s
		}
		k = split(items, item, " ")
		for (i = 1; i <= k; i++)
			print item[i] "\t" FILENAME "\t" sentence
	}' ./*.c | sed 's/\t\.\//\t/'
}

table() {
	echo "# item, test file, case: made by items.sh --update"
	{ cases | grep '^N[0-9]'; not_tested; } | sort -t N -k 2n -s
	cases | grep -v '^N[0-9]'
}

if [ "${1-}" = --update ]; then
	table >ITEMS
	exit
fi
table | diff -u ITEMS - || {
	echo "ITEMS is not up to date: tests/wire/items.sh --update"
	exit 1
}
missing=
for n in {1..182}; do
	grep -q "^N$n	" ITEMS || missing+=" N$n"
done
[ -z "$missing" ] || {
	echo "no case checks$missing"
	exit 1
}
echo "$(grep -c '^N' ITEMS) lines, no item forgotten"
