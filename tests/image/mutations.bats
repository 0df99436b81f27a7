#!/usr/bin/env bats
# The proof is itself proven: good images with each link of the boot chain broken, one at a time.
# Each break must be found and named; untouched, the images must raise nothing. Rows are calls of
# 'm' (tests/lib/mutate.bash): name, image, id, verdict, text, and what is done to the image.
#
# Not here, since they break nothing:
#  - a grubenv of another size than 1024 bytes: GRUB asks for its first line only (envblk.c);
#  - a byte-order mark before our file's own first line, which is a comment;
#  - EL's block in /etc/modprobe.d gone where /usr/lib/modprobe.d and dracut's install_items hold it:
#    a note (modprobe.later), and a row below.
# shellcheck disable=SC2016,SC1003,SC2154 # text for other shells; names of lib/mutate.bash
load ../lib/common
load ../lib/mutate

set -a # for the shells that the mutations run in
BLOCK=/etc/modprobe.d/gpuimg-gpu-block.conf
USR_BLOCK=/usr/lib/modprobe.d/gpuimg-gpu-block.conf
DRACUT=/etc/dracut.conf.d/zz-gpuimg.conf
DROPIN=/etc/default/grub.d/zz-gpuimg.cfg
GRUB=/boot/grub/grub.cfg
OLD=6.1.0-phony
NEW=6.12.0-phony
INITRD=/boot/initrd.img-$OLD
ENTRIES=/boot/loader/entries/0123456789abcdef0123456789abcdef
UUID=11111111-2222-4333-8444-555555555555
REAL=6.1.0-57-amd64
set +a

# The base of each good image stays beside it, for what a mutation puts back.
base_raw() { # name, image
	mkdir -p "$MUT"
	qemu-img convert -q -O raw "$2" "$MUT/$1.raw"
}

setup_file() {
	need_root
	for tool in debugfs mcopy depmod cpio jq lz4 setfattr sfdisk cmp; do
		command -v "$tool" >/dev/null || skip "needs $tool"
	done
	rm -rf "$MUT"
	deb=$(PHONY_ESP=y phony mutate-deb $OLD $NEW)
	el8=$(PHONY_FLAVOUR=el PHONY_EL=8 phony mutate-el8 4.18.0-phony 4.18.1-phony)
	el9=$(PHONY_FLAVOUR=el PHONY_EL=9 phony mutate-el9 5.14.0-phony 5.14.1-phony)
	base_raw deb-base "$deb"
	base_raw el8-base "$el8"
	base_raw el9-base "$el9"
	good deb "$(built mutate-deb-built "$deb" --exec=sandbox)" 3 "cmdline.hotplug cloud-init.missing"
	good el8 "$(built mutate-el8-built "$el8" --exec=sandbox)" 3 "cmdline.hotplug cloud-init.missing"
	good el9 "$(built mutate-el9-built "$el9" --exec=sandbox)" 3 "cmdline.hotplug cloud-init.missing"
	good real "$(built mutate-real-built "$(base default)" --exec=sandbox)" 15 "cmdline.hotplug"
}

