/* SPDX-License-Identifier: Apache-2.0 */
/* Reads profile, image.yaml and argv. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "data.h"
#include "options-internal.h"

#define FIRST_OPEN_BRANCH 560

/* The key of a row in YAML: "no-boot-test" is 'boot-test: false'. */
static const char *yaml_name(const struct option_row *row)
{
	return row->kind == KIND_OFF ? row->name + strlen("no-") : row->name;
}

static enum config_type yaml_type(const struct option_row *row)
{
	switch (row->kind) {
	case KIND_LIST:
		return CONFIG_LIST;
	case KIND_ON:
	case KIND_OFF:
		return CONFIG_BOOL;
	case KIND_SIZE:
		return CONFIG_SIZE;
	case KIND_SECONDS:
	case KIND_COUNT:
		return CONFIG_UINT;
	default:
		return CONFIG_STRING;
	}
}

static void fill_keys(struct config_key *keys, bool profile)
{
	size_t n = 0;

	for (const struct option_row *row = option_rows; row->name; row++)
		if (!row->argv_only && (row->commands & BUILD))
			keys[n++] =
				(struct config_key){yaml_name(row), yaml_type(row), row->allowed};
	if (profile) {
		keys[n++] = (struct config_key){"stages", CONFIG_LIST, NULL};
		keys[n++] = (struct config_key){"needs", CONFIG_LIST,
		                                "driver-branch|containerd-runtime"};
		keys[n++] = (struct config_key){"summary", CONFIG_STRING, NULL};
	} else {
		keys[n++] = (struct config_key){"base", CONFIG_STRING, NULL};
	}
	keys[n] = (struct config_key){0};
}

static int apply_config(struct options *o, const struct config *config, struct error *err)
{
	for (const struct option_row *row = option_rows; row->name; row++) {
		const struct config_value *value =
			row->argv_only ? NULL : config_find(config, yaml_name(row));

		for (size_t j = 0; value && j < value->values.count; j++)
			if (options_set(o, row, value->values.items[j], err) < 0)
				return error_prefix(err, "%s:%d: '%s'", config->path, value->line,
				                    yaml_name(row));
	}
	return 0;
}

static int read_profile(struct options *o, struct error *err)
{
	struct config_key keys[OPTION_ROWS_MAX + 4];
	CLEANUP_FREE char *data = NULL;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CONFIG struct config *config = NULL;

	if (strchr(o->profile, '/') || *o->profile == '.') {
		error_set(err, "'%s' is not the name of a profile", o->profile);
		return error_code(err, EXIT_USAGE);
	}
	if (data_find_dir(&data, o->data_dir, err) < 0)
		return -1;
	path = str_format("%s/profiles/%s.yaml", data, o->profile);
	if (access(path, R_OK) < 0) {
		error_errno(err, errno, "there is no profile '%s' ('%s')", o->profile, path);
		error_hint(err, "the profiles are the files in '%s/profiles'", data);
		return error_code(err, EXIT_USAGE);
	}
	fill_keys(keys, true);
	if (config_read(&config, path, keys, err) < 0 || apply_config(o, config, err) < 0)
		return -1;
	if (config_list(config, "stages"))
		strv_add_all(&o->stages, config_list(config, "stages"));
	if (config_list(config, "needs"))
		strv_add_all(&o->needs, config_list(config, "needs"));
	return 0;
}

static int read_image_yaml(struct options *o, const char *path, struct config_key *keys,
                           struct config **ret, struct error *err)
{
	fill_keys(keys, false);
	if (config_read(ret, path, keys, err) < 0)
		return -1;
	if (!o->profile && config_string(*ret, "profile"))
		o->profile = str_copy(config_string(*ret, "profile"));
	if (!o->data_dir && config_string(*ret, "data-dir"))
		o->data_dir = str_copy(config_string(*ret, "data-dir"));
	return 0;
}

static const struct option_row *find_letter(int letter)
{
	for (const struct option_row *row = option_rows; row->name; row++)
		if (row->letter == letter)
			return row;
	return NULL;
}

/* Tables for getopt_long: a long option's value is its row's index + 1000. */
static void fill_getopt(struct option *longs, char *shorts, int command)
{
	size_t n = 0;

	*shorts++ = ':'; /* silent, and ':' for a missing argument */
	for (const struct option_row *row = option_rows; row->name; row++) {
		if (!(row->commands & command))
			continue;
		longs[n++] =
			(struct option){row->name, row->value ? required_argument : no_argument,
		                        NULL, 1000 + (int)(row - option_rows)};
		if (row->letter) {
			*shorts++ = (char)row->letter;
			if (row->value)
				*shorts++ = ':';
		}
	}
	longs[n] = (struct option){0};
	*shorts = '\0';
}

static int bad_option(int c, char **argv, const char *command, struct error *err)
{
	const char *given = argv[optind - 1];

	error_set(err, c == ':' ? "option '%s' needs a value" : "unknown option '%s'", given);
	error_hint(err, "'gpuimg %s --help' lists the options", command);
	return error_code(err, EXIT_USAGE);
}

static int set_special(struct options *o, const struct option_row *row, const char *value,
                       char **config_path)
{
	switch (row->letter) {
	case 'c':
		options_set_string(config_path, value);
		break;
	case 'v':
		o->level = LOG_VERBOSE;
		break;
	case 'q':
		o->level = LOG_QUIET;
		break;
	case 'h':
		o->help = true;
		break;
	}
	return 0;
}

