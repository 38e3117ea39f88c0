#!/bin/bash
# SPDX-License-Identifier: MIT
# What null_blk of real kernels answered to values of its attributes
# (tests/data/writes.tsv, power-on-all.tsv), and what nullbd does with the same,
# over the control socket and in a configuration file.  Where it answers otherwise
# a line of differences() says so; nullbd-null_blk(7) has them with reasons.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"
data=$(dirname "$0")/../data

[ -x "$NULLBCTL" ] || fail "$NULLBCTL is not there"
# KERNEL POWER ATTRIBUTE "VALUE", or KERNEL power SETTINGS, all of them patterns; what
# we answer, and what the attribute reads then: = is what it did before
differences() {
	cat <<-'END'
		* * * ""|EINVAL|=
		* off size "1k"|OK|1024B
		* off blocksize "1k"|OK|1024
		* off cache_size "1k"|OK|1024B
		* off zone_size "1k"|OK|1024B
		* off zone_capacity "1k"|OK|1024B
		* off size "9223372036854775807"|ERANGE|=
		* off size "18446744073709551615"|ERANGE|=
		* off cache_size "9223372036854775807"|ERANGE|=
		* off cache_size "18446744073709551615"|ERANGE|=
		* off zone_size "9223372036854775807"|ERANGE|=
		* off zone_size "18446744073709551615"|ERANGE|=
		* off zone_capacity "9223372036854775807"|ERANGE|=
		* off zone_capacity "18446744073709551615"|ERANGE|=
		* on irqmode "[12]"|OK|[12]
		* on completion_nsec "*"|OK|*
		* on mbps "[012]"|OK|[012]
		* on cache_size "[012]"|OK|0
		* power blocksize=0|EINVAL|
		* power size=8796093022208|ERANGE|
		* power size=17592186044415|ERANGE|
		6.1 power max_sectors=[17]|EINVAL|
		6.1 power max_sectors=7 blocksize=4096|EINVAL|
		* power poll_queues=0 queue/nr_requests||64
		* power poll_queues=0 queue/scheduler||none
		* power shared_tags=1 hw_queue_depth=8 queue/nr_requests||8
		6.1 power zoned=1* queue/nr_requests||64
		6.1 power zoned=1* queue/scheduler||none
	END
}

mapfile -t rules < <(differences)
declare -A used