teardown_file() {
	rm -f "$MUT"/*.raw
}

# all_found: nothing of the rows so far was missed.
all_found() {
	! grep -v '^found' "$MUT/results"
}

setup() {
	: >"$MUT/results"
}

teardown() {
	cat "$MUT/results" >>"$MUT/all"
}

@test "untouched good images raise nothing" {
	while read -r image; do
		complaints "$image"
	done <"$MUT/good" >"$BATS_TEST_TMPDIR/complaints"
	cat "$BATS_TEST_TMPDIR/complaints"
	[ ! -s "$BATS_TEST_TMPDIR/complaints" ]
}

@test "the suite itself tells a mutation that changes nothing, fails, or is not found" {
	m 'nothing' deb modules.alias bad '' true
	m 'nothing to edit' deb modules.alias bad '' edit $BLOCK 's/not there/gone/'
	m 'nothing to remove' deb modules.alias bad '' gone /not/there
	m 'harmless' deb modules.alias bad '' text /etc/motd 'hello\n'
	m 'another id' deb modules.name bad '' text /etc/ssh/ssh_host_rsa_key 'key\n'
	m 'another text' deb identity.host-keys bad 'dsa_key' text /etc/ssh/ssh_host_rsa_key 'key\n'
	m 'found' deb identity.host-keys bad 'rsa_key' text /etc/ssh/ssh_host_rsa_key 'key\n'
	cut -f 1,2 "$MUT/results" >"$BATS_TEST_TMPDIR/said"
	cat "$MUT/results"
	: >"$MUT/results" # they are no part of the score
	diff "$BATS_TEST_TMPDIR/said" - <<-END
		FAILED	nothing
		FAILED	nothing to edit
		FAILED	nothing to remove
		MISSED	harmless
		MISSED	another id
		MISSED	another text
		found	found
	END
}

without_install() { # as a person writes it: no install lines, and what comes before the first line
	get $BLOCK "$part/block"
	{
		printf '%b' "$1"
		grep '^blacklist' "$part/block" | sed "${2:-}"
	} >"$part/new"
	put "$part/new" $BLOCK
}

directory_for() {
	gone "$1"
	fs mkdir "$1"
}

moved_below() {
	fs mkdir "${2%/*}"
	moved "$1" "$2"
}

# Modules whose description is another's with the names changed to others of the same length.
new_claimant() {
	modules_out $NEW
	sed 's/nouveau/nvgpuxx/g' "$part/root/lib/modules/$NEW/kernel/nouveau.ko" >"$part/root/lib/modules/$NEW/kernel/nvgpuxx.ko"
	modules_in $NEW nvgpuxx
}

built_in() {
	modules_out $NEW
	echo kernel/nouveau.ko >>"$part/root/lib/modules/$NEW/modules.builtin"
	printf 'nouveau.name=nouveau\0nouveau.alias=pci:v000010DEd*sv*sd*bc03sc*i*\0nouveau.file=nouveau\0' \
		>>"$part/root/lib/modules/$NEW/modules.builtin.modinfo"
	modules_in $NEW
}

alias_of_it() {
	modules_out $NEW
	text /etc/modprobe.d/zz-alias.conf 'alias pci:v000010DEd*sv*sd*bc03sc*i* nvgpuxx\n'
	sed -e 's/nouveau/nvgpuxx/g' -e 's/pci:v000010DE/pci:v0000FFFF/' "$part/root/lib/modules/$NEW/kernel/nouveau.ko" \
		>"$part/root/lib/modules/$NEW/kernel/nvgpuxx.ko"
	modules_in $NEW nvgpuxx
}

@test "the block in the root file system: each break is found and named" {
	m 'block removed' deb modules.alias bad 'root file system: an NVIDIA display device would load nouveau' gone $BLOCK
	m 'block with CRLF: its install lines fail, and load nothing' deb modprobe.text note "'$BLOCK' has lines that end in CR and LF" edit $BLOCK 's/$/\r/'
	m 'block of blacklist lines with CRLF' deb modules.alias bad 'root file system' without_install '' 's/$/\r/'
	m 'byte-order mark before its first line' deb modules.alias bad 'root file system' without_install '\xef\xbb\xbf'
	m 'block without .conf' deb modules.alias bad 'root file system' moved $BLOCK ${BLOCK%.conf}
	m 'block with .conf.disabled' deb modules.alias bad 'root file system' moved $BLOCK $BLOCK.disabled
	m 'block as a hidden file' deb modules.alias bad 'root file system' moved $BLOCK /etc/modprobe.d/.gpuimg-gpu-block.conf
	m 'block in a subdirectory' deb modules.alias bad 'root file system' moved_below $BLOCK /etc/modprobe.d/gpu/gpuimg-gpu-block.conf
	m 'block a directory' deb modules.alias bad 'root file system' directory_for $BLOCK
	m 'block a link to nowhere' deb modules.alias bad 'root file system' link $BLOCK /nowhere.conf
	m 'block a link to /dev/null' deb modules.alias bad 'root file system' link $BLOCK /dev/null
	m 'block emptied' deb modules.alias bad 'root file system' text $BLOCK ''
	m 'block commented out' deb modules.alias bad 'root file system' edit $BLOCK 's/^\(blacklist\|install\)/#&/'
	m 'one name misspelled' deb modules.alias bad 'would load nouveau' edit $BLOCK 's/nouveau/nouvaeu/'
	m 'install line gone' deb modules.name bad "'modprobe nouveau' would load it" edit $BLOCK '/^install nouveau/d'
	m 'install line undone by an earlier file' deb modules.name bad "'modprobe nouveau' would load it" \
		text /etc/modprobe.d/00-local.conf 'install nouveau /sbin/modprobe --ignore-install nouveau\n'
	m 'block in a file that a same-named one hides' el9 modules.alias bad 'root file system' text $BLOCK '# empty\n'
	m 'the same by a link to /dev/null' el9 modules.alias bad 'root file system' link $BLOCK /dev/null
	m 'a new module claims the card' deb modules.alias bad "kernel $NEW, root file system: an NVIDIA display device would load nvgpuxx" new_claimant
	m 'a driver is built in' deb modules.builtin bad "kernel $NEW has 'nouveau' built in" built_in
	m 'an alias line gives the card to another module' deb modules.alias bad 'nvgpuxx' alias_of_it
	m 'modules of a kernel missing' deb kernel.modules bad "kernel $OLD has no modules" unnamed /usr/lib/modules/$OLD
	m 'modules.dep missing' deb kernel.modules bad "/lib/modules/$NEW/modules.dep" no_index $NEW
	m 'modules.alias.bin damaged' deb kernel.modules bad 'modules.alias.bin' cut_to /usr/lib/modules/$NEW/modules.alias.bin 40
	all_found
}

no_index() {
	gone "/usr/lib/modules/$1/modules.dep"
	gone "/usr/lib/modules/$1/modules.dep.bin"
}

no_module() { # in an unpacked initramfs: the file, and depmod anew
	local dir
	for dir in usr/lib/modules/*; do
		rm "$dir/kernel/$1.ko"
		depmod -b . "${dir##*/}"
	done
}

