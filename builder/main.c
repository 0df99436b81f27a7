/* SPDX-License-Identifier: Apache-2.0 */
/* gpuimg: the table of its commands. Installed as build-gpu-base-image, it is 'gpuimg build'. */
#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "data.h"
#include "options.h"

struct command {
	const char *name;
	const char *summary;
	enum exit_code (*run)(const struct options *o, struct error *err);
};

static const struct command commands[] = {
	{"build", "make a proven GPU node image from a base image", command_build},
	{"boot", "smoke boot of an image under QEMU with a large-BAR device", command_boot},
	{"cache", "list or prune what is kept between builds", command_cache},
	{"doctor", "check this host; each finding with its cure", command_doctor},
	{"inspect", "tell what an image is, and whether a GPU would work on its nodes",
         command_inspect},
	{"publish", "put a finished image at cloud locations; resumable", command_publish},
};

static void print_usage(FILE *to)
{
	fprintf(to, "usage: gpuimg COMMAND [OPTION…]\n\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(to, "  %-10s  %s\n", commands[i].name, commands[i].summary);
	fprintf(to, "  %-10s  %s\n", "make-base", "make a small Debian base image with mmdebstrap");
	fprintf(to, "\n'gpuimg COMMAND --help' tells the options; see also gpuimg(1)\n");
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

/* The base maker is a program of its own (bash: it drives mmdebstrap, mke2fs and mtools). */
static int exec_make_base(int argc, char **argv, struct error *err)
{
	CLEANUP_FREE char *data = NULL;
	CLEANUP_FREE char *script = NULL;
	CLEANUP_STRV struct strv args = {0};

	if (data_find_dir(&data, NULL, err) < 0)
		return -1;
	script = data_make_base(data);
	strv_add(&args, "bash");
	strv_add(&args, script);
	for (int i = 1; i < argc; i++)
		strv_add(&args, argv[i]);
	execvp("bash", args.items);
	return error_errno(err, errno, "cannot run '%s'", script);
}

static int fail(struct error *err)
{
	enum exit_code code = error_exit_code(err);

	if (err->message)
		error_print(err, NULL);
	error_free(err);
	return (int)code;
}

/* argv[0] is the command's name. */
static int run_command(const struct command *command, int argc, char **argv)
{
	CLEANUP_OPTIONS struct options o = {0};
	struct error err = ERROR_INIT;
	enum exit_code code;

	if (options_parse(&o, command->name, argc, argv, &err) < 0)
		return fail(&err);
	if (o.help) {
		options_usage(command->name, command->summary);
		return EXIT_OK;
	}
	code = command->run(&o, &err);
	if (fflush(stdout) != 0 && code == EXIT_OK) {
		error_errno(&err, errno, "cannot write the result to standard output");
		code = EXIT_BUILD;
	}
	if (code != EXIT_OK && err.message)
		return fail(&err);
	error_free(&err);
	return (int)code;
}

static int unknown_command(const char *name)
{
	fprintf(stderr, "gpuimg: error: there is no command '%s'\n", name);
	fprintf(stderr, "gpuimg: hint: 'gpuimg --help' lists them\n");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *self = slash ? slash + 1 : argc > 0 ? argv[0] : "gpuimg";
	struct error err = ERROR_INIT;
	const struct command *command;

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		printf("gpuimg %s\n", GPUIMG_VERSION);
		return EXIT_OK;
	}
	if (strcmp(self, "build-gpu-base-image") == 0)
		return run_command(&commands[0], argc, argv);
	if (argc < 2) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		print_usage(stdout);
		return EXIT_OK;
	}
	if (strcmp(argv[1], "make-base") == 0) {
		exec_make_base(argc - 1, argv + 1, &err);
		return fail(&err);
	}
	command = find_command(argv[1]);
	return command ? run_command(command, argc - 1, argv + 1) : unknown_command(argv[1]);
}
