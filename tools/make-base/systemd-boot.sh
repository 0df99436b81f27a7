# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the parts of make-base share their state
# What: systemd-boot on the ESP, with type 1 entries or unified kernel images.
# Why:  by the guest's own bootctl and kernel-install, so that it looks as a node's own would.

configure_systemd_boot()
{
	local image

	step "boot loader: systemd-boot, kernel-install"
	run_loader_tool bootctl --esp-path=/boot/efi --no-variables install
	rm -f "$esp/loader/random-seed" # every node would share it; systemd makes each its own
	printf 'timeout 1\nconsole-mode keep\n' >"$esp/loader/loader.conf"

	for image in "$root"/boot/vmlinuz-*; do
		run_loader_tool kernel-install add "${image##*/vmlinuz-}" "/boot/${image##*/}"
	done
	check_loader_entries
}

run_loader_tool()
{
	run_logged "$work/loader.log" sandbox "$@" && return 0
	tail -n 15 "$work/loader.log" >&2
	die 1 "$1 in the new root failed" "its last lines stand above"
}

# kernel-install exits 0 when it has left without doing anything
check_loader_entries()
{
	local image version entry

	for image in "$root"/boot/vmlinuz-*; do
		version=${image##*/vmlinuz-}
		if [ "$loader" = uki ]; then
			[ -s "$esp/EFI/Linux/debian-$version.efi" ] ||
				die 1 "kernel-install made no unified kernel image of $version"
			continue
		fi
		entry=$esp/loader/entries/debian-$version.conf
		[[ $(grep -cs -e "^linux */debian/" -e "^options *root=$(root_device) " "$entry") = 2 ]] ||
			die 1 "kernel-install made no entry of $version with root=$(root_device)"
	done
}
