#!/bin/sh
# What: tells facts about the running guest on its serial console, in frames that survive
# kernel messages in between (the format: builder/boot-internal.h). Run by the boot test's seed.
# Why: QEMU sees the card from outside only; what modprobe would load is known in the guest.
# See it on a node: sh facts.sh early test 0 MODALIAS; the lines appear on /dev/ttyS0.
#
# usage: facts.sh early|late NONCE SETTLE_SECONDS MODALIAS [DRIVER]
# DRIVER: a module that the late part tries to load, "nvidia".

phase=$1
nonce=$2
settle=$3
modalias=$4
driver=$5
number=0
frame=

# The kernel's tools may not be in the PATH that cloud-init gives us.
PATH=$PATH:/usr/sbin:/sbin:/usr/bin:/bin
export PATH
LC_ALL=C
export LC_ALL

have() {
	command -v "$1" >/dev/null 2>&1
}

# line NUMBER KEY PIECE: one line of the frame, with its own check.
line() {
	sum=$(printf '%s' "$phase $1 $2 $3" | cksum)
	frame="${frame}GPUIMG-$nonce $phase $1 $2 $3 ${sum%% *} ;
"
}

# fact KEY VALUE
fact() {
	pieces=$(printf '%s' "$2" | head -c 4000 | base64)
	for piece in ${pieces:-=}; do
		number=$((number + 1))
		line "$number" "$1" "$piece"
	done
}

# Names of modules in the output of modprobe -D, one a line.
module_names() {
	sed -n -e 's,^insmod .*/\([^/ ]*\)\.ko.*,\1,p' -e 's,^builtin \(.*\),\1,p'
}

# The guest's drivers are loaded by udev: wait until it has seen every device.
wait_for_udev() {
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		have systemctl || break
		systemctl is-active --quiet systemd-udev-trigger.service && break
		sleep 1
	done
	have udevadm && udevadm settle --timeout=60
}

# cloud-final, which runs us, is itself one of the jobs that the system waits for: so this
# part runs on its own, after that service has ended.
wait_for_rest() {
	waited=0
	have systemctl || return
	while [ "$waited" -lt "$settle" ]; do
		case $(systemctl is-system-running 2>/dev/null) in
		running | degraded | maintenance | stopping) return ;;
		esac
		sleep 1
		waited=$((waited + 1))
	done
}

module_facts() {
	fact modules "$(cut -d ' ' -f 1 /proc/modules | grep -E '^(nouveau|nova|nvidia|rivafb)')"
	if have modprobe; then
		fact alias "$(modprobe -b -D "$modalias" 2>/dev/null | module_names)"
		fact byname "$(for name in nouveau nova_core nova_drm nova; do
			modprobe -D "$name" 2>/dev/null
		done | module_names)"
	fi
	if have modinfo; then
		fact exists "$(for name in nouveau nova_core; do
			modinfo -n "$name" >/dev/null 2>&1 && echo "$name"
		done)"
	fi
}

# "ADDRESS START END FLAGS" of the large BAR: BAR 2 of QEMU's pci-testdev.
bar_fact() {
	for device in /sys/bus/pci/devices/*; do
		[ "$(cat "$device/vendor" 2>/dev/null)" = 0x1b36 ] || continue
		[ "$(cat "$device/device" 2>/dev/null)" = 0x0005 ] || continue
		fact bar "${device##*/} $(sed -n 3p "$device/resource")"
		return
	done
}

# "on", "off"; "none" without UEFI; no fact where the variable cannot be read. Its fifth byte tells.
secure_boot_facts() {
	efivars=/sys/firmware/efi/efivars
	secure_boot=$efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
	if [ ! -d /sys/firmware/efi ]; then
		fact secure_boot none
	elif [ -d "$efivars" ]; then
		[ -e "$secure_boot" ] || mount -t efivarfs efivarfs "$efivars" 2>/dev/null
		case $(od -An -tu1 -j4 -N1 "$secure_boot" 2>/dev/null | tr -d ' ') in
		1) fact secure_boot on ;;
		0) fact secure_boot off ;;
		esac
	fi
	lockdown=$(sed -n 's/.*\[\(.*\)\].*/\1/p' /sys/kernel/security/lockdown 2>/dev/null)
	[ -z "$lockdown" ] || fact lockdown "$lockdown"
}

disk_fact() {
	probe=/var/tmp/.gpuimg-facts.$$
	root=$(awk '$2 == "/" { line = $1 " " $3 } END { print line }' /proc/mounts)
	if echo "$nonce" >"$probe" && sync && [ "$(cat "$probe")" = "$nonce" ]; then
		fact disk "ok $root"
	else
		fact disk "failed $root"
	fi 2>/dev/null
	rm -f "$probe"
}

# Global addresses, one a line; nothing means that the NIC does not work.
nic_fact() {
	if have ip; then
		fact nic "$(ip -o addr show scope global | awk '{ print $2, $4 }')"
	elif have hostname; then
		fact nic "$(hostname -I)"
	fi
}

