# SPDX-License-Identifier: Apache-2.0
# What: small unpacked Debian roots of other suites, as tars, from this machine's package mirror.
# Why:  some programs (containerd) are asked in three releases; a whole base image for each is dear.
# How:  'load ../lib/roots'; root_tar SUITE PACKAGE... prints the path of the tar. Made once, kept under
#       ${XDG_CACHE_HOME:-~/.cache}/gpuimg/test-images by their recipe.
# shellcheck shell=bash

# Packages are unpacked, not configured: what is run there needs its files only.
# shellcheck disable=SC2034,SC2317,SC1091 # for the parts of make-base
root_tar() ( # in a subshell: make-base's functions have its names
	set -euo pipefail
	suite=$1
	shift
	KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
	mirror='' sources='' hook=/usr/share/mmdebstrap/hooks/merged-usr
	die() {
		echo "$2 ($3)" >&2
		exit "$1"
	}
	# shellcheck source=tools/make-base/recipe.sh
	. "$REPO/tools/make-base/recipe.sh"
	choose_mirror
	mapfile -t options < <(apt_options)
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpuimg/test-images
	recipe="$suite $* $sources"
	tar=$cache/root-$suite-$(sha256sum <<<"$recipe" | cut -c1-16).tar
	mkdir -p "$cache"
	if [ ! -e "$tar" ]; then
		work=$(mktemp -d "$cache/new.XXXXXX")
		trap 'rm -rf "$work"' EXIT
		printf '%s\n' "$sources" >"$work/debian.sources"
		# the links of a merged /usr are a package's own from trixie on
		[ ! -d "$hook" ] || options+=("--hook-dir=$hook")
		mmdebstrap --variant=extract --mode=root --format=tar --architectures=amd64 \
			--include="$(IFS=,; echo "$*")" --aptopt='APT::Install-Recommends "false"' \
			"${options[@]}" "$suite" "$work/tar" "$work/debian.sources" >"$work/log" 2>&1 || {
			tail -n 5 "$work/log" >&2
			exit 1
		}
		mv "$work/tar" "$tar"
	fi
	echo "$tar"
)