gpu_module() {
	get "/usr/lib/modules/$OLD/kernel/nouveau.ko" "usr/lib/modules/$OLD/kernel/nouveau.ko"
}

# Debian's name of one of the driver's modules; what is in it does not matter.
gpu_driver() {
	cp "usr/lib/modules/$OLD/kernel/virtio_blk.ko" "usr/lib/modules/$OLD/kernel/nvidia-current-uvm.ko"
}

crlf() {
	sed -i -e 's/$/\r/' "$@" etc/modprobe.d/gpuimg-gpu-block.conf
}

lz4_frame() {
	get "$1" "$part/was"
	zcat "$part/was" | lz4 -q >"$part/is"
	put "$part/is" "$1"
}

swapped() {
	get "$1" "$part/one"
	get "$2" "$part/two"
	put "$part/one" "$2"
	put "$part/two" "$1"
}

version_renamed() {
	mv "usr/lib/modules/$OLD" usr/lib/modules/9.9.9-other
}

@test "each initramfs: each break is found and named" {
	m 'one initramfs left old' deb modules.alias bad "'$INITRD': an NVIDIA display device would load nouveau" from_base deb-base $INITRD
	m "the other kernel's left old" deb modules.alias bad "'/boot/initrd.img-$NEW'" from_base deb-base /boot/initrd.img-$NEW
	m 'one initramfs missing' deb initramfs.present bad "kernel $OLD has no initramfs" gone $INITRD
	m 'initramfs a link to nowhere' deb initramfs.present bad "'$INITRD' is missing" link $INITRD /nowhere
	m 'initramfs empty' deb initramfs.whole bad "'$INITRD'" text $INITRD ''
	m 'initramfs cut off' deb initramfs.whole bad "'$INITRD'" cut_to $INITRD 1000
	m 'initramfs with garbage behind' deb initramfs.whole bad "'$INITRD'" garbage_behind $INITRD
	m 'initramfs as an lz4 frame' deb initramfs.whole bad "'$INITRD'" lz4_frame $INITRD
	m 'a later cpio hides the block' deb modules.alias bad "'$INITRD'" cpio_behind $INITRD etc/modprobe.d/gpuimg-gpu-block.conf ''
	m "the two kernels' swapped" deb initramfs.version bad "'$INITRD': holds modules of another kernel, '$NEW'" swapped $INITRD /boot/initrd.img-$NEW
	m "another kernel's in its place" deb initramfs.version bad "'$INITRD': holds no modules of kernel $OLD" copied /boot/initrd.img-$NEW $INITRD
	m 'made for a kernel that is not there' deb initramfs.version bad "'9.9.9-other'" repacked $INITRD version_renamed
	m 'its block with CRLF' deb modprobe.text note "'$INITRD'" repacked $INITRD crlf
	m 'its block of blacklist lines with CRLF' deb modules.alias bad "'$INITRD'" repacked $INITRD crlf -e /^install/d
	m 'its block gone' deb modules.alias bad "'$INITRD'" repacked $INITRD rm etc/modprobe.d/gpuimg-gpu-block.conf
	m 'a GPU module in it' deb initramfs.gpu-module note "'$INITRD': carries the GPU module 'nouveau'" repacked $INITRD gpu_module
	m "NVIDIA's driver in it" deb initramfs.gpu-driver bad "nvidia-current-uvm.ko" repacked $INITRD gpu_driver
	m 'virtio_blk not in it' deb initramfs.driver bad "'$INITRD': lacks 'virtio_blk'" repacked $INITRD no_module virtio_blk
	m 'nvme not in it' deb initramfs.driver bad "'$INITRD': lacks 'nvme'" repacked $INITRD no_module nvme
	m 'the driver of the root file system not in it' deb initramfs.driver bad "'$INITRD': lacks 'ext4'" repacked $INITRD no_module ext4
	m 'the program that checks the root not in it' deb initramfs.fsck bad "'$INITRD': lacks 'sbin/fsck.ext4'" text /usr/sbin/fsck.ext4 '#!/bin/sh\n'
	m 'left old on EL' el9 modules.alias bad "'/boot/initramfs-5.14.1-phony.img'" from_base el9-base /boot/initramfs-5.14.1-phony.img
	m 'cut off on EL' el8 initramfs.whole bad "'/boot/initramfs-4.18.0-phony.img'" cut_to /boot/initramfs-4.18.0-phony.img 500
	all_found
}

