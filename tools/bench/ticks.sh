# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What: CPU time that this machine has spent, in clock ticks.
# Why:  programs in pid namespaces of their own (bubblewrap's) are waited for by nobody who would
#       pass their time on, so what a parent gets by wait4 is not whole. The machine is quiet.

machine_ticks()
{
	# cpu: user nice system idle iowait irq softirq steal
	awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}
