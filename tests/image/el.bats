#!/usr/bin/env bats
# Enterprise Linux 8, 9 and 10, fabricated: the files that decide what later kernels and entries get,
# against golden copies. No package of theirs runs here, and no image of theirs is booted.
load ../lib/common

K1=5.14.0-427.el9.x86_64 K2=5.14.0-503.el9.x86_64
MACHINE=0123456789abcdef0123456789abcdef

setup_file() {
	need_root
	for el in 8 9 10; do
		PHONY_FLAVOUR=el PHONY_EL=$el phony "el$el" $K1 $K2 >/dev/null
		built "el$el" "$OUT/phony-el$el.qcow2" >/dev/null
		raw_root "$OUT/el$el.qcow2" 1 >/dev/null
	done
}

# One text of all files that stand for the parameters and the block, each under its name.
decisive() { # release
	local raw=$OUT/el$1.qcow2.p1.raw path
	for path in /boot/loader/entries/$MACHINE-$K1.conf /boot/loader/entries/$MACHINE-$K2.conf /boot/grub2/grubenv \
		/boot/grub2/grub.cfg /etc/kernel/cmdline /etc/default/grub /etc/dracut.conf.d/zz-gpuimg.conf; do
		echo "==> $path"
		guest_cat "$raw" "$path"
		echo
	done
}

same_as_golden() { # release
	decisive "$1" >"$BATS_TEST_TMPDIR/got"
	diff -u "$REPO/tests/golden/el/$1" "$BATS_TEST_TMPDIR/got"
}

@test "case 09: release 8 gets the parameters in grubenv, and entries keep \$kernelopts" {
	same_as_golden 8
}

@test "case 09: release 9 gets them in each entry, in /etc/kernel/cmdline and in GRUB_CMDLINE_LINUX" {
	same_as_golden 9
}

@test "release 10 likewise" {
	same_as_golden 10
}

@test "the environment block keeps its size" {
	for el in 8 9 10; do
		[ "$(guest_cat "$OUT/el$el.qcow2.p1.raw" /boot/grub2/grubenv | wc -c)" = 1024 ]
	done
}

@test "the block stands in both directories of modprobe.d, the same" {
	raw=$OUT/el9.qcow2.p1.raw
	[ -n "$(guest_cat "$raw" /etc/modprobe.d/gpuimg-gpu-block.conf)" ]
	[ "$(guest_cat "$raw" /etc/modprobe.d/gpuimg-gpu-block.conf)" = "$(guest_cat "$raw" /usr/lib/modprobe.d/gpuimg-gpu-block.conf)" ]
}

@test "case 31: each initramfs holds it where generic dracut copies it from" {
	raw=$OUT/el9.qcow2.p1.raw
	for k in $K1 $K2; do
		guest_cat "$raw" "/boot/initramfs-$k.img" | gzip -dc | cpio -t 2>/dev/null >"$BATS_TEST_TMPDIR/list"
		grep -x 'usr/lib/modprobe.d/gpuimg-gpu-block.conf' "$BATS_TEST_TMPDIR/list"
		grep -x 'etc/modprobe.d/gpuimg-gpu-block.conf' "$BATS_TEST_TMPDIR/list"
		run grep -c nouveau.ko "$BATS_TEST_TMPDIR/list"
		[ "$output" = 0 ]
	done
}

@test "files that were written carry the label that the image's policy gives them" {
	raw=$OUT/el9.qcow2.p1.raw
	label() { debugfs -R "ea_get $1 security.selinux" "$raw" 2>/dev/null; }
	expect_in "$(label /etc/modprobe.d/gpuimg-gpu-block.conf)" system_u:object_r:modules_conf_t:s0
	expect_in "$(label /usr/lib/modprobe.d/gpuimg-gpu-block.conf)" system_u:object_r:lib_t:s0
	expect_in "$(label /boot/initramfs-$K1.img)" system_u:object_r:boot_t:s0
	expect_in "$(label /etc/kernel/cmdline)" system_u:object_r:etc_t:s0
	[ -z "$(guest_stat "$raw" /.autorelabel)" ]
}

@test "the ESP was not written" {
	for which in phony-el9 el9; do
		qemu-img convert -O raw "$OUT/$which.qcow2" "$BATS_TEST_TMPDIR/disk"
		dd if="$BATS_TEST_TMPDIR/disk" bs=1M skip=190 count=33 status=none | sha256sum >>"$BATS_TEST_TMPDIR/sums"
	done
	[ "$(sort -u "$BATS_TEST_TMPDIR/sums" | wc -l)" = 1 ]
}

@test "building the built image again changes none of these files" {
	built el9-again "$OUT/el9.qcow2" >/dev/null
	raw_root "$OUT/el9-again.qcow2" 1 >/dev/null
	decisive 9-again >"$BATS_TEST_TMPDIR/got"
	diff -u "$REPO/tests/golden/el/9" "$BATS_TEST_TMPDIR/got"
}
