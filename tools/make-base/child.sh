# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # who sources this keeps the leader of its work in $child
# What: ends the program that a script waits for, with all of its process group.
# Why:  mmdebstrap alone would let the package manager below it finish first; a way of the bench has
#       children, and a pid namespace, which goes with its first process.

stop_child()
{
	local tries

	kill -TERM -- "-$child" 2>/dev/null || true
	for ((tries = 0; tries < 50; tries++)); do
		kill -0 -- "-$child" 2>/dev/null || break
		sleep 0.2
	done
	kill -KILL -- "-$child" 2>/dev/null || true
	wait "$child" 2>/dev/null || true
	child=
}