custom_entry() {
	get $GRUB "$part/was"
	{
		cat "$part/was"
		# shellcheck disable=SC2016 # for GRUB
		printf 'if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nelif [ -z "${config_directory}" -a -f  $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n'
	} >"$part/is"
	put "$part/is" $GRUB
	text /boot/grub/custom.cfg "menuentry 'mine' {\n	linux /boot/vmlinuz-$OLD root=UUID=$UUID ro\n	initrd $INITRD\n}\n"
}

@test "GRUB's entries: each break is found and named" {
	m 'parameter missing in the recovery entry' deb cmdline.param bad "$OLD (recovery mode)' (line 6): 'pci=nocrs' is not in effect" \
		edit $GRUB "/$OLD .*single/s/ pci=nocrs//"
	m "missing in one kernel's normal entry" deb cmdline.param bad "Linux $NEW' (line 10): 'pci=realloc'" edit $GRUB "/$NEW .*quiet/s/ pci=realloc//"
	m 'all parameters missing in one entry' deb cmdline.param bad "module_blacklist=" edit $GRUB "/$NEW .*single/s/ pci=nocrs.*rivafb//"
	m 'parameter misspelled' deb cmdline.param bad "'pci=nocrs' is not in effect" edit $GRUB "/$OLD .*quiet/s/nocrs/nocsr/"
	m 'parameter behind --' deb cmdline.param bad "'pci=nocrs' is not in effect" edit $GRUB "/$OLD .*quiet/s/pci=nocrs/-- &/"
	m 'parameter inside a quoted word' deb cmdline.param bad "'pci=nocrs' is not in effect" edit $GRUB "/$OLD .*quiet/s/pci=nocrs/\"note=a &\"/"
	m 'parameter twice' deb cmdline.param bad "holds 'pci=nocrs' 2 times" edit $GRUB "/$OLD .*quiet/s/pci=nocrs/& &/"
	m 'comment character before it' deb cmdline.param bad "'pci=nocrs' is not in effect" edit $GRUB "/$OLD .*quiet/s/pci=nocrs/#&/"
	m 'pci=realloc=off later' deb cmdline.param bad "'pci=realloc' is not in effect" edit $GRUB "/$OLD .*quiet/s/quiet/pci=realloc=off/"
	m 'pci=conf1 later' deb cmdline.param bad "'pci=nocrs' is not in effect" edit $GRUB "/$OLD .*quiet/s/quiet/pci=conf1/"
	m 'pci=off later' deb cmdline.param bad "'pci=nocrs' is not in effect" edit $GRUB "/$OLD .*quiet/s/quiet/pci=off/"
	m 'pci=use_crs later' deb cmdline.conflict note "'pci=use_crs' says the opposite of 'pci=nocrs'" edit $GRUB "/$OLD .*quiet/s/quiet/pci=use_crs/"
	m 'module_blacklist= twice, the second without nouveau' deb cmdline.param bad "module_blacklist=" \
		edit $GRUB "/$OLD .*quiet/s/quiet/module_blacklist=floppy/"
	m 'one name less in module_blacklist=' deb cmdline.param bad "nova_core" edit $GRUB "/$OLD .*quiet/s/nova_core,//"
	m 'nomodeset' deb cmdline.conflict note "'nomodeset'" edit $GRUB "/$OLD .*quiet/s/quiet/nomodeset/"
	m 'entry without an initrd line' deb cmdline.files bad "$OLD' (line 2): loads no initramfs" edit $GRUB '3d'
	m 'entry without one, its root by PARTUUID' deb cmdline.no-initramfs note 'boots without an initramfs' \
		edit $GRUB -e 3d -e "2s/root=UUID=$UUID/root=PARTUUID=aaaaaaaa-0000-4000-8000-000000000001/"
	m 'its initramfs does not exist' deb cmdline.files bad "'/boot/initrd.img-gone' does not exist" edit $GRUB '3s/-6.*/-gone/'
	m 'its kernel does not exist' deb cmdline.files bad "'/boot/vmlinuz-gone' does not exist" edit $GRUB '2s/vmlinuz-[^ ]*/vmlinuz-gone/'
	m "another kernel's initramfs" deb cmdline.files bad "boots kernel $OLD with the initramfs of $NEW" edit $GRUB "3s/$OLD/$NEW/"
	m 'kernel without an entry' deb cmdline.coverage bad "kernel $OLD has no boot entry" edit $GRUB '1,8d'
	m 'entries of a kernel that is gone' deb cmdline.files bad "'/boot/vmlinuz-$OLD' does not exist" gone /boot/vmlinuz-$OLD
	m 'an entry in custom.cfg' deb cmdline.param bad "entry 'mine'" custom_entry
	m 'root= of another file system' deb cmdline.root bad "is not on the image's disk" edit $GRUB '2s/UUID=1/UUID=9/'
	m "root= by a disk's letter" deb cmdline.root note "'root=/dev/sda1'" edit $GRUB "2s/root=UUID=$UUID/root=\/dev\/sda1/"
	m 'grub.cfg emptied' deb cmdline.coverage bad 'no boot entry' text $GRUB ''
	m 'grub.cfg cut off' deb cmdline.coverage bad "kernel $NEW has no boot entry" cut_to $GRUB 500
	m 'grub.cfg gone' deb cmdline.coverage bad 'no boot entry' gone $GRUB
	m 'grub.cfg with an open quote' deb cmdline.unreadable bad "$GRUB" edit $GRUB "1s/-phony' /-phony /"
	m 'stub on the ESP overwritten by grub.cfg' deb esp.stub bad '/boot/efi/EFI/debian/grub.cfg' stub_from $GRUB
	m 'stub empty' deb esp.stub bad '/boot/efi/EFI/debian/grub.cfg' esp_text /EFI/debian/grub.cfg ''
	m 'stub of bytes that are no text' deb esp.stub bad '/boot/efi/EFI/debian/grub.cfg' esp_text /EFI/debian/grub.cfg '\001\002\003\377\376 \n'
	m 'stub of another file system' deb esp.stub bad '/boot/efi/EFI/debian/grub.cfg' \
		esp_text /EFI/debian/grub.cfg 'search.fs_uuid 99999999-2222-4333-8444-555555555555 root\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n'
	m 'stub to a directory without a grub.cfg' deb esp.stub bad '/boot/efi/EFI/debian/grub.cfg' \
		esp_text /EFI/debian/grub.cfg "search.fs_uuid $UUID root\nset prefix=(\$root)/grub\nconfigfile \$prefix/grub.cfg\n"
	m 'drop-in removed' deb cmdline.later bad "'pci=nocrs'" gone $DROPIN
	m 'drop-in without .cfg' deb cmdline.later bad "'pci=realloc'" moved $DROPIN ${DROPIN%.cfg}.bak
	m 'drop-in reverted' deb cmdline.later bad "'pci=nocrs'" edit $DROPIN "s/^gpuimg_add=.*/gpuimg_add=''/"
	m 'a later drop-in assigns the variable' deb cmdline.later bad "'/etc/default/grub.d/zzz-site.cfg'" \
		text /etc/default/grub.d/zzz-site.cfg 'GRUB_CMDLINE_LINUX="console=tty0"\n'
	m 'a later drop-in cancels a parameter' deb cmdline.later bad "takes 'pci=realloc' away" \
		text /etc/default/grub.d/zzz-site.cfg 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=realloc=off"\n'
	all_found
}

