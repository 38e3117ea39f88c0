# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What bench and timer share: for their awk programs, a number of a line of
# load's JSON, and the median of v[1] to v[n], which are sorted by it.
# shellcheck disable=SC2034
awk_lib='
function num(line, key,    at) {
	at = index(line, "\"" key "\":")
	return at ? substr(line, at + length(key) + 3) + 0 : ""
}
function median(v, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && v[j] < v[j - 1]; j--) {
			t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
		}
	return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
'
