#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: measures gpuimg against virt-customize and a root script: the same edits on the same base.
# Why:  "faster" is a claim about figures; anybody can have their own, from their own machine.
# How:  every way once, then every way again, -n times, each in a pid and mount namespace of its
#       own; medians go to bench.json and a table. --growth: gpuimg's cost by kernels and by data.
# shellcheck disable=SC2034,SC2154 # options and state are shared with the parts in bench/
set -euo pipefail
export LC_ALL=C # numbers with points, messages that do not change

self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
repo=$(dirname "$here")
readonly self here repo

base=
rounds=3
only=
points=
gpuimg=$repo/build/gpuimg
output_dir=$repo/build/bench
work_parent=${TMPDIR:-/var/tmp}
timeout_s=3600
growth=
growth_all=
write_docs=
listing=
quiet=

doing="reading options"
told=
work=
child=
view_pid=
accel=
failures=0

# shellcheck source=/dev/null # each is checked on its own
for part in make-base/child bench/{ticks,host,ways,measure,view,check,report,growth}; do
	. "$here/$part.sh"
done

step()
{
	doing=$*
	[ -n "$quiet" ] || printf 'bench: [%4d s] %s\n' "$SECONDS" "$*" >&2
}

warn()
{
	printf 'bench: warning: %s\n' "$*" >&2
}

# die STATUS MESSAGE [HINT]
die()
{
	told=y
	printf 'bench: error: %s\n' "$2" >&2
	[ -z "${3-}" ] || printf 'bench: hint: %s\n' "$3" >&2
	exit "$1"
}

usage()
{
	cat <<-EOF
	usage: bench.sh [options]
	Measures gpuimg against other ways to make the same image, and prints a table.

	  -b, --base FILE        image to start from, qcow2 or raw (a small Debian is made)
	  -n, --rounds N         samples of each way; medians are reported (3)
	      --only A,B         these ways only, see --list-ways
	      --list-ways        what can be measured here, and why not, if so
	      --growth           gpuimg's cost by kernels and by data, instead
	      --growth-all       the same, and the root script's
	      --points A,B       of the growth: kernels-N, data-GB (kernels-1,kernels-2,kernels-4,
	                         data-2,data-6,data-12)
	      --gpuimg FILE      program to measure (build/gpuimg)
	      --timeout SECONDS  for one sample (3600)
	      --work-dir DIR     for all temporary files (\$TMPDIR, /var/tmp)
	      --output-dir DIR   for bench.json and bench.md (build/bench)
	      --write-docs       put the table into docs/performance.md too
	  -q, --quiet            no progress
	  -h, --help             this text

	exit status: 0 measured, 1 a way failed or its result is wrong, 2 wrong usage,
	3 something is missing on this machine, 4 the base cannot be used
	EOF
}

# one case per option; "--name=value" is split first so that both forms read the same
parse_options()
{
	while [ $# -gt 0 ]; do
		case "$1" in
		--*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
		esac

		case "$1" in
		-b | --base | -n | --rounds | --only | --points | --gpuimg | --timeout | --work-dir | \
			--output-dir)
			[ $# -gt 1 ] || die 2 "option '$1' needs a value" "see bench.sh --help"
			set_option "$1" "$2"
			shift 2 ;;
		--list-ways) listing=y && shift ;;
		--growth) growth=y && shift ;;
		--growth-all) growth=y && growth_all=y && shift ;;
		--write-docs) write_docs=y && shift ;;
		-q | --quiet) quiet=y && shift ;;
		-h | --help) usage && exit 0 ;;
		-*) die 2 "unknown option '$1'" "see bench.sh --help" ;;
		*) die 2 "unexpected argument '$1'" "the base goes with --base FILE" ;;
		esac
	done
}

set_option()
{
	case "$1" in
	-b | --base) base=$2 ;;
	-n | --rounds) rounds=$2 ;;
	--only) only=$2 ;;
	--points) points=$2 ;;
	--gpuimg) gpuimg=$2 ;;
	--timeout) timeout_s=$2 ;;
	--work-dir) work_parent=$2 ;;
	--output-dir) output_dir=$2 ;;
	esac
}

check_options()
{
	local name

	[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || die 2 "bad number of rounds '$rounds'" "1 to 999"
	[[ $timeout_s =~ ^[1-9][0-9]{0,5}$ ]] || die 2 "bad timeout '$timeout_s'" "seconds, as 3600"
	for name in ${only//,/ }; do
		way_known "$name" || die 2 "unknown way '$name'" "one of: ${ALL_WAYS[*]}"
	done
	for name in ${points//,/ }; do
		[[ $name =~ ^(kernels-[1-9]|data-[1-9][0-9]?)$ ]] ||
			die 2 "bad point '$name'" "kernels-1 to kernels-9, data-1 to data-99"
	done
	if [ -n "$growth" ]; then
		[ -z "$base$only" ] || die 2 "--base and --only do not go with --growth" \
			"the growth's bases are made for it; take points with --points"
	else
		[ -z "$points" ] || die 2 "--points without --growth" "add --growth"
	fi
	[ -z "$base" ] || [ -f "$base" ] || die 2 "base '$base' is not a file" "download it first"
	[ -z "$base" ] || base=$(readlink -f "$base")
}

# every way once, then every way again: what drifts on the machine meets all of them alike
measure_all()
{
	local round way

	for ((round = 1; round <= rounds; round++)); do
		for way in "${ways[@]}"; do
			step "round $round of $rounds: $way"
			run_sample "$way" "$round"
		done
	done
}

run_bench()
{
	[ -n "$base" ] || make_default_base
	open_base
	choose_ways
	machine_json >"$work/machine.json"
	prepare_ways
	measure_all
	base_untouched
	publish_report bench
}

main()
{
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	umask 022

	parse_options "$@"
	check_options
	check_tools
	if [ -n "$listing" ]; then
		list_ways
		return 0
	fi
	make_work_dir
	if [ -n "$growth" ]; then run_growth; else run_bench; fi
	[ "$failures" -eq 0 ] || die 1 "$failures samples failed: see above, and the table"
}

main "$@"