stub_from() {
	get "$1" "$part/grub.cfg"
	esp_put "$part/grub.cfg" /EFI/debian/grub.cfg
}

no_block_later() {
	gone $USR_BLOCK
	gone $DRACUT
}

options_first() { # a byte-order mark before the line that has the parameters
	get "$1" "$part/was"
	{
		printf '\xef\xbb\xbf'
		grep '^options' "$part/was"
		grep -v '^options' "$part/was"
	} >"$part/is"
	put "$part/is" "$1"
}

@test "Enterprise Linux's places (fabricated images): each break is found and named" {
	m 'one BLS entry untouched' el9 cmdline.param bad "$ENTRIES-5.14.1-phony.conf" from_base el9-base $ENTRIES-5.14.1-phony.conf
	m 'kernelopts reverted' el8 cmdline.param bad "$ENTRIES-4.18.0-phony.conf" from_base el8-base /boot/grub2/grubenv
	m 'grubenv without its first line' el8 cmdline.param bad "$ENTRIES-4.18.0-phony.conf" edit /boot/grub2/grubenv '1s/GRUB/XXXX/'
	m 'grubenv cut off' el8 cmdline.param bad "$ENTRIES-4.18.1-phony.conf" cut_to /boot/grub2/grubenv 150
	m '$kernelopts taken out of one entry' el8 cmdline.param bad "$ENTRIES-4.18.1-phony.conf" edit $ENTRIES-4.18.1-phony.conf 's/^options.*/options ro/'
	m '/etc/kernel/cmdline reverted' el9 cmdline.later bad "'/etc/kernel/cmdline'" from_base el9-base /etc/kernel/cmdline
	m '/etc/kernel/cmdline gone' el9 cmdline.later bad "'/etc/kernel/cmdline'" gone /etc/kernel/cmdline
	m 'GRUB_CMDLINE_LINUX reverted' el9 cmdline.later bad "'/etc/default/grub'" from_base el9-base /etc/default/grub
	m 'an empty line in the middle of an entry' el9 cmdline.param bad "$ENTRIES-5.14.0-phony.conf" edit $ENTRIES-5.14.0-phony.conf '/^options/i\\'
	m 'an entry with another name' el9 cmdline.coverage bad 'kernel 5.14.1-phony has no boot entry' moved $ENTRIES-5.14.1-phony.conf $ENTRIES-5.14.1-phony.conf.bak
	m 'an entry gone' el8 cmdline.coverage bad 'kernel 4.18.1-phony has no boot entry' gone $ENTRIES-4.18.1-phony.conf
	m 'an entry with a byte-order mark' el9 cmdline.param bad "$ENTRIES-5.14.0-phony.conf" options_first $ENTRIES-5.14.0-phony.conf
	m 'a machine-id in an entry' el9 cmdline.machine-id bad "$ENTRIES-5.14.0-phony.conf" edit $ENTRIES-5.14.0-phony.conf 's/^options.*/& systemd.machine_id=0123456789abcdef0123456789abcdef/'
	m 'an entry with options in capitals' el9 cmdline.param bad "$ENTRIES-5.14.0-phony.conf" edit $ENTRIES-5.14.0-phony.conf 's/^options/Options/'
	m 'grub.cfg without blscfg' el9 cmdline.coverage bad 'no boot entry' edit /boot/grub2/grub.cfg '/^blscfg/d'
	m 'stub leads nowhere' el9 esp.stub bad '/boot/efi/EFI/rocky/grub.cfg' esp_text /EFI/rocky/grub.cfg 'set timeout=1\n'
	m "dracut's configuration removed" el9 modprobe.later note 'omit_drivers' gone $DRACUT
	m 'the copy in /usr/lib removed' el9 modprobe.later note "'$USR_BLOCK'" gone $USR_BLOCK
	m 'both removed' el9 modprobe.later bad 'would not hold the block, and load nouveau' no_block_later
	all_found
}

