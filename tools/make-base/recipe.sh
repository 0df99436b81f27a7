# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: mirror, package list, cache keys, UUIDs, cache entries.
# Why:  the same recipe gives the same identifiers, and no input that matters is missing in a key.

host_codename()
{
	# shellcheck source=/dev/null
	( . /etc/os-release && [ "${ID-}" = debian ] && echo "${VERSION_CODENAME-}" ) || true
}

# prints "URI SUITE" for each Debian entry of this machine's apt, from both file formats;
# other repositories are left out, since their suites do not carry the machine's code name
apt_entries()
{
	local dir=/etc/apt

	find "$dir/sources.list.d" -name '*.sources' -type f -exec awk '
		function flush(  u, s, n, m, i) {
			if (f["types"] ~ /(^| )deb( |$)/ && f["enabled"] != "no") {
				split(f["uris"], u, " ")
				n = split(f["suites"], s, " ")
				for (i = 1; i <= n; i++)
					print u[1], s[i]
			}
			delete f
		}
		FNR == 1 || /^[[:space:]]*$/ { flush(); key = "" }
		/^#/ { next }
		/^[^[:space:]]+:/ { key = tolower($1); sub(/:.*/, "", key); sub(/^[^:]*:[[:space:]]*/, "") }
		key != "" { f[key] = f[key] (f[key] == "" ? "" : " ") $0 }
		END { flush() }' {} + 2>/dev/null || true
	find "$dir/sources.list" "$dir/sources.list.d" -name '*.list' -type f -exec cat {} + 2>/dev/null |
		sed -E 's/\[[^]]*\]//' | awk '$1 == "deb" { print $2, $3 }' || true
}

# prints "URI SUITE" lines for the wanted suite: the machine's mirror serves the other suites too;
# sid alone has neither updates nor a security archive
mirror_entries()
{
	local host uri entry

	if [ -n "$mirror" ]; then
		echo "$mirror $suite"
		return 0
	fi
	host=$(host_codename)
	apt_entries | sort -u | while read -r uri entry; do
		case "$suite:$entry" in
		*":$host") echo "${uri%/} $suite" ;;
		sid:* | unstable:*) ;;
		*":$host-updates" | *":$host-security") echo "${uri%/} $suite${entry#"$host"}" ;;
		esac
	done
}

# the deb822 file that mmdebstrap reads and that stays in the guest
guest_sources()
{
	local uri suites

	mirror_entries | awk '{ s[$1] = s[$1] " " $2 } END { for (u in s) print u s[u] }' | sort |
		while read -r uri suites; do
			printf 'Types: deb\nURIs: %s\nSuites: %s\n' "$uri" "$suites"
			printf 'Components: main\nSigned-By: %s\n\n' "$KEYRING"
		done
}

choose_mirror()
{
	local host

	host=$(host_codename)
	suite=${suite:-${host:-bookworm}}
	sources=$(guest_sources)
	[[ $(mirror_entries)$'\n' == *" $suite"$'\n'* ]] ||
		die 3 "no Debian mirror in the apt configuration of this machine" "name one with --mirror URI"
}

# proxy and date checks of this machine's apt hold for the download, never for the guest
apt_options()
{
	apt-config dump --format '%f "%v";%n' Acquire::http::Proxy Acquire::https::Proxy \
		Acquire::Check-Valid-Until Acquire::Check-Date 2>/dev/null |
		grep -v ' "";$' | sed 's/^/--aptopt=/' || true
}

root_packages()
{
	local list

	list="$BASE_PACKAGES $initramfs ${kernels//,/ } ${extra_packages//,/ }"
	case "$root_fs" in
	xfs) list+=" xfsprogs" ;;
	btrfs) list+=" btrfs-progs" ;;
	lvm) list+=" lvm2" ;;
	esac
	case "$loader" in
	grub) list+=" grub2-common grub-pc-bin grub-efi-amd64-bin" ;;
	systemd-boot) list+=" systemd-boot systemd-boot-efi" ;;
	uki) list+=" systemd-boot systemd-boot-efi systemd-ukify" ;;
	esac
	[ -z "$secure_boot" ] || list+=" shim-signed grub-efi-amd64-signed"
	# shellcheck disable=SC2086 # split on purpose
	printf '%s\n' $list | sort -u | paste -sd,
}

# the functions that make the tar stand in its recipe as text, so that work on the other half of
# this script does not cost a new bootstrap
root_recipe()
{
	printf 'suite=%s\npackages=%s\nroot-fs=%s\n' "$suite" "$(root_packages)" "$root_fs"
	printf 'sources=%s\n' "$sources"
	printf 'mmdebstrap=%s\n' "$(mmdebstrap --version)"
	declare -f bootstrap_root setup_hook dracut_hook root_type
}

image_recipe()
{
	local script

	root_recipe
	printf 'loader=%s,%s\n' "$loader" "$secure_boot"
	printf 'size=%s\nboot=%s,%s\ncompression=%s\n' "$size" "$boot_size" "$boot_part" "$compression"
	printf 'qemu-img=%s\n' "$(qemu-img --version | sed -n 1p)"
	printf 'mkfs=%s\n' "$(mkfs_version)"
	for script in "$self" "$here"/make-base/*.sh "$sandbox_dir"/*.sh "${customize[@]}"; do
		printf 'script=%s\n' "$(sha256sum <"$script")"
	done
}

mkfs_version()
{
	mke2fs -V 2>&1 | sed -n 1p
	case "$root_fs" in
	xfs) mkfs.xfs -V ;;
	btrfs) mkfs.btrfs --version && guestfish --version ;;
	esac
}

key_of()
{
	sha256sum | cut -c 1-32
}

# uuid_for NAME: a version 8 UUID (RFC 9562) from the recipe, the same on every run of it
uuid_for()
{
	local h

	h=$(printf '%s %s' "$image_key" "$1" | sha256sum)
	printf '%s-%s-8%s-8%s-%s\n' "${h:0:8}" "${h:8:4}" "${h:12:3}" "${h:15:3}" "${h:18:12}"
}

compute_ids()
{
	root_key=$(root_recipe | key_of)
	image_key=$(image_recipe | key_of)

	disk_uuid=$(uuid_for disk)
	bios_partuuid=$(uuid_for bios-part)
	esp_partuuid=$(uuid_for esp-part)
	boot_partuuid=$(uuid_for boot-part)
	root_partuuid=$(uuid_for root-part)
	root_uuid=$(uuid_for root-fs)
	boot_uuid=
	[ -z "$boot_size" ] || boot_uuid=$(uuid_for boot-fs)
	esp_id=$(uuid_for esp-fs | cut -c 1-8 | tr a-f A-F)
	esp_uuid=${esp_id:0:4}-${esp_id:4:4}
}

# an entry is good only with its digest beside it: a half-written or damaged one is made again
cache_valid()
{
	[ -f "$1" ] && [ -f "$1.sha256" ] || return 1
	[ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$(cat "$1.sha256")" ] && return 0
	step "cache entry '$1' is damaged, making it again"
	return 1
}

cache_store()
{
	local from=$1 to=$2

	rm -f "$to.sha256"
	sha256sum <"$from" | cut -d ' ' -f 1 >"$to.sha256.new"
	mv "$from" "$to"
	mv "$to.sha256.new" "$to.sha256"
}

lock_cache()
{
	exec {lock_fd}>"$1.lock"
	if ! flock -n "$lock_fd"; then
		step "waiting for another run that makes the same"
		flock "$lock_fd"
	fi
}

unlock_cache()
{
	exec {lock_fd}>&-
}
