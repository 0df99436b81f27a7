# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: the root directory: packages by mmdebstrap, then the files of a cloud image.
# Why:  it must look as Debian's own: DHCP by cloud-init, serial console, no identity of its own.

# Before the kernel is configured. initramfs-tools: the hook that puts fsck into the initramfs looks
# at the root's block device, which does not exist here, unless it is told the type.
setup_hook()
{
	local conf=\$1/etc/initramfs-tools/conf.d

	case "$initramfs" in
	initramfs-tools)
		echo "mkdir -p \"$conf\" && echo FSTYPE=$(root_type) >\"$conf/make-base\"" ;;
	dracut) dracut_hook ;;
	esac
}

# A node's disk is not this machine's. The file sorts after dracut's own 50-hostonly.conf, which
# kernel-install adds to what dracut reads.
dracut_hook()
{
	local conf=etc/dracut.conf.d/90-generic.conf

	printf '%s\n' '# drivers for any machine: this image does not know where it will run' \
		'hostonly="no"' >"$work/dracut.conf"
	echo "install -D -m 644 ${work@Q}/dracut.conf \"\$1/$conf\""
}

# the type of the file system that holds the root
root_type()
{
	case "$root_fs" in
	lvm) echo ext4 ;;
	*) echo "$root_fs" ;;
	esac
}

bootstrap_root()
{
	local tar=$1 options

	mapfile -t options < <(apt_options)
	printf '%s\n' "$sources" >"$work/debian.sources"
	run_logged "$work/bootstrap.log" mmdebstrap --mode=root --variant=minbase --format=tar \
		--architectures=amd64 --include="$(root_packages)" \
		--aptopt='APT::Install-Recommends "false"' "${options[@]}" \
		--setup-hook="$(setup_hook)" "$suite" "$work/root.tar" "$work/debian.sources" || return 1
	zstd -q -T0 -3 --rm "$work/root.tar" -o "$tar"
}

make_root_tar()
{
	root_tar=$cache_dir/$root_key.tar.zst
	lock_cache "$root_tar"
	if cache_valid "$root_tar"; then
		step "packages: from the cache"
	else
		step "packages: mmdebstrap $suite (one to four minutes)"
		unfinished+=("$root_tar.new")
		bootstrap_root "$root_tar.new" || bootstrap_failed
		cache_store "$root_tar.new" "$root_tar"
	fi
	unlock_cache
}

bootstrap_failed()
{
	tail -n 15 "$work/bootstrap.log" >&2 || true
	cp "$work/bootstrap.log" "$cache_dir/bootstrap.log" 2>/dev/null || true
	! grep -q -e NO_PUBKEY -e EXPKEYSIG -e 'Missing key' "$work/bootstrap.log" ||
		die 3 "'$KEYRING' has no key for $suite" \
			"install a newer debian-archive-keyring: that of $suite works on older releases too"
	die 1 "mmdebstrap of $suite failed, whole log in '$cache_dir/bootstrap.log'" \
		"see whether 'apt-get update' works here, and whether the packages exist in $suite"
}

unpack_root()
{
	mkdir "$root"
	# no device nodes: devtmpfs covers them, and a user namespace may not make them
	zstd -dc -q "$root_tar" | tar -xpf - -C "$root" --exclude='./dev/*' --numeric-owner \
		--xattrs --xattrs-include='*'
}

guest_file()
{
	install -D -m "${2:-644}" /dev/stdin "$root$1"
}

write_fstab()
{
	{
		echo "$(root_device) / $(root_type) $(root_mount_options)"
		[ -z "$boot_uuid" ] || echo "UUID=$boot_uuid /boot ext4 defaults 0 2"
		echo "UUID=$esp_uuid /boot/efi vfat defaults,umask=0077 0 0"
	} | guest_file /etc/fstab
	mkdir -p "$root/boot/efi"
}

root_mount_options()
{
	case "$root_fs" in
	ext4 | lvm) echo "discard,errors=remount-ro 0 1" ;;
	btrfs) echo "defaults,subvol=${SUBVOL} 0 0" ;; # it has no fsck to run at boot
	*) echo "defaults 0 1" ;;
	esac
}

# as fstab and the kernel name it
root_device()
{
	case "$root_fs" in
	lvm) echo "/dev/mapper/$ROOT_VG-$ROOT_LV" ;;
	*) echo "UUID=$root_uuid" ;;
	esac
}