half_configured() {
	get /var/lib/dpkg/status "$part/was"
	{
		cat "$part/was"
		printf 'Package: broken\nStatus: install ok half-configured\nVersion: 1\n\n'
	} >"$part/is"
	put "$part/is" /var/lib/dpkg/status
}

token() {
	fs mkdir /etc/nvidia
	fs mkdir /etc/nvidia/ClientConfigToken
	text /etc/nvidia/ClientConfigToken/client.tok 'secret\n'
}

unfinished() {
	text /var/lib/dpkg/updates/0001 'Package: broken\nStatus: install ok unpacked\n\n'
}

# One driver's modules, of different versions, or for one kernel only.
driver_for() { # version=of, ...
	local pair version
	for pair in "$@"; do
		version=${pair%%=*}
		printf '__attribute__((used, section(".modinfo"))) static const char a[] = "version=%s\\0name=nvidia\\0license=NVIDIA";\n' "${pair#*=}" |
			gcc -x c -c -o "$part/nvidia.ko" -
		modules_out "$version"
		cp "$part/nvidia.ko" "$part/root/lib/modules/$version/kernel/nvidia.ko"
		modules_in "$version" nvidia
	done
}

# A whole driver for both kernels, with what is to be wrong in it as a field of the module.
driver_with() { # version, field of the old kernel's module
	local version fields
	for version in $OLD $NEW; do
		fields="version=$1\\0name=nvidia\\0license=NVIDIA\\0vermagic=$version SMP"
		[ "$version" != $OLD ] || fields+="\\0$2"
		printf '__attribute__((used, section(".modinfo"))) static const char a[] = "%s";\n' "$fields" |
			gcc -x c -c -o "$part/nvidia.ko" -
		modules_out "$version"
		cp "$part/nvidia.ko" "$part/root/lib/modules/$version/kernel/nvidia.ko"
		modules_in "$version" nvidia
	done
}

driver_for_another_kernel() {
	driver_with 550.1 'author=x'
	copied "/usr/lib/modules/$OLD/kernel/nvidia.ko" "/usr/lib/modules/$NEW/kernel/nvidia.ko"
}

driver_and_library() { # version, library's version
	driver_with "$1" 'author=x'
	text "/usr/lib/libcuda.so.$2" 'library'
}

torn_driver() {
	driver_with 550.1 'author=x'
	text "/usr/lib/modules/$OLD/kernel/nvidia.ko" 'torn'
}

no_boot_code() {
	dd if=/dev/zero of="$raw" bs=440 count=1 conv=notrunc status=none
	sfdisk -q --delete "$raw" 2
	mdel -i "$raw@@$esp_at" ::/EFI/BOOT/BOOTX64.EFI
}

no_kernel() {
	gone /boot/vmlinuz-$OLD
	gone /boot/vmlinuz-$NEW
}

