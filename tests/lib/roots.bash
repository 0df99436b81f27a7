# SPDX-License-Identifier: Apache-2.0
# What: small Debian roots of other suites, as tars, from this machine's package mirror.
# Why:  some programs (apt, containerd) are asked in several releases; a whole base image for each is dear.
# How:  'load ../lib/roots'; root_tar SUITE PACKAGE... and root_minbase SUITE print the path of the tar. Made
#       once, kept under ${XDG_CACHE_HOME:-~/.cache}/gpuimg/test-images by their recipe.
# shellcheck shell=bash

# root_made NAME SUITE RECIPE OPTION...: prints the path; OPTIONs are mmdebstrap's, and RECIPE stands for them.
# shellcheck disable=SC2034,SC2317,SC1091 # for the parts of make-base
root_made() ( # in a subshell: make-base's functions have its names
	set -euo pipefail
	name=$1 suite=$2 recipe=$3
	shift 3
	KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
	mirror='' sources=''
	die() {
		echo "$2 ($3)" >&2
		exit "$1"
	}
	# shellcheck source=tools/make-base/recipe.sh
	. "$REPO/tools/make-base/recipe.sh"
	choose_mirror
	mapfile -t options < <(apt_options)
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpuimg/test-images
	tar=$cache/$name-$suite-$(sha256sum <<<"$recipe $sources" | cut -c1-16).tar
	mkdir -p "$cache"
	if [ ! -e "$tar" ]; then
		work=$(mktemp -d "$cache/new.XXXXXX")
		trap 'rm -rf "$work"' EXIT
		printf '%s\n' "$sources" >"$work/debian.sources"
		mmdebstrap --mode=root --format=tar --architectures=amd64 "$@" "${options[@]}" \
			"$suite" "$work/tar" "$work/debian.sources" >"$work/log" 2>&1 || {
			tail -n 5 "$work/log" >&2
			exit 1
		}
		mv "$work/tar" "$tar"
	fi
	echo "$tar"
)

# Packages are unpacked, not configured: what is run there needs its files only.
root_tar() { # SUITE PACKAGE...
	local suite=$1 hook=/usr/share/mmdebstrap/hooks/merged-usr options=()
	shift
	# the links of a merged /usr are a package's own from trixie on
	[ ! -d "$hook" ] || options=("--hook-dir=$hook")
	root_made root "$suite" "$suite $*" --variant=extract --include="$(IFS=,; echo "$*")" \
		--aptopt='APT::Install-Recommends "false"' "${options[@]}"
}

# A small configured root.
root_minbase() { # SUITE
	# shellcheck disable=SC2016 # mmdebstrap's
	root_made minbase "$1" "2 $1" --variant=minbase \
		--customize-hook='rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"'
}
