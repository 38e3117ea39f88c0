# SPDX-License-Identifier: MIT
# bash completion for nullbctl(1): commands, devices, attributes and their
# values, as the program itself tells them.
# shellcheck shell=bash

# the words of the command line that say which daemon it is
_nullbctl_ask() {
	local i to=()

	for ((i = 1; i < COMP_CWORD - 1; i++)); do
		[ "${COMP_WORDS[i]}" != --control ] ||
			to=(--control "${COMP_WORDS[i + 1]}")
	done
	"${COMP_WORDS[0]}" "${to[@]}" "$@" 2>/dev/null
}

_nullbctl_commands() {
	"${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'
}

_nullbctl_devices() {
	_nullbctl_ask list | sed -n '2,$s/ .*//p'
}

_nullbctl_attributes() {
	"${COMP_WORDS[0]}" help 2>/dev/null | sed -n 's/^  \([a-z][a-z_/]*\)[= ].*/\1/p'
}

# what `help` lists below an attribute: "0 none", or "one of none, mq-deadline"
_nullbctl_values() {
	"${COMP_WORDS[0]}" help "$1" 2>/dev/null |
		sed -n 's/^      one of //p; s/^      \([0-9]\{1,\}\) .*/\1/p' | tr -d ,
}

# the rules of a device's faults
_nullbctl_rules() {
	_nullbctl_ask fault "$1" | sed -n '2,$s/^ *\([0-9]\{1,\}\) .*/\1/p'
}

_nullbctl() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local i command='' nr=0 words='' first=''

	COMPREPLY=()
	case $before in
	--control | -o | --output)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--lose) words='all random ordered' ;;
	--tear) words='none 512 4096' ;;
	esac
	# the command, and how many words follow it
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--control | -o | --output | --offset | -w | --seconds | -C | -t | -b | \
			-n | --hits | --timeout | -c | --count | -l | --length | \
			--lose | --tear | --seed | --at) i=$((i + 1)) ;;
		-*) ;;
		*)
			[ -n "$command" ] && nr=$((nr + 1)) || command=${COMP_WORDS[i]}
			[ $nr -eq 1 ] && [ -z "$first" ] && first=${COMP_WORDS[i]}
			;;
		esac
	done
	if [ -n "$words" ]; then
		:
	elif [[ $word == -* ]]; then
		words=$("${COMP_WORDS[0]}" --help 2>/dev/null | grep -o -- '--[a-z-]*')
	else
		case $command:$nr in
		:0) words=$(_nullbctl_commands) ;;
		help:0) words=$(_nullbctl_attributes) ;;
		clients:* | list:* | metrics:* | kick:* | help:* | features:* | create:0) ;;
		create:*)
			words=$(_nullbctl_attributes | sed 's/$/=/')
			compopt -o nospace 2>/dev/null
			;;
		detach:0) words="$(_nullbctl_devices) $(compgen -G '/dev/nbd*')" ;;
		attach:1) words=$(compgen -G '/dev/nbd*') ;;
		zone:0) words='report open close finish reset' ;;
		zone:1) words=$(_nullbctl_devices) ;;
		*:0) words=$(_nullbctl_devices) ;;
		power:1) words='on off' ;;
		get:1 | set:1) words=$(_nullbctl_attributes) ;;
		fault:1) words='list add remove release wait log' ;;
		fault:2)
			case $before in
			remove | release) words="$(_nullbctl_rules "$first") all" ;;
			wait) words=$(_nullbctl_rules "$first") ;;
			esac
			;;
		set:2) words=$(_nullbctl_values "$before") ;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _nullbctl nullbctl