# attempt SECONDS COMMAND...: $code and $said tell how it ended. A process that hangs in the
# kernel cannot be killed: the boot test goes on without it.
attempt() {
	limit=$1 waited=0
	shift
	rm -f "$scratch/code"
	(
		"$@" >"$scratch/said" 2>&1 </dev/null
		echo $? >"$scratch/code.new"
		mv "$scratch/code.new" "$scratch/code"
	) &
	while [ ! -e "$scratch/code" ] && [ "$waited" -lt "$limit" ]; do
		sleep 1
		waited=$((waited + 1))
	done
	code=$(cat "$scratch/code" 2>/dev/null)
	if [ -z "$code" ]; then
		kill -9 $!
		code="none within $limit s"
	fi 2>/dev/null
	said=$(head -c 1500 "$scratch/said" 2>/dev/null)
}

# The module that "modprobe NAME" ends at: a file's name, or what an install line leads on to
# ("install modprobe -i nvidia-current ...").
resolved() {
	modprobe -D "$1" 2>/dev/null | sed -n \
		-e 's,^insmod .*/\([^/ ]*\)\.ko.*,\1,p' \
		-e 's,^install .*modprobe  *\(-[^ ]*  *\)*\([^- ;$][^ ;]*\).*,\2,p' | tail -n 1
}

driver_module_facts() {
	module=$(resolved "$driver")
	fact driver_module "$module"
	have modinfo || return
	fact driver_version "$(modinfo -F version "${module:-$driver}" 2>/dev/null)"
	fact driver_vermagic "$(modinfo -F vermagic "${module:-$driver}" 2>/dev/null)"
}

# "UNIT: LINE" of what the driver's failed units said themselves.
driver_unit_lines() {
	systemctl list-units --state=failed --plain --no-legend --no-pager | cut -d ' ' -f 1 |
		grep -e '^nvidia-' -e '^systemd-modules-load' | while read -r unit; do
		# a daemon that is gone already is known to the journal by a name of its own only
		name=${unit%.service}
		journalctl -b -q --no-pager -o cat _SYSTEMD_UNIT="$unit" + \
			SYSLOG_IDENTIFIER="$name" + SYSLOG_IDENTIFIER="/usr/bin/$name" + \
			SYSLOG_IDENTIFIER="nv-${name#nvidia-}" | tail -n 12 |
			cut -c 1-200 | sed "s/^/$unit: /"
	done
}

# Whether the driver loads, as far as it goes without a card that answers. Each user of a driver
# that found no card loads it once more: its lines are read before nvidia-smi does that.
driver_facts() {
	have modprobe || return
	scratch=$(mktemp -d /run/gpuimg-facts.XXXXXX) || return
	attempt 120 modprobe "$driver"
	fact driver_exit "$code"
	fact driver_message "$said"
	fact driver_modules "$(cut -d ' ' -f 1 /proc/modules | grep '^nvidia')"
	driver_module_facts
	fact driver_kernel "$(dmesg 2>/dev/null |
		grep -i -e nvrm -e nvidia -e 'module is rejected' -e 'unavailable key' \
			-e 'module loading is restricted' |
		sed 's/^ *//' | cut -c 1-160 | tail -n 24)"
	if have nvidia-smi; then
		attempt 60 nvidia-smi
		fact driver_smi "exit code $code: $said"
	fi
	fact driver_devices "$(for node in /dev/nvidia*; do
		[ -e "$node" ] && echo "$node"
	done)"
	if have journalctl; then
		fact driver_units "$(driver_unit_lines 2>/dev/null)"
	fi
	rm -rf "$scratch"
}

unit_facts() {
	have systemctl || return
	fact state "$(systemctl is-system-running)"
	fact failed "$(systemctl list-units --state=failed --plain --no-legend --no-pager |
		cut -d ' ' -f 1)"
}

key_facts() {
	have ssh-keygen || return
	fact host_keys "$(for key in /etc/ssh/ssh_host_*_key.pub; do
		[ -e "$key" ] && ssh-keygen -l -f "$key" | cut -d ' ' -f 2
	done)"
}

collect() {
	fact kernel "$(uname -r)"
	fact cmdline "$(cat /proc/cmdline)"
	fact machine_id "$(cat /etc/machine-id 2>/dev/null)"
	secure_boot_facts
	bar_fact
	if [ "$phase" = late ] && [ -n "$driver" ]; then
		driver_facts # before the loaded modules are told
	fi
	module_facts
	disk_fact
	if [ "$phase" = late ]; then
		nic_fact
		unit_facts
		key_facts
	fi
	line 0 end "$number"
}

# /dev/console too, where it is another device.
say() {
	printf '\n%s\n' "$frame" >/dev/ttyS0
	case " $(cat /sys/class/tty/console/active 2>/dev/null) " in
	*" ttyS0 "*) ;;
	*) printf '\n%s\n' "$frame" >/dev/console ;;
	esac
} 2>/dev/null

tell() {
	collect
	say
	sleep 1
	say
}

case $phase in
early)
	wait_for_udev
	tell
	;;
late)
	(
		trap '' HUP
		wait_for_rest
		tell
	) >/dev/null 2>&1 </dev/null &
	;;
esac