@test "what a node would share, and what is left behind: each is found and named" {
	m 'machine-id set' deb identity.machine-id bad "'/etc/machine-id' is set" text /etc/machine-id '0123456789abcdef0123456789abcdef\n'
	m "D-Bus' copy of it set" deb identity.machine-id bad "'/var/lib/dbus/machine-id' is set" dbus_id
	m 'SSH host keys' deb identity.host-keys bad "'/etc/ssh/ssh_host_ed25519_key'" text /etc/ssh/ssh_host_ed25519_key 'key\n'
	m 'licence token' deb identity.token bad "client.tok' is a licence token" token
	m 'policy-rc.d' deb leak bad "'/usr/sbin/policy-rc.d'" text /usr/sbin/policy-rc.d '#!/bin/sh\nexit 101\n'
	m 'half-written initramfs' deb leak bad "'/boot/initrd.img-$OLD.gpuimg-new'" text /boot/initrd.img-$OLD.gpuimg-new 'x\n'
	m "the appliance's name in fstab" deb leak bad "'/etc/fstab' holds 'guestfs'" edit /etc/fstab '$a# guestfs'
	m 'package half configured' deb packages bad 'not fully installed' half_configured
	m "dpkg's work unfinished" deb packages bad 'not fully installed' unfinished
	m 'a driver for one kernel only' deb driver.kernels bad "$NEW" driver_for $OLD=550.1
	m 'a driver of two versions' deb driver.versions bad '550.2' driver_for $OLD=550.1 $NEW=550.2
	m 'a driver that is damaged' deb driver.modules bad "'/lib/modules/$OLD/kernel/nvidia.ko'" torn_driver
	m 'a driver for another kernel' deb driver.vermagic bad "by kernel $NEW: it was built for '$OLD'" driver_for_another_kernel
	m "another driver's library" deb driver.userspace bad "libcuda.so.535.2' is not of the modules' version 550.1" driver_and_library 550.1 535.2
	m "a driver's firmware missing" deb driver.firmware note "'/lib/firmware/nvidia/550.1/gsp_ga10x.bin'" driver_with 550.1 firmware=nvidia/550.1/gsp_ga10x.bin
	m 'fstab with a /boot that is not there' deb - refused '/boot' edit /etc/fstab '$aUUID=99999999-7777-4888-8999-000000000000 /boot ext4 defaults 0 2'
	m "fstab with another disk's root" deb fstab.root bad "'UUID=9" edit /etc/fstab '1s/UUID=1/UUID=9/'
	m 'no kernel' deb kernel.present bad 'no kernel' no_kernel
	m 'nothing for a firmware to start' deb boot.types bad '' no_boot_code
	all_found
}

dbus_id() {
	fs mkdir /var/lib/dbus
	text /var/lib/dbus/machine-id '0123456789abcdef0123456789abcdef\n'
}