# differs CASE ERROR READS BEFORE: does a rule say that of it?
differs() {
	local rule key error reads

	for rule in "${rules[@]}"; do
		IFS='|' read -r key error reads <<<"$rule"
		[ "$reads" != = ] || reads=${4//\\/\\\\}
		# shellcheck disable=SC2053 # patterns are meant
		[[ $1 == $key && $2 == "$error" && $3 == $reads ]] || continue
		used[$rule]=yes
		return 0
	done
	return 1
}

# ctl ARGUMENT...: $out, and $error: OK, or as errno has it
ctl() {
	out=$("$NULLBCTL" --control "$control" --json -- "$@" 2>/dev/null)
	error=OK
	[[ $out == '{"ok":true'* ]] || error=${out#*\"errno\":\"}
	error=${error%%\"*}
}

# reads DEVICE ATTRIBUTE: $value
reads() {
	value=$("$NULLBCTL" --control "$control" get "$1" "$2") ||
		fail "$1: $2 cannot be read"
}

must() {
	ctl "$@"
	[ "$error" = OK ] || fail "$*: $out"
}

# rows FILE: without comments, where an empty field is none that read would skip
rows() {
	sed '/^#/d; s/\t/|/g' "$data/$1"
}

# ---- each value, while off and on

start_nullbd --workers 2 none:size=1M
for kernel in 6.1 6.12; do
	must create "$kernel-off" kernel=$kernel power=0
	must create "$kernel-on" kernel=$kernel size=64
done
nr=0
declare -A last
said=()
while IFS='|' read -r kernel power attribute text want wanted; do
	device=$kernel-$power
	nr=$((nr + 1))
	if [ -z "${last[$device $attribute]+set}" ]; then
		reads "$device" "$attribute"
		last[$device $attribute]=$value
	fi
	before=${last[$device $attribute]}
	ctl set "$device" "$attribute" "${text//'\n'/$'\n'}"
	got=$error
	reads "$device" "$attribute"
	last[$device $attribute]=$value
	said+=("$kernel|$power|$attribute|$text|$got|$value")
	[ "$want" = OK ] || wanted=$before
	if [ "$got" = "$want" ] && [ "$value" = "$wanted" ]; then
		continue
	fi
	differs "$kernel $power $attribute \"$text\"" "$got" "$value" "$before" ||
		fail "$kernel, $power: $attribute = '$text': $got, reads '$value';" \
			"null_blk: $want, '$wanted'"
done < <(rows writes.tsv)
echo "$nr values: as null_blk, or as the rules have it"

# ---- settings together, at power-on

nr=0
while IFS='|' read -r kernel settings want all; do
	nr=$((nr + 1))
	must create it kernel="$kernel" power=0
	got=OK
	for s in $settings; do
		ctl set it "${s%%=*}" "${s#*=}"
		[ "$error" = OK ] || got=$error
	done
	[ "$got" != OK ] || { ctl power it on && got=$error; }
	[ "$got" = "$want" ] || differs "$kernel power $settings" "$got" "" "" ||
		fail "$kernel: $settings: $got; null_blk: $want"
	[ "$got" = OK ] || all=
	for s in $all; do
		name=${s%%=*} wanted=${s#*=}
		if [ "$name" = sectors ]; then
			ctl list
			value=${out#*\"it\",*\"size\":}
			value=$((${value%%,*} / 512))
		else
			reads it "$name"
		fi
		[ "${value// /_}" = "$wanted" ] ||
			differs "$kernel power $settings $name" "" "$value" "" ||
			fail "$kernel: $settings: $name is '$value'; null_blk: $wanted"
	done
	must remove it
done < <(rows power-on-all.tsv)
echo "$nr settings at power-on: the same"
stop_nullbd

for rule in "${rules[@]}"; do
	[ -n "${used[$rule]-}" ] || fail "a difference that there is not: $rule"
done

# ---- each value in a file: what is refused is a line of complaints, and the rest
# reads as over the socket

# device NUMBER KERNEL ATTRIBUTE TEXT: five lines, the last of which sets it
device() {
	printf '\n[w%d]\nkernel = %s\npower = 0\n%s = "%s"\n' "$@"
}

: >"$tmp/all"
: >"$tmp/good"
in_file=()
for row in "${said[@]}"; do
	IFS='|' read -r kernel power attribute text got value <<<"$row"
	# a line has no newline
	[[ $power == off && $text != *'\n'* ]] || continue
	device ${#in_file[@]} "$kernel" "$attribute" "$text" >>"$tmp/all"
	[ "$got" != OK ] ||
		device ${#in_file[@]} "$kernel" "$attribute" "$text" >>"$tmp/good"
	in_file+=("$row")
done
"$NULLBD" -c "$tmp/all" --check >"$tmp/out" 2>"$tmp/complaints"
[ $? = 2 ] || fail "a file with faults passes"
declare -A bad
while IFS=: read -r _ line _; do
	[ $((line % 5)) = 0 ] || fail "complains of line $line: $(<"$tmp/complaints")"
	bad[$((line / 5 - 1))]=yes
done < <(grep -F "$tmp/all:" "$tmp/complaints" | sed "s|.*$tmp/all:|all:|")
start_nullbd -c "$tmp/good"
for i in "${!in_file[@]}"; do
	IFS='|' read -r kernel power attribute text got value <<<"${in_file[i]}"
	if [ "$got" != OK ]; then
		[ -n "${bad[$i]-}" ] || fail "a file takes $attribute = '$text'"
		continue
	fi
	[ -z "${bad[$i]-}" ] || fail "a file is refused with $attribute = '$text'"
	wanted=$value
	reads "w$i" "$attribute"
	[ "$value" = "$wanted" ] ||
		fail "$attribute = '$text' in a file reads '$value', not '$wanted'"
done
echo "${#in_file[@]} values in a file: the same"
stop_nullbd