static int parse_argv(struct options *o, const char *command, int argc, char **argv,
                      char **config_path, struct error *err)
{
	struct option longs[OPTION_ROWS_MAX + 1];
	char shorts[2 * OPTION_ROWS_MAX + 2];
	bool is_cache = options_command(command) == CACHE;
	int c;

	fill_getopt(longs, shorts, options_command(command));
	optind = 0; /* glibc: start anew, permuting */
	opterr = 0;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const struct option_row *row = c >= 1000 ? &option_rows[c - 1000] : find_letter(c);

		if (c == '?' || c == ':' || !row)
			return bad_option(c, argv, command, err);
		if (row->kind == KIND_SPECIAL)
			set_special(o, row, optarg, config_path);
		else if (options_set(o, row, optarg, err) < 0)
			return error_prefix(err, "option '--%s'", row->name);
	}
	if (argc - optind > 1) {
		error_set(err, "'%s': one %s at a time", argv[optind + 1],
		          is_cache ? "action" : "image");
		error_hint(err, "'gpuimg %s --help' shows the form", command);
		return error_code(err, EXIT_USAGE);
	}
	if (optind < argc)
		options_set_string(is_cache ? &o->action : &o->base, argv[optind]);
	return 0;
}

static void set_defaults(struct options *o)
{
	*o = (struct options){
		.level = LOG_NORMAL,
		.nocrs = true,
		.realloc = true,
		.module_blacklist = true,
		.boot_test = true,
		.bar_bytes = 32ull << 30,
		.cache = true,
		.cache_bytes = 10ull << 30,
	};
}

static char *default_cache_dir(void)
{
	const char *xdg = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");

	if (xdg && *xdg == '/')
		return str_format("%s/gpuimg", xdg);
	return str_format("%s/.cache/gpuimg", home && *home == '/' ? home : "/root");
}

/* dist/NAME-gpu.qcow2, NAME from the base's own file name. */
static char *default_output(const char *base)
{
	const char *slash = base ? strrchr(base, '/') : NULL;
	CLEANUP_FREE char *name = str_copy(slash ? slash + 1 : base ? base : "debian");
	char *dot = strrchr(name, '.');

	name[strcspn(name, "?#")] = '\0';
	if (dot && dot > name &&
	    (str_ends(name, ".qcow2") || str_ends(name, ".img") || str_ends(name, ".raw")))
		*dot = '\0';
	return str_format("dist/%s-gpu.qcow2", *name ? name : "image");
}

/* The open modules are NVIDIA's own choice from branch 560 on, and take Turing and later only. */
static void choose_flavour(struct options *o)
{
	uint64_t branch;

	if (!o->driver_flavour_given && o->driver_branch)
		o->driver_flavour = str_parse_uint(o->driver_branch, 100000, &branch) == 0 &&
		                                    branch < FIRST_OPEN_BRANCH
		                            ? DRIVER_PROPRIETARY
		                            : DRIVER_OPEN;
}

/*
 * Profile, image.yaml, command line, each over the one before: argv is read twice, first to
 * learn which files to take, then for good.
 */
int options_parse(struct options *ret, const char *command, int argc, char **argv,
                  struct error *err)
{
	CLEANUP_OPTIONS struct options first = {0}, o = {0};
	struct config_key keys[OPTION_ROWS_MAX + 4]; /* 'config' points into it */
	CLEANUP_CONFIG struct config *config = NULL;
	CLEANUP_FREE char *config_path = NULL;

	set_defaults(&first);
	if (parse_argv(&first, command, argc, argv, &config_path, err) < 0)
		return -1;
	set_defaults(&o);
	o.data_dir = str_copy(first.data_dir);
	o.profile = str_copy(first.profile);
	o.help = first.help;
	if (config_path && !o.help && read_image_yaml(&o, config_path, keys, &config, err) < 0)
		return -1;
	if (!o.profile)
		o.profile = str_copy("gpu-base");
	if (!o.help && (options_command(command) & (BUILD | INSPECT)) && read_profile(&o, err) < 0)
		return -1;
	if (config && (apply_config(&o, config, err) < 0))
		return -1;
	if (config && config_string(config, "base"))
		options_set_string(&o.base, config_string(config, "base"));
	if (parse_argv(&o, command, argc, argv, &config_path, err) < 0)
		return -1;
	if (!o.cache_dir)
		o.cache_dir = default_cache_dir();
	if (!o.output)
		o.output = default_output(o.base);
	choose_flavour(&o);
	if (!o.help && options_check(&o, command, err) < 0)
		return -1;
	*ret = o;
	o = (struct options){0};
	return 0;
}

void options_free(struct options *o)
{
	struct strv *lists[] = {&o->stages,       &o->cmdline.add, &o->cmdline.remove, &o->block,
	                        &o->run,          &o->upload,      &o->firmware,       &o->expect,
	                        &o->driver_extra, &o->apt_mirrors, &o->apt_repos,      &o->needs,
	                        &o->only};
	char *strings[] = {o->base,
	                   o->base_sha256,
	                   o->base_sums,
	                   o->output,
	                   o->profile,
	                   o->work_dir,
	                   o->cache_dir,
	                   o->data_dir,
	                   o->console,
	                   o->control,
	                   o->compression,
	                   o->action,
	                   o->kind,
	                   o->uki_key,
	                   o->uki_cert,
	                   o->driver_branch,
	                   o->driver_path,
	                   o->driver_repo,
	                   o->driver_repo_key,
	                   o->apt_proxy,
	                   o->containerd_runtime,
	                   o->toolkit_repo,
	                   o->toolkit_key,
	                   o->targets,
	                   o->verify,
	                   o->image_name,
	                   o->image_version,
	                   o->consumer};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		strv_free(lists[i]);
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		free(strings[i]);
	*o = (struct options){0};
}
