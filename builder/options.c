/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "data.h"
#include "options.h"

enum command { BUILD = 1, BOOT = 2, DOCTOR = 4 };

/* What a value does; each works the same from argv, image.yaml and a profile. */
enum kind {
	KIND_STRING, /* a char * that the last one wins */
	KIND_LIST,   /* adds up */
	KIND_ON,     /* --x: true */
	KIND_OFF,    /* --no-x: false; in YAML 'x: true|false' */
	KIND_SIZE,
	KIND_SECONDS,
	KIND_EXEC,
	KIND_WINDOW,
	KIND_FIRMWARE,
	KIND_SPECIAL, /* read by options_parse itself */
};

struct option_row {
	const char *name; /* long option; in YAML the same, without "no-" */
	int letter;       /* short option, or 0 */
	enum kind kind;
	int commands;
	size_t offset;
	const char *value; /* shown in the help */
	const char *allowed;
	const char *help;
	bool argv_only;
};

#define AT(field) offsetof(struct options, field)

static const struct option_row rows[] = {
	{"config", 'c', KIND_SPECIAL, BUILD, 0, "FILE", NULL, "take options from an image.yaml",
         true},
	{"profile", 'p', KIND_STRING, BUILD, AT(profile), "NAME", NULL,
         "what kind of node (default gpu-base)", false},
	{"output", 'o', KIND_STRING, BUILD, AT(output), "FILE", NULL,
         "the artifact (default dist/BASE-gpu.qcow2)", false},
	{"base-sha256", 0, KIND_STRING, BUILD, AT(base_sha256), "HEX", NULL,
         "digest that a fetched base must have", false},
	{"base-sums", 0, KIND_STRING, BUILD, AT(base_sums), "URL", NULL,
         "SHA256SUMS file that names a fetched base", false},
	{"cmdline-add", 0, KIND_LIST, BUILD, AT(cmdline.add), "PARAM", NULL,
         "add a kernel parameter", false},
	{"cmdline-remove", 0, KIND_LIST, BUILD, AT(cmdline.remove), "PARAM", NULL,
         "take a parameter out: 'name' or 'name=value'", false},
	{"no-nocrs", 0, KIND_OFF, BUILD, AT(nocrs), NULL, NULL,
         "leave pci=nocrs out (platforms with memory hot-plug)", false},
	{"no-realloc", 0, KIND_OFF, BUILD, AT(realloc), NULL, NULL, "leave pci=realloc out", false},
	{"no-module-blacklist", 0, KIND_OFF, BUILD, AT(module_blacklist), NULL, NULL,
         "leave module_blacklist= out of the kernel command line", false},
	{"block", 0, KIND_LIST, BUILD, AT(block), "MODULE", NULL, "block one more kernel module",
         false},
	{"upload", 0, KIND_LIST, BUILD, AT(upload), "SRC:DST", NULL, "put a file into the image",
         false},
	{"run", 0, KIND_LIST, BUILD, AT(run), "SCRIPT", NULL,
         "run a script in the image, before the initramfs rebuild", false},
	{"network", 0, KIND_ON, BUILD, AT(network), NULL, NULL,
         "let --run scripts reach the network", false},
	{"exec", 0, KIND_EXEC, BUILD, AT(exec), "MODE", "auto|appliance|sandbox",
         "where the guest's programs run: auto, appliance, sandbox", false},
	{"compression", 0, KIND_STRING, BUILD, AT(compression), "TYPE", "zlib|zstd|none",
         "of the artifact: zlib, zstd, none (default: the base's)", false},
	{"no-boot-test", 0, KIND_OFF, BUILD, AT(boot_test), NULL, NULL, "leave the boot test out",
         false},
	{"control", 0, KIND_STRING, BOOT, AT(control), "BASE", NULL,
         "boot this image beside it; it must fail, or the test is void", false},
	{"expect", 0, KIND_LIST, BOOT, AT(expect), "PARAM", NULL,
         "parameter that /proc/cmdline must hold", false},
	{"firmware", 0, KIND_FIRMWARE, BUILD | BOOT, AT(firmware), "F", "bios|uefi|both",
         "bios, uefi or both (default: what the image supports, BIOS first)", false},
	{"window", 0, KIND_WINDOW, BOOT, AT(window), "W", "unreachable|reachable",
         "where the firmware puts the BAR's window (default unreachable)", false},
	{"bar-size", 0, KIND_SIZE, BUILD | BOOT, AT(bar_bytes), "SIZE", NULL,
         "of the emulated device (default 32G)", false},
	{"timeout", 0, KIND_SECONDS, BUILD | BOOT, AT(timeout_s), "SECONDS", NULL,
         "for one boot (default by accelerator)", false},
	{"console", 0, KIND_STRING, BOOT, AT(console), "FILE", NULL, "keep the console log", false},
	{"work-dir", 0, KIND_STRING, BUILD | BOOT | DOCTOR, AT(work_dir), "DIR", NULL,
         "for all temporary files (default $TMPDIR, /var/tmp)", false},
	{"cache-dir", 0, KIND_STRING, BUILD | BOOT | DOCTOR, AT(cache_dir), "DIR", NULL,
         "default $XDG_CACHE_HOME/gpuimg, ~/.cache/gpuimg", false},
	{"data-dir", 0, KIND_STRING, BUILD | BOOT | DOCTOR, AT(data_dir), "DIR", NULL,
         "our data files (default: as installed)", false},
	{"keep-work", 0, KIND_ON, BUILD | BOOT, AT(keep_work), NULL, NULL,
         "keep the work directory after a failure", false},
	{"plan", 0, KIND_ON, BUILD, AT(plan), NULL, NULL, "show what would be done; touch nothing",
         true},
	{"json", 0, KIND_ON, BUILD | BOOT | DOCTOR, AT(json), NULL, NULL, "results for machines",
         true},
	{"verbose", 'v', KIND_SPECIAL, BUILD | BOOT | DOCTOR, 0, NULL, NULL, "say more", true},
	{"quiet", 'q', KIND_SPECIAL, BUILD | BOOT | DOCTOR, 0, NULL, NULL, "say errors only", true},
	{"help", 'h', KIND_SPECIAL, BUILD | BOOT | DOCTOR, 0, NULL, NULL, "this text", true},
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static int command_bit(const char *command)
{
	return strcmp(command, "build") == 0 ? BUILD : strcmp(command, "boot") == 0 ? BOOT : DOCTOR;
}

static int usage_error(struct error *err)
{
	return error_code(err, EXIT_USAGE);
}

static bool is_allowed(const char *allowed, const char *value)
{
	CLEANUP_STRV struct strv words = strv_split(allowed, "|");

	return strv_has(&words, value);
}

static int set_size(uint64_t *field, const char *value, struct error *err)
{
	if (str_parse_size(value, field) < 0) {
		error_set(err, "'%s' is not a size", value);
		error_hint(err, "give a number with K, M, G or T: 32G");
		return usage_error(err);
	}
	return 0;
}

static int set_seconds(unsigned *field, const char *value, struct error *err)
{
	uint64_t seconds;

	if (str_parse_uint(value, 86400, &seconds) < 0 || seconds == 0) {
		error_set(err, "'%s' is not a time in seconds (1 to 86400)", value);
		return usage_error(err);
	}
	*field = (unsigned)seconds;
	return 0;
}

/* The last one wins, as for a string; "both" is a list of two. */
static void set_firmware(struct strv *field, const char *value)
{
	strv_free(field);
	if (strcmp(value, "both") == 0) {
		strv_add(field, "bios");
		strv_add(field, "uefi");
	} else {
		strv_add(field, value);
	}
}

static void set_string(char **field, const char *value)
{
	free(*field);
	*field = str_copy(value);
}

/* value: NULL for --x and --no-x, "true" or "false" from YAML. */
static int set_value(struct options *o, const struct option_row *row, const char *value,
                     struct error *err)
{
	void *field = (char *)o + row->offset;

	if (row->allowed && !is_allowed(row->allowed, value)) {
		error_set(err, "'%s' is not one of %s", value, row->allowed);
		return usage_error(err);
	}
	switch (row->kind) {
	case KIND_STRING:
		set_string(field, value);
		break;
	case KIND_LIST:
		strv_add(field, value);
		break;
	case KIND_ON:
		*(bool *)field = !value || strcmp(value, "true") == 0;
		break;
	case KIND_OFF:
		*(bool *)field = value && strcmp(value, "true") == 0;
		break;
	case KIND_SIZE:
		return set_size(field, value, err);
	case KIND_SECONDS:
		return set_seconds(field, value, err);
	case KIND_EXEC:
		*(enum exec_mode *)field = strcmp(value, "auto") == 0        ? EXEC_AUTO
		                           : strcmp(value, "appliance") == 0 ? EXEC_APPLIANCE
		                                                             : EXEC_SANDBOX;
		break;
	case KIND_WINDOW:
		*(enum boot_window *)field =
			strcmp(value, "reachable") == 0 ? WINDOW_REACHABLE : WINDOW_UNREACHABLE;
		break;
	case KIND_FIRMWARE:
		set_firmware(field, value);
		break;
	case KIND_SPECIAL:
		break;
	}
	return 0;
}

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
		return CONFIG_UINT;
	default:
		return CONFIG_STRING;
	}
}

