# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the scripts about power cuts share: the device, and the way its power
# goes.  $load is the program that writes until the device fails.

cuts=${NULLB_CUTS:-5} seed=${NULLB_SEED:-1}
RANDOM=$seed

# of a device: the cache is large, so that what was not flushed is still in it
cut_settings=size=384M,memory_backed=1,discard=1,cache_size=128M,irqmode=0

# how the power goes the Nth time: each way of it in turn
cut_how() {
	local lose=(all random ordered) tear=(none 512 4096)

	echo "--lose ${lose[$1 % 3]} --tear ${tear[$1 / 3 % 3]} --seed $((seed * 1000 + $1))"
}

cut_is_off() {
	[ "$(ctl get "$1" power)" = 0 ]
}

# cut DEVICE N ARGUMENT...: the Nth time, while $load ARGUMENT... runs, whose
# file system is at /mnt.  Then the device is on again, and attached.
cut() {
	local device=$1 nr=$2 job status

	shift 2
	# shellcheck disable=SC2046 # options
	must ctl power-cut "$device" $(cut_how "$nr") --at $((20 + RANDOM % 400))
	timeout 60 "$load" "$@" >"$tmp/load" 2>&1 &
	job=$!
	until_true "$device is off" cut_is_off "$device"
	# else nbd waits 30 s for what was in flight
	must nbd-client -d /dev/nbd0
	wait $job
	status=$?
	[ $status = 0 ] || fail "the load: status $status: $(<"$tmp/load")"
	must umount /mnt
	until_true "/dev/nbd0 is free" detached /dev/nbd0
	must ctl power "$device" on
	attach "$device"
}