# containerd's main file: runc with systemd's cgroups, and the runtime with what is given.
runtime_with() { # program, printf's format for more options
	local runtimes='plugins."io.containerd.grpc.v1.cri".containerd.runtimes'
	text /etc/containerd/config.toml "version = 2
[$runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"
[$runtimes.runc.options]
SystemdCgroup = true
[$runtimes.nvidia]
runtime_type = \"io.containerd.runc.v2\"
[$runtimes.nvidia.options]
BinaryName = \"$1\"
${2-}"
}

cdi_spec() {
	fs mkdir /etc/cdi
	text /etc/cdi/nvidia.yaml 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\n'
}

@test "containerd's runtime, where it is wanted: each break is found and named" {
	export MUT_INSPECT='--containerd-runtime nvidia'
	m 'no such runtime' real containerd.runtime bad "no runtime 'nvidia'" text /etc/containerd/config.toml 'version = 2\n'
	m 'no TOML' real containerd.runtime bad "'/etc/containerd/config.toml'" text /etc/containerd/config.toml 'version = \n'
	m 'the CRI plugin disabled' real containerd.runtime bad 'the CRI plugin is disabled' runtime_disabled
	m "without runc's cgroups" real containerd.cgroup bad 'SystemdCgroup' runtime_with /usr/bin/nvidia-container-runtime
	m 'a program that is not there' real containerd.binary bad "'/opt/none'" runtime_with /opt/none 'SystemdCgroup = true\n'
	m 'a CDI specification' real containerd.cdi bad "'/etc/cdi/nvidia.yaml'" cdi_spec
	unset MUT_INSPECT
	m 'a drop-in that nothing imports' real containerd.unread note '/etc/containerd/config.d/99-nvidia.toml' unread_dropin
	m 'the schema of another version' real containerd.schema note "'io.containerd.cri.v1.runtime'" text /etc/containerd/config.toml 'version = 2\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]\n'
	m 'the same breaks where nothing is wanted' real containerd.cgroup note 'SystemdCgroup' runtime_with /usr/bin/nvidia-container-runtime
	all_found
}

runtime_disabled() {
	runtime_with /usr/bin/nvidia-container-runtime
	get /etc/containerd/config.toml "$part/with"
	sed '1a disabled_plugins = ["io.containerd.grpc.v1.cri"]' "$part/with" >"$part/without"
	put "$part/without" /etc/containerd/config.toml
}

unread_dropin() {
	fs mkdir /etc/containerd/config.d
	text /etc/containerd/config.d/99-nvidia.toml '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "x"\n'
}

@test "a real Debian: each break is found and named" {
	m 'parameter missing in the recovery entry' real cmdline.param bad '(recovery mode)' edit $GRUB '/single/s/ pci=nocrs//'
	m 'grub.cfg as it was' real cmdline.param bad "'pci=realloc' is not in effect" edit $GRUB 's/pci=nocrs pci=realloc module_blacklist=[^ ]*//'
	m 'block removed' real modules.alias bad 'root file system: an NVIDIA display device would load nouveau' gone $BLOCK
	m 'initramfs cut off' real initramfs.whole bad "'/boot/initrd.img-$REAL'" cut_to /boot/initrd.img-$REAL 20000000
	m 'garbage behind the initramfs' real initramfs.whole bad "'/boot/initrd.img-$REAL'" garbage_behind /boot/initrd.img-$REAL
	m 'stub overwritten' real esp.stub bad '/boot/efi/EFI/debian/grub.cfg' stub_from $GRUB
	all_found
}

@test "each id that docs/inspect.md calls bad was seen here, or says why not" {
	# Not by a mutation, and why.
	cat >"$BATS_TEST_TMPDIR/excused" <<-'END'
		initramfs.block of builds only, which hold each file to what they wrote
		initramfs.gpu-module of builds only: of another image it is a note, seen above
		cmdline.kept of builds only, which know the base
		leak.resolv of builds only, which know the base
		driver.present of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.branch of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.version of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.flavour of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.signed of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.firmware of profiles that want a driver: otherwise it is a note, seen above
		driver.loadable of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.cdi of profiles that want a driver: tests/unit/test_proof_driver.c
		driver.hold of builds only, which know what they held
		driver.preferences of builds only, which hold it to what they wrote
		driver.unattended of builds only, which hold it to what they wrote
		driver.dkms of builds only, which know whether it was to be unregistered
		initramfs.later needs a driver in the image: tests/unit/test_generator.c
		initramfs.lvm needs the appliance for its image: tests/guests/debian12-lvm.bats
	END
	awk -F'|' '/^## Findings/ { on = 1 } on && $3 ~ /bad/ { gsub(/[` ]/, "", $2); print $2 }' "$REPO/docs/inspect.md" | sort -u >"$BATS_TEST_TMPDIR/documented"
	awk -F'\t' '$1 == "found" && $3 ~ / bad$/ { sub(/ bad$/, "", $3); print $3 }' "$MUT/all" | sort -u >"$BATS_TEST_TMPDIR/raised"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/documented")" -ge 20 ]
	cut -d' ' -f1 "$BATS_TEST_TMPDIR/excused" | sort -u "$BATS_TEST_TMPDIR/raised" - >"$BATS_TEST_TMPDIR/known"
	run comm -23 "$BATS_TEST_TMPDIR/documented" "$BATS_TEST_TMPDIR/known"
	[ "$output" = "" ]
	# An excuse for what is seen after all, or is not documented, is no excuse any more.
	run bash -c "cut -d' ' -f1 '$BATS_TEST_TMPDIR/excused' | sort | comm -12 - '$BATS_TEST_TMPDIR/raised'"
	[ "$output" = "" ]
	run bash -c "cut -d' ' -f1 '$BATS_TEST_TMPDIR/excused' | sort | comm -23 - '$BATS_TEST_TMPDIR/documented'"
	[ "$output" = "" ]
}

@test "at least 60 ways, 50 of them bad, were tried and found" {
	found=$(grep -c '^found' "$MUT/all")
	all=$(wc -l <"$MUT/all")
	bad=$(awk -F'\t' '$1 == "found" && $3 ~ / bad$/' "$MUT/all" | wc -l)
	quiet=0
	while read -r image; do
		[ -n "$(complaints "$image")" ] || quiet=$((quiet + 1))
	done <"$MUT/good"
	echo "score: mutations: $found of $all found, $quiet good images raise nothing" >"$MUT/score"
	echo "# $(cat "$MUT/score")" >&3
	[ "$all" -ge 60 ]
	[ "$bad" -ge 50 ]
	[ "$found" -eq "$all" ]
	[ "$quiet" -eq "$(wc -l <"$MUT/good")" ]
}
