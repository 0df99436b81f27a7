# SPDX-License-Identifier: Apache-2.0
# What: breaks one link of a good image's boot chain, and asks 'gpuimg inspect' what it sees.
# Why:  a proof that was never seen to fail proves nothing.
# How:  'good NAME IMAGE ESP NOTES' once for each good image; then, a row each,
#           m NAME IMAGE ID VERDICT TEXT FUNCTION [ARGUMENT]...
#       copies the good image to $raw, calls the function on it, and wants a finding of that id and
#       verdict whose text holds TEXT. 'refused' as verdict: exit code 4, TEXT in the message.
#       MUT_INSPECT: options of 'inspect' for a row whose id depends on what is wanted.
#       Changes are made by debugfs and mtools, which share no code with gpuimg.
# shellcheck shell=bash disable=SC2154 # root_at and esp_at are good()'s

export MUT=$OUT/mutations
export raw=$MUT/mutated.raw
export part=$MUT/part # scratch for one mutation

# The offset of a raw image's partition, in bytes.
offset_of() { # raw image, partition number
	local line
	line=$(sfdisk -d "$1" 2>/dev/null | grep -E "raw$2 :")
	echo $(($(awk -F'[=,]' '{ print $2 + 0 }' <<<"$line") * 512))
}

# good NAME IMAGE ESP-PARTITION ALLOWED-NOTES: the raw image, and what inspect says of it untouched.
good() {
	mkdir -p "$MUT"
	qemu-img convert -q -O raw "$2" "$MUT/$1.raw"
	{
		echo "export root_at=$(offset_of "$MUT/$1.raw" 1)"
		echo "export esp_at=$(offset_of "$MUT/$1.raw" "$3")"
	} >"$MUT/$1.layout"
	"$GPUIMG" inspect --json -q "$MUT/$1.raw" >"$MUT/$1.json" 2>"$MUT/$1.err" && echo 0 >"$MUT/$1.code" || echo $? >"$MUT/$1.code"
	echo "$4" >"$MUT/$1.notes"
	echo "$1" >>"$MUT/good"
}

# What is not right about an untouched image; nothing, if all is.
complaints() {
	[ "$(cat "$MUT/$1.code")" = 0 ] || echo "$1: exit code $(cat "$MUT/$1.code"): $(cat "$MUT/$1.err")"
	jq -r --arg notes "$(cat "$MUT/$1.notes")" --arg image "$1" '.findings[]
		| select(.verdict == "bad" or (.verdict == "note" and (.id | IN($notes | split(" ")[]) | not)))
		| "\($image): \(.verdict) \(.id): \(.what)"' "$MUT/$1.json" || echo "$1: no JSON"
}

# --- one row ---

m() {
	local name=$1 image=$2 id=$3 verdict=$4 text=$5 code=0
	shift 5
	cp --reflink=auto --sparse=always "$MUT/$image.raw" "$raw"
	rm -rf "$part"
	mkdir "$part"
	# shellcheck source=/dev/null # written by good()
	. "$MUT/$image.layout"
	# 'set -e' is off wherever a function's code is asked for, so each gets a shell of its own.
	bash -euo pipefail -c "$(declare -f)"$'\n''"$@"' mutation "$@" >"$part/log" 2>&1 || code=$?
	if [ "$code" -ne 0 ]; then
		record FAILED "$name" "$image: the mutation itself failed: $(tail -n 3 "$part/log")"
	elif cmp -s "$raw" "$MUT/$image.raw"; then
		record FAILED "$name" "$image: the mutation changes nothing"
	else
		judge "$name" "$image" "$id" "$verdict" "$text"
	fi
	return 0
}

judge() {
	local name=$1 image=$2 id=$3 verdict=$4 text=$5 code=0 want
	# shellcheck disable=SC2086 # options, one a word
	"$GPUIMG" inspect --json -q ${MUT_INSPECT-} "$raw" >"$part/json" 2>"$part/err" || code=$?
	case $verdict in
	bad) want=5 ;;
	note) want=0 ;;
	refused) want=4 ;;
	esac
	if [ "$code" -ne "$want" ]; then
		record MISSED "$name" "$image: exit code $code, want $want; $(seen)"
	elif [ "$verdict" = refused ] && ! grep -qF -- "$text" "$part/err"; then
		record MISSED "$name" "$image: '$text' is not in: $(cat "$part/err")"
	elif [ "$verdict" != refused ] && ! jq -e --arg id "$id" --arg verdict "$verdict" --arg text "$text" \
		'any(.findings[]; .id == $id and .verdict == $verdict and (.what | contains($text)))' "$part/json" >/dev/null; then
		record MISSED "$name" "$image: no $verdict $id with '$text'; $(seen)"
	else
		record found "$name" "$id $verdict"
	fi
}

# What was told of the mutated image beside what is told of the good one.
seen() {
	head -c 400 "$part/err"
	jq -c '.findings[] | select(.verdict != "ok" and .id != "cmdline.hotplug" and .id != "cloud-init.missing") | [.verdict, .id, .what]' "$part/json" 2>/dev/null | head -n 8
}