static void fill_keys(struct config_key *keys, bool profile)
{
	size_t n = 0;

	for (size_t i = 0; i < ROW_COUNT; i++)
		if (!rows[i].argv_only && (rows[i].commands & BUILD))
			keys[n++] = (struct config_key){yaml_name(&rows[i]), yaml_type(&rows[i]),
			                                rows[i].allowed};
	if (profile) {
		keys[n++] = (struct config_key){"stages", CONFIG_LIST, NULL};
		keys[n++] = (struct config_key){"summary", CONFIG_STRING, NULL};
	} else {
		keys[n++] = (struct config_key){"base", CONFIG_STRING, NULL};
	}
	keys[n] = (struct config_key){0};
}

static int apply_config(struct options *o, const struct config *config, struct error *err)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const struct config_value *value =
			rows[i].argv_only ? NULL : config_find(config, yaml_name(&rows[i]));

		for (size_t j = 0; value && j < value->values.count; j++)
			if (set_value(o, &rows[i], value->values.items[j], err) < 0)
				return error_prefix(err, "%s:%d: '%s'", config->path, value->line,
				                    yaml_name(&rows[i]));
	}
	return 0;
}

static int read_profile(struct options *o, struct error *err)
{
	struct config_key keys[ROW_COUNT + 3];
	CLEANUP_FREE char *data = NULL;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CONFIG struct config *config = NULL;

	if (strchr(o->profile, '/') || *o->profile == '.') {
		error_set(err, "'%s' is not the name of a profile", o->profile);
		return usage_error(err);
	}
	if (data_find_dir(&data, o->data_dir, err) < 0)
		return -1;
	path = str_format("%s/profiles/%s.yaml", data, o->profile);
	if (access(path, R_OK) < 0) {
		error_errno(err, errno, "there is no profile '%s' ('%s')", o->profile, path);
		error_hint(err, "the profiles are the files in '%s/profiles'", data);
		return usage_error(err);
	}
	fill_keys(keys, true);
	if (config_read(&config, path, keys, err) < 0 || apply_config(o, config, err) < 0)
		return -1;
	if (config_list(config, "stages"))
		strv_add_all(&o->stages, config_list(config, "stages"));
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
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (rows[i].letter == letter)
			return &rows[i];
	return NULL;
}

