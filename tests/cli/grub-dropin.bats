#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1003,SC2016 # the single quotes are meant
# boot/grub.d/zz-gpuimg.cfg, sourced as grub-mkconfig does it: after set -e, in dash and bash.
# Needs a shell and nothing else: no image, no appliance, no GRUB.

setup() {
	dropin=$BATS_TEST_DIRNAME/../../boot/grub.d/zz-gpuimg.cfg
	ours='pci=nocrs pci=realloc'
	names='nouveau,nova_core,nova_drm'
	block=module_blacklist=$names
}

# render ADD REMOVE BLACKLIST: what the builder does with the three lines.
render() {
	dropin=$BATS_TEST_TMPDIR/zz-gpuimg.cfg
	sed -e "s|^gpuimg_add=.*|gpuimg_add='$1'|" -e "s|^gpuimg_remove=.*|gpuimg_remove='$2'|" \
		-e "s|^gpuimg_blacklist=.*|gpuimg_blacklist='$3'|" \
		"$BATS_TEST_DIRNAME/../../boot/grub.d/zz-gpuimg.cfg" >"$dropin"
}

# source_in SHELL LINUX DEFAULT [TIMES]: prints both variables between |, one a line.
source_in() {
	# a program that the drop-in would call is not found
	PATH=/nonexistent "$(command -v "$1")" -c '
		set -e
		GRUB_CMDLINE_LINUX=$1 GRUB_CMDLINE_LINUX_DEFAULT=$2 n=$3 file=$4
		while [ "$n" -gt 0 ]; do
			. "$file"
			n=$((n - 1))
		done
		printf "|%s|\n" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"
	' sh "$2" "$3" "${4:-1}" "$dropin"
}

# gives LINUX DEFAULT WANT_LINUX WANT_DEFAULT: in each shell, sourced once and twice.
gives() {
	local shell times got
	local want="|$3|
|$4|"
	for shell in dash bash; do
		for times in 1 2; do
			got=$(source_in "$shell" "$1" "$2" "$times")
			if [ "$got" != "$want" ]; then
				printf '%s, sourced %s times\ngot:\n%s\nwant:\n%s\n' "$shell" "$times" \
					"$got" "$want"
				return 1
			fi
		done
	done
}

@test "the first three lines say what, why and how to see it on a node" {
	[ "$(head -n 3 "$dropin" | grep -c '^# ')" -eq 3 ]
	[ -z "$(sed -n 4p "$dropin")" ]
}

@test "each of the three lines that the builder replaces is there once" {
	for name in add remove blacklist; do
		[ "$(grep -c "^gpuimg_$name='[^']*'\$" "$dropin")" -eq 1 ]
	done
}

@test "parameters are added to every entry, what a cloud image assigned stays" {
	gives '' 'console=tty1 console=ttyS0' "$ours $block" 'console=tty1 console=ttyS0'
	gives 'net.ifnames=0' 'quiet' "net.ifnames=0 $ours $block" 'quiet'
}

