#!/bin/bash
# SPDX-License-Identifier: MIT
# What bash completes for nullbctl: commands, devices, attributes, values.

# shellcheck source=tests/lib/wire.sh
. "$(dirname "$0")/../lib/wire.sh"
# shellcheck source=daemon/nullbctl.bash
. "$(dirname "$0")/../../daemon/nullbctl.bash"

complete -p nullbctl >/dev/null || fail "nothing completes nullbctl"

# completes WORDS WANTED: the last of the words is what is being typed
completes() {
	local got

	read -ra COMP_WORDS <<<"$NULLBCTL --control $control $1"
	[[ $1 != *" " && -n $1 ]] || COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_nullbctl
	got="${COMPREPLY[*]}"
	[ "$got" = "$2" ] || fail "'$1' completes to '$got', not '$2'"
}

start_nullbd nullb0:size=1M nullb1:size=1M other:size=1M

completes "inf" "inflight"
completes "kic" "kick"
completes "stat " "nullb0 nullb1 other"
completes "stat o" "other"
completes "get nullb0 completion" "completion_nsec"
completes "set nullb0 queue/nom" "queue/nomerges"
completes "set nullb0 irqmode " "0 1 2"
completes "set nullb0 scheduler mq" "mq-deadline"
completes "zone re" "report reset"
completes "zone report nullb" "nullb0 nullb1"
completes "zone report -o 8 nullb" "nullb0 nullb1"
completes "help memory_b" "memory_backed"
completes "iostat -x nullb" "nullb0 nullb1"
completes "clients " ""
completes "metr" "metrics"
completes "metrics " ""
completes "watch n" "nullb0 nullb1"
completes "features " ""
completes "remove nul" "nullb0 nullb1"
completes "power other " "on off"
completes "power" "power power-cut"
completes "power-cut other --lo" "--lose"
completes "power-cut --lose r" "random"
completes "power-cut --tear none nullb" "nullb0 nullb1"
completes "create " ""
completes "create new memory_b" "memory_backed="
completes "create new size=1G no_s" "no_sched="
"$NULLBCTL" --control "$control" fault nullb1 add op=READ >/dev/null
completes "fault nullb1 re" "remove release"
completes "fault nullb1 wait " "1"
completes "fault nullb1 remove " "1 all"
completes "attach --ra" "--raw"
completes "attach -C 2 nullb1" "nullb1"
control=$tmp/nobody
completes "stat " "" # no daemon, no noise
control=$tmp/control
stop_nullbd