record() { # found, MISSED or FAILED; name; what
	printf '%s\t%s\t%s\n' "$1" "$2" "${3//$'\n'/ }" >>"$MUT/results"
}

# --- the root file system ---

fs() { # command...: one of debugfs, which has no exit code of its own
	local said
	said=$(debugfs -w -f - "$raw?offset=$root_at" 2>&1 <<<"$*" | grep -v -e '^debugfs' -e 'Allocated inode' || true)
	[ -z "$said" ] || {
		echo "$*: $said"
		return 1
	}
}

get() { # path, to: a file out of the image
	debugfs -R "dump $1 $2" "$raw?offset=$root_at" 2>/dev/null
	[ -e "$2" ]
}

has() {
	debugfs -R "stat $1" "$raw?offset=$root_at" 2>/dev/null | grep -q Inode:
}

put() { # from, path: a file into the image, in place of what is there
	chmod 0644 "$1"
	! has "$2" || fs rm "$2"
	fs write "$1" "$2"
}

gone() { # path
	has "$1"
	fs rm "$1"
}

# Takes a name away and leaves what it named: enough for a directory that nobody finds.
unnamed() {
	has "$1"
	fs unlink "$1"
}

text() { # path, printf's format: a new file, or another content
	# shellcheck disable=SC2059 # it is a format
	printf "$2" >"$part/text"
	put "$part/text" "$1"
}

link() { # path, target
	! has "$1" || fs rm "$1"
	fs symlink "$1" "$2"
}

moved() { # from, to
	get "$1" "$part/moved"
	gone "$1"
	put "$part/moved" "$2"
}

copied() {
	get "$1" "$part/copied"
	put "$part/copied" "$2"
}

edit() { # path, sed's arguments: it must change something
	local path=$1
	shift
	get "$path" "$part/was"
	sed "$@" "$part/was" >"$part/is"
	if cmp -s "$part/was" "$part/is"; then
		echo "$path: sed changes nothing"
		return 1
	fi
	put "$part/is" "$path"
}

# The base's file in its place.
from_base() { # base, path [, as which path]
	(raw=$MUT/$1.raw get "$2" "$part/base")
	put "$part/base" "${3:-$2}"
}

# --- an initramfs ---

repacked() { # path, FUNCTION [ARGUMENT]...: in the unpacked tree
	local path=$1 packed=${packed:-gzip -n}
	shift
	get "$path" "$part/initrd"
	mkdir "$part/tree"
	(cd "$part/tree" && zcat "$part/initrd" | cpio -idm --quiet && "$@")
	(cd "$part/tree" && find . | LC_ALL=C sort | cpio -o -H newc --quiet | $packed) >"$part/new"
	put "$part/new" "$path"
}

cut_to() { # path, bytes
	get "$1" "$part/whole"
	head -c "$2" "$part/whole" >"$part/short"
	put "$part/short" "$1"
}

appended() { # path, file
	get "$1" "$part/whole"
	truncate -s %4 "$part/whole" # the kernel looks for a cpio at every fourth byte only
	cat "$2" >>"$part/whole"
	put "$part/whole" "$1"
}

garbage_behind() {
	head -c 3000 /dev/zero | tr '\0' 'x' >"$part/garbage"
	appended "$1" "$part/garbage"
}

# One more cpio whose files take the place of those before.
cpio_behind() { # initramfs, path of a file in it, its content
	mkdir -p "$part/later/$(dirname "$2")"
	# shellcheck disable=SC2059 # it is a format
	printf "$3" >"$part/later/$2"
	(cd "$part/later" && find . | LC_ALL=C sort | cpio -o -H newc --quiet) >"$part/cpio"
	appended "$1" "$part/cpio"
}

# --- modules of one kernel ---

# Their tree out of the image; 'modules_in' writes the changed indexes back.
modules_out() { # version
	local version=$1 name
	local dir=$part/root/lib/modules/$version
	mkdir -p "$dir/kernel"
	for name in modules.order modules.builtin modules.builtin.modinfo; do
		get "/usr/lib/modules/$version/$name" "$dir/$name"
	done
	for name in $(debugfs -R "ls -p /usr/lib/modules/$version/kernel" "$raw?offset=$root_at" 2>/dev/null | cut -d/ -f6 | grep '\.ko$'); do
		get "/usr/lib/modules/$version/kernel/$name" "$dir/kernel/$name"
	done
}

modules_in() { # version, files of kernel/ that are new...
	local version=$1 name path
	local dir=$part/root/lib/modules/$version
	shift
	depmod -b "$part/root" "$version"
	for path in "$dir"/modules.*; do
		put "$path" "/usr/lib/modules/$version/${path##*/}"
	done
	for name in "$@"; do
		put "$dir/kernel/$name.ko" "/usr/lib/modules/$version/kernel/$name.ko"
	done
}

# --- the ESP ---

esp_put() { # from, path
	mcopy -o -i "$raw@@$esp_at" "$1" "::$2"
}

esp_text() { # path, printf's format
	# shellcheck disable=SC2059 # it is a format
	printf "$2" >"$part/text"
	esp_put "$part/text" "$1"
}