write_identity()
{
	echo debian | guest_file /etc/hostname
	guest_file /etc/hosts <<-EOF
	127.0.0.1	localhost
	127.0.1.1	debian
	::1		localhost ip6-localhost ip6-loopback
	ff02::1		ip6-allnodes
	ff02::2		ip6-allrouters
	EOF
	echo LANG=C.UTF-8 | guest_file /etc/default/locale
	rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
	# a login that this machine has for its mirror is not for every node
	printf '%s\n' "$sources" | sed -E 's,(https?://)[^/@ ]*@,\1,' |
		guest_file /etc/apt/sources.list.d/debian.sources
}

write_default_grub()
{
	guest_file /etc/default/grub <<-EOF
	# If you change this file, run 'update-grub' afterwards to update
	# /boot/grub/grub.cfg.
	GRUB_DEFAULT=0
	GRUB_TIMEOUT=1
	GRUB_DISTRIBUTOR=\`. /etc/os-release; echo \${NAME%% *}\`
	GRUB_CMDLINE_LINUX_DEFAULT=""
	GRUB_CMDLINE_LINUX="$CONSOLE_ARGS"
	GRUB_TERMINAL="console serial"
	GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
	GRUB_DISABLE_OS_PROBER=true
	EOF
}

# only sources that answer at once when they are not there: Ec2 would wait for its metadata server
write_cloud_init()
{
	guest_file /etc/cloud/cloud.cfg.d/90_dpkg.cfg <<-'EOF'
	# to update this file, run dpkg-reconfigure cloud-init
	datasource_list: [ NoCloud, ConfigDrive, OpenStack, None ]
	EOF
	guest_file /etc/cloud/cloud.cfg.d/01_debian_cloud.cfg <<-'EOF'
	apt:
	  preserve_sources_list: true
	manage_etc_hosts: true
	# generating a locale costs a minute on a slow machine, and C.UTF-8 is there already
	locale: false
	EOF
}

# What kernel-install reads, here and for each kernel that a node installs. The token stands in
# names on the ESP: not the machine-id, which every node has of its own. Debian's kernel hooks have
# made /boot/initrd.img-VERSION by then, whatever the generator; dracut's own part in kernel-install
# would make a second initramfs, and both would be loaded.
write_kernel_conf()
{
	local flags=

	[ "$root_fs" != btrfs ] || flags=" rootflags=subvol=$SUBVOL"
	echo "root=$(root_device) ro$flags $CONSOLE_ARGS" | guest_file /etc/kernel/cmdline
	echo debian | guest_file /etc/kernel/entry-token
	{
		if [ "$loader" = uki ]; then printf 'layout=uki\nuki_generator=ukify\n'; else echo layout=bls; fi
		echo initrd_generator=none
	} | guest_file /etc/kernel/install.conf
}

tailor_root()
{
	write_fstab
	write_identity
	case "$loader" in
	grub) write_default_grub ;;
	systemd-boot | uki) write_kernel_conf ;;
	esac
	write_cloud_init
	# cloud-init writes netplan files, netplan writes networkd files; netplan's own generator has
	# run by then, so on the first boot nothing else would start networkd
	sandbox systemctl enable systemd-networkd.service systemd-resolved.service >/dev/null 2>&1
	ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
}

# What the build left behind: identities that every node would share, and facts about this host.
# The .bak is systemd-resolved's copy of the resolv.conf that mmdebstrap had taken from the host.
scrub_root()
{
	: >"$root/etc/machine-id"
	(cd "$root" && rm -rf var/lib/dbus/machine-id etc/ssh/ssh_host_* var/lib/systemd/random-seed \
		etc/.resolv.conf.systemd-resolved.bak etc/apt/apt.conf.d/99mmdebstrap \
		etc/dpkg/dpkg.cfg.d/99mmdebstrap etc/initramfs-tools/conf.d/make-base \
		usr/sbin/policy-rc.d var/cache/debconf/*-old var/lib/dpkg/*-old \
		var/cache/ldconfig/aux-cache var/cache/apt/*.bin var/cache/apt/archives/*.deb \
		tmp/* var/tmp/* run/*)
	# files only: the directories belong to packages
	find "$root/var/log" "$root/var/lib/apt/lists" -type f -delete
}

run_customize()
{
	local script

	for script in "${customize[@]}"; do
		step "customize: $(basename "$script")"
		run_logged "$work/customize.log" "$(readlink -f "$script")" "$root" && continue
		tail -n 15 "$work/customize.log" >&2
		die 1 "customize script '$script' failed" "its last lines stand above"
	done
}