@test "a cloud image's own drop-in before it is read as grub-mkconfig reads it" {
	mkdir "$BATS_TEST_TMPDIR/grub.d"
	cat >"$BATS_TEST_TMPDIR/grub.d/50-cloudimg-settings.cfg" <<-'EOF'
		# Set the default commandline
		GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"
		GRUB_TERMINAL=console
	EOF
	cp "$dropin" "$BATS_TEST_TMPDIR/grub.d/"
	for shell in dash bash; do
		run "$shell" -c '
			set -e
			GRUB_CMDLINE_LINUX=""
			GRUB_CMDLINE_LINUX_DEFAULT="quiet splash"
			for x in "$1"/*.cfg; do
				if [ -e "${x}" ]; then
					. "${x}"
				fi
			done
			echo "$GRUB_CMDLINE_LINUX|$GRUB_CMDLINE_LINUX_DEFAULT|$GRUB_TERMINAL"
		' sh "$BATS_TEST_TMPDIR/grub.d"
		[ "$status" -eq 0 ]
		[ "$output" = "$ours $block|console=tty1 console=ttyS0|console" ]
	done
}

@test "what is in effect already is not added again" {
	gives "pci=nocrs,realloc $block" '' "pci=nocrs,realloc $block" ''
	gives 'pci=realloc=on pci=nocrs' '' "pci=realloc=on pci=nocrs $block" ''
	gives 'pci=noaer,nocrs' 'quiet' "pci=noaer,nocrs pci=realloc $block" 'quiet'
}

@test "a parameter that stood in the default line only reaches recovery entries too, once" {
	gives '' 'quiet pci=nocrs pci=realloc splash' "$ours $block" 'quiet splash'
	gives '' 'pci=realloc quiet pci=nocrs' "pci=realloc pci=nocrs $block" 'quiet'
	# not past one of the same name: that would change their order
	gives '' 'pci=noaer pci=nocrs' "$ours $block" 'pci=noaer pci=nocrs'
}

@test "names of module_blacklist in GRUB_CMDLINE_LINUX are kept" {
	gives 'a module_blacklist=floppy b' '' "a b $ours module_blacklist=floppy,$names" ''
	gives 'module_blacklist=nova_drm,floppy' '' \
		"$ours module_blacklist=nova_drm,floppy,nouveau,nova_core" ''
}

@test "names of module_blacklist in GRUB_CMDLINE_LINUX_DEFAULT move to every entry" {
	gives '' 'quiet module_blacklist=floppy splash' "$ours module_blacklist=floppy,$names" \
		'quiet splash'
	gives '' 'module_blacklist=floppy' "$ours module_blacklist=floppy,$names" ''
}

@test "names of module_blacklist in both lines are joined into one" {
	gives 'module_blacklist=a,b' 'module-blacklist=b,c module_blacklist="d"' \
		"$ours module_blacklist=a,b,c,d,$names" ''
}

@test "an empty blacklist leaves module_blacklist alone" {
	render 'pci=nocrs' '' ''
	gives 'module_blacklist=a' 'module_blacklist=b' 'module_blacklist=a pci=nocrs' \
		'module_blacklist=b'
}

@test "quoting, order, wildcards and escapes of other words are kept" {
	cd "$BATS_TEST_TMPDIR"
	touch match
	gives 'dyndbg="file x +p" m* ?atch [m]atch' "a='b c' d\\ e \$vt_handoff" \
		"dyndbg=\"file x +p\" m* ?atch [m]atch $ours $block" "a='b c' d\\ e \$vt_handoff"
	gives 'x="a  b" "y=c d"  z' '-n -e \\ ~ #' "x=\"a  b\" \"y=c d\" z $ours $block" \
		'-n -e \\ ~ #'
}

@test "gpuimg_remove takes away by name, by value and one pci option" {
	render 'pci=nocrs' 'quiet console=ttyS1 pci=use_crs some-name' 'nouveau'
	gives 'quiet a console=ttyS0 console=ttyS1 some_name=5' \
		'quiet=1 pci=use_crs,noaer pci=use_crs console="ttyS1" b' \
		'a console=ttyS0 pci=nocrs module_blacklist=nouveau' 'pci=noaer b'
}

@test "gpuimg_remove takes nothing else away" {
	render '' 'pci=use_crs foo=1' ''
	gives 'foo=2 food foo pci=use_crsx pci=noaer' 'foo=10 "foo=1" xpci=use_crs' \
		'foo=2 food foo pci=use_crsx pci=noaer' 'foo=10 xpci=use_crs'
}

@test "gpuimg_remove keeps the quotes of the pci options that it leaves" {
	render '' 'pci=use_crs' ''
	gives 'pci="resource_alignment=20@0:1f.0;20@0:2.0,use_crs"' '' \
		'pci="resource_alignment=20@0:1f.0;20@0:2.0"' ''
}

@test "a base's pci=realloc=off is not taken away in silence" {
	gives '' 'pci=realloc=off' "$ours $block" 'pci=realloc=off'
	gives 'pci=realloc=off' '' "pci=realloc=off $ours $block" ''
	gives 'pci=use_crs' '' "pci=use_crs $ours $block" ''
}

@test "the last value counts, but consoles pile up" {
	render 'foo=1 console=ttyS0' '' ''
	gives 'foo=1 console=ttyS0 foo=2 console=tty0' '' \
		'foo=1 console=ttyS0 foo=2 console=tty0 foo=1' ''
	gives 'foo=2 foo=1' 'console=tty0 console=ttyS0' 'foo=2 foo=1 console=ttyS0' \
		'console=tty0 console=ttyS0'
}

@test "an added parameter may have quotes and commas of its own" {
	render 'dyndbg="file pci.c +p" pci=nocrs,noaer module_blacklist=floppy' '' 'nouveau'
	gives 'pci=noaer' '' \
		'pci=noaer dyndbg="file pci.c +p" pci=nocrs module_blacklist=nouveau,floppy' ''
	gives "'dyndbg=file pci.c +p'" 'q' \
		"'dyndbg=file pci.c +p' pci=nocrs,noaer module_blacklist=nouveau,floppy" 'q'
}

@test "modprobe.blacklist adds up" {
	render 'modprobe.blacklist=nouveau,nova_core' '' ''
	gives 'modprobe.blacklist=nouveau' '' \
		'modprobe.blacklist=nouveau modprobe.blacklist=nova_core' ''
}

@test "what stands after -- is for init: it is not touched, and ours goes before it" {
	render 'pci=nocrs' 'gone' 'nouveau'
	gives 'a gone -- gone pci=nocrs' 'gone' \
		'a pci=nocrs module_blacklist=nouveau -- gone pci=nocrs' 'gone'
	gives 'a' 'gone b -- gone' 'a pci=nocrs module_blacklist=nouveau' 'b -- gone'
}

@test "an open quote is left for grub-mkconfig to complain about" {
	render '' '' ''
	gives 'a "b c' "d 'e f" 'a "b c' "d 'e f"
	gives 'a \' '' 'a \' ''
}

@test "unset variables are no error, not even with set -u, and stay unset if nothing comes in" {
	for shell in dash bash; do
		run "$shell" -c '
			set -eu
			unset GRUB_CMDLINE_LINUX GRUB_CMDLINE_LINUX_DEFAULT
			. "$1"
			echo "$GRUB_CMDLINE_LINUX|${GRUB_CMDLINE_LINUX_DEFAULT-unset}"
		' sh "$dropin"
		[ "$status" -eq 0 ]
		[ "$output" = "$ours $block|unset" ]
	done
}

@test "no option, variable, function or argument of the shell is changed" {
	functions=$(sed -n 's/^\(gpuimg_[a-z_]*\)() {$/\1/p' "$dropin")
	variables=$(grep -o 'gpuimg_[a-z_]*' "$dropin" | sort -u)
	[ -n "$functions" ]
	for shell in dash bash; do
		run "$shell" -c '
			set -e
			dropin=$1 functions=$2 variables=$3
			set -- one "two three"
			IFS=:
			GRUB_CMDLINE_LINUX="a b"
			before=$(set +o)
			. "$dropin"
			[ "$(set +o)" = "$before" ] || echo "options changed"
			[ "$#:$1:$2" = "2:one:two three" ] || echo "arguments changed"
			[ "$IFS" = : ] || echo "IFS changed"
			IFS="
"
			for name in $functions; do
				if command -v "$name"; then echo "left behind"; fi
			done
			for name in $variables; do
				eval "x=\${$name+set}"
				[ -z "$x" ] || echo "$name is left behind"
			done
		' sh "$dropin" "$functions" "$variables"
		[ "$status" -eq 0 ]
		[ -z "$output" ]
	done
}

@test "bytes that are not UTF-8 are kept in a UTF-8 locale" {
	word=$(printf 'a=\303\244\377b')
	LC_ALL=C.UTF-8 gives "$word c" '' "$word c $ours $block" ''
}

@test "the line of a real grub-mkconfig entry comes out valid for GRUB" {
	command -v grub-script-check >/dev/null || skip "no grub-script-check on this host"
	got=$(source_in dash 'dyndbg="file x +p"' "a='b c' quiet" | tr '|\n' '  ')
	printf "menuentry 'x' {\n\tlinux\t/vmlinuz root=UUID=1 ro %s\n}\n" "$got" \
		>"$BATS_TEST_TMPDIR/grub.cfg"
	grub-script-check "$BATS_TEST_TMPDIR/grub.cfg"
}

@test "the module block lists every driver both ways" {
	conf=$BATS_TEST_DIRNAME/../../boot/modprobe.d/gpuimg-gpu-block.conf
	[ "$(head -n 3 "$conf" | grep -c '^# ')" -eq 3 ]
	for module in nouveau nova_core nova_drm nova nvidiafb rivafb; do
		grep -qx "blacklist $module" "$conf"
		grep -qx "install $module /bin/false" "$conf"
	done
	[ "$(grep -cv -e '^#' -e '^$' "$conf")" -eq 12 ]
}
