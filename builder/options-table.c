/* SPDX-License-Identifier: Apache-2.0 */
/* The options, and the help that they make. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "options-internal.h"

#define AT(field) offsetof(struct options, field)
#define ALL       (BUILD | BOOT | DOCTOR | CACHE | INSPECT | PUBLISH)

const struct option_row option_rows[] = {
	{"config", 'c', KIND_SPECIAL, BUILD, 0, "FILE", NULL, "take options from an image.yaml",
         true},
	{"profile", 'p', KIND_STRING, BUILD | INSPECT, AT(profile), "NAME", NULL,
         "what kind of node (default gpu-base)", false},
	{"output", 'o', KIND_STRING, BUILD, AT(output), "FILE", NULL,
         "the artifact (default dist/BASE-gpu.qcow2)", false},
	{"base-sha256", 0, KIND_STRING, BUILD, AT(base_sha256), "HEX", NULL,
         "digest that a fetched base must have", false},
	{"base-sums", 0, KIND_STRING, BUILD, AT(base_sums), "URL", NULL,
         "SHA256SUMS file that names a fetched base", false},
	{"cmdline-add", 0, KIND_LIST, BUILD | INSPECT, AT(cmdline.add), "PARAM", NULL,
         "add a kernel parameter", false},
	{"cmdline-remove", 0, KIND_LIST, BUILD, AT(cmdline.remove), "PARAM", NULL,
         "take a parameter out: 'name' or 'name=value'", false},
	{"no-nocrs", 0, KIND_OFF, BUILD | INSPECT, AT(nocrs), NULL, NULL,
         "leave pci=nocrs out (platforms with memory hot-plug)", false},
	{"no-realloc", 0, KIND_OFF, BUILD | INSPECT, AT(realloc), NULL, NULL,
         "leave pci=realloc out", false},
	{"no-module-blacklist", 0, KIND_OFF, BUILD | INSPECT, AT(module_blacklist), NULL, NULL,
         "leave module_blacklist= out of the kernel command line", false},
	{"block", 0, KIND_LIST, BUILD | INSPECT, AT(block), "MODULE", NULL,
         "block one more kernel module", false},
	{"upload", 0, KIND_LIST, BUILD, AT(upload), "SRC:DST", NULL, "put a file into the image",
         false},
	{"run", 0, KIND_LIST, BUILD, AT(run), "SCRIPT", NULL,
         "run a script in the image, before the initramfs rebuild", false},
	{"uki-key", 0, KIND_STRING, BUILD, AT(uki_key), "FILE", NULL,
         "private key (PEM) to sign unified kernel images with", false},
	{"uki-cert", 0, KIND_STRING, BUILD, AT(uki_cert), "FILE", NULL, "its certificate (PEM)",
         false},
	{"driver-branch", 0, KIND_STRING, BUILD | INSPECT, AT(driver_branch), "N", NULL,
         "bake NVIDIA's driver of this branch, as 580, for every kernel", false},
	{"driver-flavour", 0, KIND_FLAVOUR, BUILD | INSPECT, AT(driver_flavour), "F",
         "open|proprietary", "of its modules: open, proprietary (default: open from 560 on)",
         false},
	{"driver-source", 0, KIND_SOURCE, BUILD, AT(driver_source), "S",
         "distro|nvidia-repo|run|debs", "distro (default), nvidia-repo, run, debs", false},
	{"driver-path", 0, KIND_STRING, BUILD, AT(driver_path), "PATH", NULL,
         "the .run file of source run, the directory of source debs", false},
	{"driver-repo", 0, KIND_STRING, BUILD, AT(driver_repo), "URL", NULL,
         "apt repository of source nvidia-repo (default: NVIDIA's)", false},
	{"driver-repo-key", 0, KIND_STRING, BUILD, AT(driver_repo_key), "FILE", NULL,
         "its key (default: NVIDIA's, by its fingerprint)", false},
	{"driver-extra", 0, KIND_LIST, BUILD, AT(driver_extra), "NAME", NULL,
         "fabricmanager, imex, nscq or a package, of the driver's version", false},
	{"allow-branch-forward", 0, KIND_ON, BUILD, AT(allow_branch_forward), NULL, NULL,
         "take the branch that a retired one is forwarded to", false},
	{"require-signed", 0, KIND_ON, BUILD | INSPECT, AT(require_signed), NULL, NULL,
         "only modules that the distribution has signed", false},
	{"replace-driver", 0, KIND_ON, BUILD, AT(replace_driver), NULL, NULL,
         "take out a driver that the base has", false},
	{"dkms", 0, KIND_DKMS, BUILD, AT(dkms_unregister), "MODE", "keep|unregister",
         "keep: rebuild for kernels to come (default); unregister: leave the modules only", false},
	{"apt-mirror", 0, KIND_LIST, BUILD, AT(apt_mirrors), "URL", NULL,
         "for the distribution's archives while building; security=URL", false},
	{"apt-proxy", 0, KIND_STRING, BUILD, AT(apt_proxy), "URL", NULL,
         "while building (default: http_proxy and https_proxy)", false},
	{"apt-repo", 0, KIND_LIST, BUILD, AT(apt_repos), "LINE", NULL,
         "one more, while building: 'deb [signed-by=KEYFILE] URL SUITE COMPONENT'", false},
	{"containerd-runtime", 0, KIND_STRING, BUILD | INSPECT, AT(containerd_runtime), "NAME",
         "nvidia", "give containerd this runtime: nvidia", false},
	{"default-runtime", 0, KIND_ON, BUILD | INSPECT, AT(default_runtime), NULL, NULL,
         "make it containerd's default", false},
	{"toolkit-repo", 0, KIND_STRING, BUILD, AT(toolkit_repo), "URL", NULL,
         "apt repository of nvidia-container-toolkit (default: NVIDIA's)", false},
	{"toolkit-repo-key", 0, KIND_STRING, BUILD, AT(toolkit_key), "FILE", NULL,
         "its key (default: NVIDIA's, by its fingerprint)", false},
	{"driver", 0, KIND_ON, BOOT, AT(boot_driver), NULL, NULL,
         "the image has NVIDIA's driver, which shall load", true},
	{"network", 0, KIND_ON, BUILD, AT(network), NULL, NULL,
         "let --run scripts reach the network", false},
	{"exec", 0, KIND_EXEC, BUILD, AT(exec), "MODE", "auto|appliance|sandbox",
         "where the guest's programs run: auto, appliance, sandbox", false},
	{"compression", 0, KIND_STRING, BUILD, AT(compression), "TYPE", "zlib|zstd|none",
         "of the artifact: zlib, zstd, none (default: the base's)", false},
	{"compact", 0, KIND_ON, BUILD, AT(compact), NULL, NULL,
         "compress the whole artifact anew: smaller, slower", false},
	{"no-boot-test", 0, KIND_OFF, BUILD, AT(boot_test), NULL, NULL, "leave the boot test out",
         false},
	{"control", 0, KIND_STRING, BOOT, AT(control), "BASE", NULL,
         "boot this image beside it; it must fail, or the test is void", false},
	{"expect", 0, KIND_LIST, BOOT, AT(expect), "PARAM", NULL,
         "parameter that /proc/cmdline must hold", false},
	{"firmware", 0, KIND_FIRMWARE, BUILD | BOOT, AT(firmware), "F",
         "bios|uefi|uefi-secure-boot|both|all",
         "bios, uefi, uefi-secure-boot, both (the first two) or all (default: what the image "
         "supports, BIOS first)",
         false},
	{"window", 0, KIND_WINDOW, BOOT, AT(window), "W", "unreachable|reachable",
         "where the firmware puts the BAR's window (default unreachable)", false},
	{"bar-size", 0, KIND_SIZE, BUILD | BOOT, AT(bar_bytes), "SIZE", NULL,
         "of the emulated device (default 32G)", false},
	{"timeout", 0, KIND_SECONDS, BUILD | BOOT, AT(timeout_s), "SECONDS", NULL,
         "for one boot (default by accelerator)", false},
	{"console", 0, KIND_STRING, BOOT, AT(console), "FILE", NULL, "keep the console log", false},
	{"work-dir", 0, KIND_STRING, BUILD | BOOT | DOCTOR | INSPECT, AT(work_dir), "DIR", NULL,
         "for all temporary files (default $TMPDIR, /var/tmp)", false},
	{"cache-dir", 0, KIND_STRING, ALL, AT(cache_dir), "DIR", NULL,
         "default $XDG_CACHE_HOME/gpuimg, ~/.cache/gpuimg", false},
	{"no-cache", 0, KIND_OFF, BUILD | BOOT, AT(cache), NULL, NULL,
         "neither take results of earlier builds nor keep ours", false},
	{"cache-size", 0, KIND_SIZE, BUILD | BOOT, AT(cache_bytes), "SIZE", NULL,
         "bound of the results that are kept (default 10G)", false},
	{"max-size", 0, KIND_SIZE, CACHE, AT(cache_bytes), "SIZE", NULL,
         "what prune brings the results down to (default 10G)", true},
	{"kind", 0, KIND_STRING, CACHE, AT(kind), "KIND", NULL, "only what is of this kind", true},
	{"all", 0, KIND_ON, CACHE, AT(all), NULL, NULL,
         "prune all results, bases and the appliance too, unless in use", true},
	{"data-dir", 0, KIND_STRING, BUILD | BOOT | DOCTOR | INSPECT, AT(data_dir), "DIR", NULL,
         "our data files (default: as installed)", false},
	{"targets", 't', KIND_STRING, PUBLISH, AT(targets), "FILE", NULL,
         "where it goes: docs/publish.md describes the file (default targets.yaml)", true},
	{"only", 0, KIND_LIST, PUBLISH, AT(only), "TARGET", NULL,
         "only this target, or TARGET/LOCATION", true},
	{"name", 0, KIND_STRING, PUBLISH, AT(image_name), "NAME", NULL,
         "of the published image (default: the file's)", true},
	{"image-version", 0, KIND_STRING, PUBLISH, AT(image_version), "VERSION", NULL,
         "of the published image (default: from its digest)", true},
	{"replace", 0, KIND_ON, PUBLISH, AT(replace), NULL, NULL,
         "put it in the place of other content that has its name", true},
	{"verify", 0, KIND_STRING, PUBLISH, AT(verify), "HOW", "full|quick|none",
         "full: read back, quick: ask the server, none (default: by type)", true},
	{"jobs", 'j', KIND_COUNT, PUBLISH, AT(jobs), "N", NULL, "locations at once (default 2)",
         true},
	{"tries", 0, KIND_COUNT, PUBLISH, AT(tries), "N", NULL, "for one request (default 5)",
         true},
	{"stall-timeout", 0, KIND_SECONDS, PUBLISH, AT(stall_timeout_s), "SECONDS", NULL,
         "a body of which no byte moves for so long is given up (default 120)", true},
	{"fail-fast", 0, KIND_ON, PUBLISH, AT(fail_fast), NULL, NULL,
         "begin no further location after one failed", true},
	{"consumer", 0, KIND_STRING, PUBLISH, AT(consumer), "NAME",
         "capvco|cozystack|kubevirt|cdi|capo",
         "print what this consumer needs: capvco, cozystack, kubevirt, cdi, capo", true},
	{"abort", 0, KIND_ON, PUBLISH, AT(abort), NULL, NULL,
         "list what interrupted runs left at the locations", true},
	{"remove", 0, KIND_ON, PUBLISH, AT(remove), NULL, NULL, "with --abort: remove it", true},
	{"keep-work", 0, KIND_ON, BUILD | BOOT, AT(keep_work), NULL, NULL,
         "keep the work directory after a failure", false},
	{"plan", 0, KIND_ON, BUILD | PUBLISH, AT(plan), NULL, NULL,
         "show what would be done; change nothing", true},
	{"json", 0, KIND_ON, ALL, AT(json), NULL, NULL, "results for machines", true},
	{"verbose", 'v', KIND_SPECIAL, ALL, 0, NULL, NULL, "say more", true},
	{"quiet", 'q', KIND_SPECIAL, ALL, 0, NULL, NULL, "say errors only", true},
	{"help", 'h', KIND_SPECIAL, ALL, 0, NULL, NULL, "this text", true},
	{0},
};
_Static_assert(sizeof(option_rows) / sizeof(option_rows[0]) <= OPTION_ROWS_MAX + 1,
               "more options than arrays made of them hold");

enum command options_command(const char *name)
{
	return strcmp(name, "build") == 0     ? BUILD
	       : strcmp(name, "boot") == 0    ? BOOT
	       : strcmp(name, "cache") == 0   ? CACHE
	       : strcmp(name, "inspect") == 0 ? INSPECT
	       : strcmp(name, "publish") == 0 ? PUBLISH
	                                      : DOCTOR;
}

void options_usage(const char *command, const char *summary)
{
	enum command bit = options_command(command);

	printf("usage: gpuimg %s [OPTION…]%s\n\n%s\n\n", command,
	       bit == BUILD                       ? " [BASE]"
	       : bit & (BOOT | INSPECT | PUBLISH) ? " IMAGE"
	       : bit == CACHE                     ? " ls|prune"
	                                          : "",
	       summary);
	for (const struct option_row *row = option_rows; row->name; row++) {
		char left[64];

		if (!(row->commands & bit))
			continue;
		snprintf(left, sizeof(left), "%s%c%s --%s%s%s", row->letter ? "-" : " ",
		         row->letter ? row->letter : ' ', row->letter ? "," : " ", row->name,
		         row->value ? "=" : "", row->value ? row->value : "");
		printf("  %-30s %s\n", left, row->help);
	}
	if (bit == BUILD)
		printf("\nBASE is a qcow2 or raw image: a path or an http(s) URL. Without one, a small "
		       "Debian is made.\n");
	if (bit == INSPECT)
		printf("\nIMAGE is a qcow2 or raw image, and is only read. Exit code: 0 all holds, 5 "
		       "something does not hold for the profile, 4 the image cannot be read or is "
		       "refused.\n");
	if (bit == PUBLISH)
		printf("\nIMAGE is a finished qcow2. Run again to go on after an interruption: only what "
		       "is missing is sent. Exit code: 0 all is published, 7 some is not and a "
		       "further run may help, 5 what was stored is not what was sent.\n");
	if (bit == CACHE)
		printf("\nls lists what is kept; prune removes results, those that were not used "
		       "for longest first.\n");
}
