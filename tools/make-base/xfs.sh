# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: an xfs root from a directory, by mkfs.xfs -p and xfs_db.
# Why:  mkfs.xfs has no -d as mke2fs has, and Enterprise Linux nodes have xfs roots.

# A protofile has no escapes, no sticky bit, no times and no attributes. Names that it cannot
# express stop us, except those of ucf's cache (":etc:…"), which ucf does without. The rest is
# written afterwards; without times every compiled Python file would be stale on the node.
make_xfs()
{
	local image=$1 options=()

	rm -f "$root"/var/lib/ucf/cache/:*
	check_xfs_names
	xfs_protofile >"$work/protofile"
	mapfile -t options < <(xfs_options "$image")
	# the protofile has paths relative to the work directory: they too cannot hold a space
	run_logged "$work/mkfs.log" env -C "$work" mkfs.xfs -q -f -m "uuid=$root_uuid" \
		"${options[@]}" -p protofile "$image" || return 1
	xfs_attributes >"$work/attributes"
	run_logged "$work/mkfs.log" xfs_db -x -f "$image" <"$work/attributes"
	# xfs_db goes on after a path that it does not find, and would write into the inode before
	[ "$(grep -vc '^core\.' "$work/mkfs.log")" -eq 0 ]
}

check_xfs_names()
{
	local bad

	bad=$(find "$root" \( -name ':*' -o -name '*[[:space:]]*' -o -lname '*[[:space:]]*' \) \
		-printf "'/%P' " -quit)
	[ -z "$bad" ] || die 1 "a mkfs.xfs protofile cannot name ${bad% }, and nothing else writes xfs" \
		"use --root-fs ext4, or remove the file with --customize"
	bad=$(getcap -r "$root" 2>/dev/null | sed -n 1p)
	[ -z "$bad" ] || die 1 "mkfs.xfs cannot set file capabilities: '${bad#"$root"}'" \
		"use --root-fs ext4"
}

# features that newer mkfs.xfs switch on and GRUB 2.06 cannot read; bigtime, so that xfs_db can
# write times as plain seconds
xfs_options()
{
	local option

	for option in "-m bigtime=0" "-i nrext64=0" "-i exchange=0" "-n parent=0"; do
		# shellcheck disable=SC2086 # flag and value
		if mkfs.xfs -N -f $option "$1" >/dev/null 2>&1; then printf '%s\n' $option; fi
	done
}

xfs_protofile()
{
	(cd "$work" && find root -printf '%d\t%y\t%04m\t%U\t%G\t%f\t%p\t%l\n') | awk -F '\t' '
		function mode(type, octal) {
			return type (int(substr(octal, 1, 1) / 4) ? "u" : "-") \
				(int(substr(octal, 1, 1) / 2) % 2 ? "g" : "-") substr(octal, 2)
		}
		$1 == 0 { printf "/dev/null\n0 0\n%s %d %d\n", mode("d", $3), $4, $5; open = 1; next }
		{ while (open > $1) { print "$"; open-- } }
		$2 == "f" { print $6, mode("-", $3), $4, $5, $7 }
		$2 == "l" { print $6, mode("l", $3), $4, $5, $8 }
		$2 == "d" { print $6, mode("d", $3), $4, $5; open = $1 + 1 }
		END { while (open-- > 0) print "$" }'
}

# xfs_db takes a time as one 64-bit number: seconds in the upper half, nanoseconds in the lower
xfs_attributes()
{
	find "$root" -type f,d,l -printf '/%P\t%Ts\t%04m\t%y\n' | awk -F '\t' '
		{ printf "path %s\nwrite core.mtime.sec 0x%08x00000000\n", $1, $2 }
		$3 ~ /^[1357]/ && $4 == "d" { printf "write core.mode 04%s\n", $3 }'
}
