/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused before anything runs. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cache-internal.h"
#include "options-internal.h"

/* Parameters end up in single quotes of a shell file and on a kernel command line. */
static int check_params(const struct strv *params, struct error *err)
{
	for (size_t i = 0; i < params->count; i++) {
		if (cmdline_check_token(params->items[i], err) < 0)
			return error_code(err, EXIT_USAGE);
		if (strchr(params->items[i], '\'') || strchr(params->items[i], ' ')) {
			error_set(err, "kernel parameter '%s': holds a quote or a blank",
			          params->items[i]);
			return error_code(err, EXIT_USAGE);
		}
	}
	return 0;
}

static int check_modules(const struct strv *modules, struct error *err)
{
	for (size_t i = 0; i < modules->count; i++) {
		const char *name = modules->items[i];

		if (*name && strlen(name) < 64 &&
		    strspn(name,
		           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
		            strlen(name))
			continue;
		error_set(err, "'%s' is not the name of a kernel module", name);
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

static int check_bar(const struct options *o, struct error *err)
{
	uint64_t size = o->bar_bytes;

	if (size >= (1ull << 20) && size <= (512ull << 30) && (size & (size - 1)) == 0)
		return 0;
	error_set(err, "option '--bar-size': not a power of two from 1M to 512G");
	return error_code(err, EXIT_USAGE);
}

static int check_base(const struct options *o, const char *command, struct error *err)
{
	bool url = o->base && (str_starts(o->base, "http://") || str_starts(o->base, "https://"));

	if (!o->base && (options_command(command) & (BOOT | INSPECT | PUBLISH))) {
		error_set(err, "no image given");
		error_hint(err, "usage: gpuimg %s IMAGE", command);
		return error_code(err, EXIT_USAGE);
	}
	if (url && (options_command(command) & (INSPECT | PUBLISH))) {
		error_set(err, "'%s' is a URL; %s reads files", o->base, command);
		error_hint(err, "download it first");
		return error_code(err, EXIT_USAGE);
	}
	if (url && !o->base_sha256 && !o->base_sums) {
		error_set(err, "base '%s': a fetched base needs a checksum", o->base);
		error_hint(err, "pass --base-sha256=HEX or --base-sums=URL");
		return error_code(err, EXIT_USAGE);
	}
	if (!url && (o->base_sha256 || o->base_sums)) {
		error_set(err, "--base-sha256 and --base-sums are for a base that is fetched");
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

static int check_key(const struct options *o, struct error *err)
{
	const char *const files[] = {o->uki_key, o->uki_cert};

	if (!o->uki_key != !o->uki_cert) {
		error_set(err, "--uki-key and --uki-cert are given together or not at all");
		return error_code(err, EXIT_USAGE);
	}
	for (size_t i = 0; o->uki_key && i < sizeof(files) / sizeof(files[0]); i++)
		if (access(files[i], R_OK) < 0) {
			error_errno(err, errno, "cannot read '%s'", files[i]);
			return error_code(err, EXIT_USAGE);
		}
	return 0;
}

static int need(const char *option, const char *other, struct error *err)
{
	error_set(err, "option '--%s' is nothing without '--%s'", option, other);
	return error_code(err, EXIT_USAGE);
}

static int check_branch(const char *branch, struct error *err)
{
	uint64_t number;

	if (str_parse_uint(branch, 99999, &number) == 0 && number >= 100)
		return 0;
	error_set(err, "option '--driver-branch': '%s' is not a branch of NVIDIA's driver", branch);
	error_hint(err, "give the number before the first dot of its version, as 580");
	return error_code(err, EXIT_USAGE);
}

/* Files of the user's, and what they are for. */
static int check_driver_files(const struct options *o, struct error *err)
{
	bool local = o->driver_source == DRIVER_RUN || o->driver_source == DRIVER_DEBS;

	if (local && !o->driver_path) {
		error_set(err, "--driver-source=%s needs --driver-path",
		          driver_source_name(o->driver_source));
		error_hint(err, o->driver_source == DRIVER_RUN
		                        ? "give the .run file; it is never downloaded"
		                        : "give a directory of .deb files");
		return error_code(err, EXIT_USAGE);
	}
	if (!local && o->driver_path) {
		error_set(err, "--driver-path is for --driver-source=run or debs");
		return error_code(err, EXIT_USAGE);
	}
	if (o->driver_path && access(o->driver_path, R_OK) < 0) {
		error_errno(err, errno, "cannot read '%s'", o->driver_path);
		return error_code(err, EXIT_USAGE);
	}
	if ((o->driver_repo || o->driver_repo_key) && o->driver_source != DRIVER_NVIDIA_REPO) {
		error_set(err, "--driver-repo and its key are for --driver-source=nvidia-repo");
		return error_code(err, EXIT_USAGE);
	}
	if (!o->driver_repo != !o->driver_repo_key)
		return need(o->driver_repo ? "driver-repo" : "driver-repo-key",
		            o->driver_repo ? "driver-repo-key" : "driver-repo", err);
	return 0;
}

static bool is_set(const struct options *o, const char *name)
{
	return strcmp(name, "driver-branch") == 0 ? o->driver_branch != NULL
	                                          : o->containerd_runtime != NULL;
}

/* What a profile is nothing without. inspect takes any branch. */
static int check_needs(const struct options *o, const char *command, struct error *err)
{
	for (size_t i = 0; i < o->needs.count && options_command(command) == BUILD; i++)
		if (!is_set(o, o->needs.items[i])) {
			error_set(err, "profile '%s' needs --%s", o->profile, o->needs.items[i]);
			return error_code(err, EXIT_USAGE);
		}
	return 0;
}

static int check_driver(const struct options *o, const char *command, struct error *err)
{
	const struct {
		bool given;
		const char *name;
	} parts[] = {
		{o->driver_source != DRIVER_DISTRO, "driver-source"},
		{o->driver_path, "driver-path"},
		{o->driver_repo, "driver-repo"},
		{o->driver_extra.count > 0, "driver-extra"},
		{o->allow_branch_forward, "allow-branch-forward"},
		{o->replace_driver, "replace-driver"},
		{o->dkms_unregister, "dkms"},
	};

	if (check_needs(o, command, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].given && !o->driver_branch)
			return need(parts[i].name, "driver-branch", err);
	if (o->default_runtime && !o->containerd_runtime)
		return need("default-runtime", "containerd-runtime", err);
	if (!o->toolkit_repo != !o->toolkit_key)
		return need(o->toolkit_repo ? "toolkit-repo" : "toolkit-repo-key",
		            o->toolkit_repo ? "toolkit-repo-key" : "toolkit-repo", err);
	if (!o->driver_branch)
		return 0;
	return check_branch(o->driver_branch, err) < 0 ? -1 : check_driver_files(o, err);
}

static int usage_error(struct error *err)
{
	error_hint(err, "usage: gpuimg cache ls|prune; 'gpuimg cache --help' lists the options");
	return error_code(err, EXIT_USAGE);
}

static int check_cache(const struct options *o, struct error *err)
{
	bool prune = str_equal(o->action, "prune");

	if (!o->action)
		error_set(err, "'gpuimg cache' needs to know what to do");
	else if (!prune && !str_equal(o->action, "ls"))
		error_set(err, "'%s' is nothing that can be done with the cache", o->action);
	else if (o->all && !prune)
		error_set(err, "option '--all' is for 'gpuimg cache prune'");
	else if (o->kind && !cache_good_kind(o->kind))
		error_set(err, "'%s' is not the name of a kind", o->kind);
	else
		return 0;
	return usage_error(err);
}

/* A bound of nothing would keep nothing, for the price of trying. */
static int check_cache_size(const struct options *o, struct error *err)
{
	if (o->cache_bytes > 0)
		return 0;
	error_set(err, "option '--cache-size': no result fits into 0 bytes");
	error_hint(err, "--no-cache keeps none");
	return error_code(err, EXIT_USAGE);
}

int options_check(const struct options *o, const char *command, struct error *err)
{
	if (check_params(&o->cmdline.add, err) < 0 || check_params(&o->cmdline.remove, err) < 0 ||
	    check_params(&o->expect, err) < 0 || check_modules(&o->block, err) < 0 ||
	    check_bar(o, err) < 0 || check_key(o, err) < 0 || check_driver(o, command, err) < 0)
		return -1;
	if (strcmp(command, "cache") == 0)
		return check_cache(o, err);
	if (o->remove && !o->abort) {
		error_set(err, "option '--remove' is for 'gpuimg publish --abort'");
		return error_code(err, EXIT_USAGE);
	}
	if (strcmp(command, "publish") != 0 && check_cache_size(o, err) < 0)
		return -1;
	return check_base(o, command, err);
}
