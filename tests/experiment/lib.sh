# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the experiments share: a comparison as a table in Markdown, with what was
# published beside it.  Sourced from the top of the project.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

B=${B:-build}
RUNTIME=${RUNTIME:-5}
ROUNDS=${ROUNDS:-8}
WARM_UP=${WARM_UP:-1}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

die() {
	echo "$0: $*" >&2
	exit 1
}

# compare BASE OTHER JOB [OPTION]...: into $tmp/csv
compare() {
	local base=$1 other=$2 job=$3

	shift 3
	"$B"/nullb-compare --csv --rounds "$ROUNDS" --warm-up "$WARM_UP" \
		--runtime "$RUNTIME" "$@" "$base" "$other" "$job" >"$tmp/csv" ||
		die "nullb-compare $base $other $job"
}

# verdict: the headline figures that differ
verdict() {
	awk -F , '
		NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
		$column["headline"] == "yes" && $column["differs"] == "yes" {
			printf "%s%s %+.1f%%", n++ ? ", " : "", $1,
				100 * $column["change"]
		}
		END { print (n ? "" : "no difference that these runs can show") }
	' "$tmp/csv"
}

# of FIGURE COLUMN: from the last comparison; "-" when there is none
of() {
	awk -F , -v name="$1" -v column="$2" '
		NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) c = i }
		$1 == name { print $c; found = 1; exit }
		END { if (!found) print "-" }' "$tmp/csv"
}

# mean FIGURE SIDE [SCALE]: with three digits at least
mean() {
	of "$1" "$2_mean" | awk -v scale="${3:-1}" '
		$1 == "-" { print; exit }
		{
			x = $1 / scale
			printf((x >= 100 ? "%.0f" : x >= 10 ? "%.1f" : "%.2f"), x)
		}'
}

# change FIGURE: "+1.2%", bold when it is more than chance
change() {
	local mark=

	[ "$(of "$1" differs)" != yes ] || mark='**'
	of "$1" change | awk -v mark="$mark" '
		$1 == "-" || $1 == "" { print "-"; exit }
		{ printf "%s%+.1f%%%s", mark, 100 * $1, mark }'
}

# agrees FIGURE PUBLISHED_PERCENT: in words
agrees() {
	local differs

	differs=$(of "$1" differs)
	of "$1" change | awk -v published="$2" -v differs="$differs" '
		{
			none = published > -1 && published < 1
			if (differs != "yes")
				print (none ? "agrees: none" : "no difference here")
			else if (none)
				print "differs here only"
			else
				print ($1 * published > 0 ? "same direction" : \
					"other direction")
		}'
}

when() {
	printf '%s, %s, nullbd %s, %s, %s CPUs\n' "$(date +%F)" "$(fio --version)" \
		"$("$B"/nullbd --version | awk '{ print $2 }')" "$(uname -sr)" "$(nproc)"
}
