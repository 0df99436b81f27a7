# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the parts of make-base share their state
# What: a btrfs root on a subvolume, written by libguestfs' kernel.
# Why:  mkfs.btrfs --subvol is new (6.12), and older ones write no hard links.

readonly GUESTFISH_SECONDS=1800 # without KVM, on a busy machine

# Without KVM unless the variables say so: a /dev/kvm that hangs looks like one that works.
make_btrfs()
{
	mkfs.btrfs -q -U "$root_uuid" "$1" >"$work/mkfs.log" 2>&1 || return 1
	run_logged "$work/tar.log" tar -cf "$work/root.tar" -C "$root" --numeric-owner \
		--xattrs --xattrs-include='*' --acls --sort=name . || return 1
	guestfish_script "$1" >"$work/guestfish.script"
	run_logged "$work/mkfs.log" env \
		LIBGUESTFS_BACKEND="${LIBGUESTFS_BACKEND-direct}" \
		LIBGUESTFS_BACKEND_SETTINGS="${LIBGUESTFS_BACKEND_SETTINGS-force_tcg}" \
		timeout --foreground "$GUESTFISH_SECONDS" guestfish -f "$work/guestfish.script" || return 1
	rm -f "$work/root.tar"
}

guestfish_script()
{
	cat <<-EOF
	add "$1" format:raw discard:besteffort
	run
	mount /dev/sda /
	btrfs-subvolume-create /$SUBVOL
	umount /
	mount-options subvol=$SUBVOL /dev/sda /
	tar-in "$work/root.tar" / xattrs:true acls:true
	umount /
	EOF
}
