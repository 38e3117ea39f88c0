#!/bin/bash
# SPDX-License-Identifier: MIT
# A device that grows: its size is what the daemon says at each attach (NBD has
# no message for a change), and file systems grow into it with their data.

# shellcheck source=tests/kernel/lib.sh
. "$(dirname "$0")/lib.sh"

SMALL=$((320 << 20)) # xfs wants 300 MiB
WHOLE=$((448 << 20))

start_nullbd --workers 2 nullb0:size=448M,memory_backed=1,discard=1

# attach_as BYTES: so much of it
attach_as() {
	must nbd-client -unix "$sock" /dev/nbd0 -N nullb0 -b 512 -B "$1"
	until_true "/dev/nbd0 has $1 bytes" eval '[ "$(sys nbd0 size)" = '$(($1 / 512))' ]'
}

case_is "ext4 is made on a part of the device, and grows into all of it"
attach_as $SMALL
must mkfs.ext4 -q -F /dev/nbd0
must mount /dev/nbd0 /mnt
head -c 8M /dev/urandom >"$tmp/data"
must dd if="$tmp/data" of=/mnt/file bs=1M conv=fsync
must umount /mnt
must_fail dd if=/dev/zero of=/dev/nbd0 bs=1M count=1 seek=$((SMALL >> 20)) oflag=direct
detach
attach_as $WHOLE
must e2fsck -f -y /dev/nbd0
must mount /dev/nbd0 /mnt
must resize2fs /dev/nbd0
[ "$(df --output=size -m /mnt | tail -n 1)" -gt 380 ] || fail "it has not grown: $(df -m /mnt)"
cmp /mnt/file "$tmp/data" || fail "the file has changed"
must dd if=/dev/zero of=/mnt/more bs=1M count=360 conv=fsync # needs the new part
must umount /mnt
must e2fsck -f -n /dev/nbd0
must blkdiscard -f /dev/nbd0
detach

case_is "xfs grows while it is mounted"
modprobe xfs || fail "no xfs"
attach_as $SMALL
must mkfs.xfs -q -f /dev/nbd0
detach
attach_as $WHOLE
must mount /dev/nbd0 /mnt
must dd if="$tmp/data" of=/mnt/file bs=1M conv=fsync
must xfs_growfs /mnt
[ "$(df --output=size -m /mnt | tail -n 1)" -gt 360 ] || fail "it has not grown: $(df -m /mnt)"
cmp /mnt/file "$tmp/data" || fail "the file has changed"
must umount /mnt
must xfs_repair -n /dev/nbd0
detach

case_is "a daemon with another size is another device: --persist does not take it"
attach nullb0 --persist -C 1 -t 2
kill -KILL "$pid"
wait "$pid" 2>/dev/null
rm -f "$sock" "$control"
start_nullbd nullb0:size=64M,memory_backed=1
sleep 3
is "$(connections nullb0)" 0 "connections in transmission"
is "$(sys nbd0 size)" $((WHOLE / 512)) "sectors of /dev/nbd0"
must nbd-client -d /dev/nbd0
until_true "it is detached" detached /dev/nbd0
attach nullb0
is "$(sys nbd0 size)" $((64 * 2048)) "sectors of the new one"
detach
cases_end