/* Tables for getopt_long: a long option's value is its row's index + 1000. */
static void fill_getopt(struct option *longs, char *shorts, int command)
{
	size_t n = 0;

	*shorts++ = ':'; /* silent, and ':' for a missing argument */
	for (size_t i = 0; i < ROW_COUNT; i++) {
		if (!(rows[i].commands & command))
			continue;
		longs[n++] = (struct option){rows[i].name,
		                             rows[i].value ? required_argument : no_argument, NULL,
		                             1000 + (int)i};
		if (rows[i].letter) {
			*shorts++ = (char)rows[i].letter;
			if (rows[i].value)
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
	return usage_error(err);
}

static int set_special(struct options *o, const struct option_row *row, const char *value,
                       char **config_path)
{
	switch (row->letter) {
	case 'c':
		set_string(config_path, value);
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
	struct option longs[ROW_COUNT + 1];
	char shorts[2 * ROW_COUNT + 2];
	int c;

	fill_getopt(longs, shorts, command_bit(command));
	optind = 0; /* glibc: start anew, permuting */
	opterr = 0;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const struct option_row *row = c >= 1000 ? &rows[c - 1000] : find_letter(c);

		if (c == '?' || c == ':' || !row)
			return bad_option(c, argv, command, err);
		if (row->kind == KIND_SPECIAL)
			set_special(o, row, optarg, config_path);
		else if (set_value(o, row, optarg, err) < 0)
			return error_prefix(err, "option '--%s'", row->name);
	}
	if (argc - optind > 1) {
		error_set(err, "'%s': one image at a time", argv[optind + 1]);
		error_hint(err, "'gpuimg %s --help' shows the form", command);
		return usage_error(err);
	}
	if (optind < argc)
		set_string(&o->base, argv[optind]);
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

/* Parameters end up in single quotes of a shell file and on a kernel command line. */
static int check_params(const struct strv *params, struct error *err)
{
	for (size_t i = 0; i < params->count; i++) {
		if (cmdline_check_token(params->items[i], err) < 0)
			return usage_error(err);
		if (strchr(params->items[i], '\'') || strchr(params->items[i], ' ')) {
			error_set(err, "kernel parameter '%s': holds a quote or a blank",
			          params->items[i]);
			return usage_error(err);
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
		return usage_error(err);
	}
	return 0;
}

static int check_bar(const struct options *o, struct error *err)
{
	uint64_t size = o->bar_bytes;

	if (size >= (1ull << 20) && size <= (512ull << 30) && (size & (size - 1)) == 0)
		return 0;
	error_set(err, "option '--bar-size': not a power of two from 1M to 512G");
	return usage_error(err);
}

static int check_base(const struct options *o, const char *command, struct error *err)
{
	bool url = o->base && (str_starts(o->base, "http://") || str_starts(o->base, "https://"));

	if (!o->base && strcmp(command, "boot") == 0) {
		error_set(err, "no image given");
		error_hint(err, "usage: gpuimg boot IMAGE");
		return usage_error(err);
	}
	if (url && !o->base_sha256 && !o->base_sums) {
		error_set(err, "base '%s': a fetched base needs a checksum", o->base);
		error_hint(err, "pass --base-sha256=HEX or --base-sums=URL");
		return usage_error(err);
	}
	if (!url && (o->base_sha256 || o->base_sums)) {
		error_set(err, "--base-sha256 and --base-sums are for a base that is fetched");
		return usage_error(err);
	}
	return 0;
}

static int check_all(const struct options *o, const char *command, struct error *err)
{
	if (check_params(&o->cmdline.add, err) < 0 || check_params(&o->cmdline.remove, err) < 0 ||
	    check_params(&o->expect, err) < 0 || check_modules(&o->block, err) < 0 ||
	    check_bar(o, err) < 0)
		return -1;
	return check_base(o, command, err);
}

/*
 * Profile, image.yaml, command line, each over the one before: argv is read twice, first to
 * learn which files to take, then for good.
 */
int options_parse(struct options *ret, const char *command, int argc, char **argv,
                  struct error *err)
{
	CLEANUP_OPTIONS struct options first = {0}, o = {0};
	struct config_key keys[ROW_COUNT + 3]; /* 'config' points into it */
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
	if (!o.help && strcmp(command, "build") == 0 && read_profile(&o, err) < 0)
		return -1;
	if (config && (apply_config(&o, config, err) < 0))
		return -1;
	if (config && config_string(config, "base"))
		set_string(&o.base, config_string(config, "base"));
	if (parse_argv(&o, command, argc, argv, &config_path, err) < 0)
		return -1;
	if (!o.cache_dir)
		o.cache_dir = default_cache_dir();
	if (!o.output)
		o.output = default_output(o.base);
	if (!o.help && check_all(&o, command, err) < 0)
		return -1;
	*ret = o;
	o = (struct options){0};
	return 0;
}

void options_usage(const char *command, const char *summary)
{
	int bit = command_bit(command);

	printf("usage: gpuimg %s [OPTION…]%s\n\n%s\n\n", command,
	       bit == BUILD  ? " [BASE]"
	       : bit == BOOT ? " IMAGE"
	                     : "",
	       summary);
	for (size_t i = 0; i < ROW_COUNT; i++) {
		char left[64];

		if (!(rows[i].commands & bit))
			continue;
		snprintf(left, sizeof(left), "%s%c%s --%s%s%s", rows[i].letter ? "-" : " ",
		         rows[i].letter ? rows[i].letter : ' ', rows[i].letter ? "," : " ",
		         rows[i].name, rows[i].value ? "=" : "",
		         rows[i].value ? rows[i].value : "");
		printf("  %-30s %s\n", left, rows[i].help);
	}
	if (bit == BUILD)
		printf("\nBASE is a qcow2 or raw image: a path or an http(s) URL. Without one, a small "
		       "Debian is made.\n");
}

void options_free(struct options *o)
{
	struct strv *lists[] = {&o->stages, &o->cmdline.add, &o->cmdline.remove, &o->block,
	                        &o->run,    &o->upload,      &o->firmware,       &o->expect};
	char *strings[] = {o->base,    o->base_sha256, o->base_sums,  o->output,
	                   o->profile, o->work_dir,    o->cache_dir,  o->data_dir,
	                   o->console, o->control,     o->compression};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		strv_free(lists[i]);
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		free(strings[i]);
	*o = (struct options){0};
}
