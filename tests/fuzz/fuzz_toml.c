/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the TOML reader and the edits of containerd's configuration. Whatever comes
 * in, the answer is an error with a message; places lie inside of the text and inside of each
 * other; and every edit that is planned can be read again, needs no second one, and changes nothing
 * else.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/containerd-config.h"
#include "builder/toml-edit.h"
#include "tests/unit/fake-rootfs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAIN CONTAINERD_MAIN_PATH

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_node(const struct toml_node *node, size_t begin, size_t end)
{
	bool is_value = node->type != TOML_TABLE || node->is_inline;
	bool has_place = is_value && !node->is_dotted && !node->of_tables;

	if (has_place)
		require(node->begin >= begin && node->begin < node->end && node->end <= end);
	if (node->has_header)
		require(node->begin < node->end && node->end <= node->body_end &&
		        node->body_end <= end);
	require((node->type == TOML_TABLE || node->type == TOML_ARRAY) == !node->text);
	for (size_t i = 0; i < node->count; i++)
		check_node(&node->children[i], has_place ? node->begin : begin,
		           has_place ? node->end : end);
}

/* What was read says the same when it is written as its flattened lines. */
static void check_lines(const struct toml *toml)
{
	CLEANUP_STRV struct strv lines = {0}, again_lines = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TOML struct toml *again = NULL;
	CLEANUP_FREE char *text = NULL, *again_text = NULL;

	toml_flatten(&toml->root, &lines);
	text = strv_join(&lines, "\n");
	if (strlen(text) > TOML_MAX_BYTES || toml_parse(&again, text, "lines", &err) < 0)
		return; /* too large, or deeper by the table around it */
	toml_flatten(&again->root, &again_lines);
	again_text = strv_join(&again_lines, "\n");
	require(strcmp(text, again_text) == 0);
}

static void fuzz_lists(const char *text)
{
	CLEANUP_STRV struct strv path = strv_split("disabled_plugins", " ");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *edited = str_copy(text);

	if (toml_add_item(&edited, &path, "\"cri\"", "fuzz", &err) < 0 ||
	    toml_remove_item(&edited, &path, "cri", "fuzz", &err) < 0)
		require(err.message && err.code == EXIT_INPUT);
}

static void fuzz_plan(const char *text, int major, int minor)
{
	static char option[] = "SystemdCgroup = true";
	struct strv options = {(char *[]){option, NULL}, 1};
	struct containerd_runtime runtime = {"nvidia", "/usr/bin/n", &options, true};
	CLEANUP_CONTAINERD_FILES struct containerd_files files = {0}, after = {0};
	CLEANUP_CONTAINERD_EDITS struct containerd_edits edits = {0}, none = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fake_file table[] = {{MAIN, text}, {"/etc/containerd/conf.d/a.toml", ""}, {0}, {0}};
	struct fake_rootfs root = fake_rootfs(table);

	if (containerd_files_read(&files, &root.base, MAIN, &err) < 0 ||
	    containerd_plan_edits(&edits, &files, major, minor, &runtime, &err) < 0) {
		require(err.message && err.code == EXIT_INPUT && edits.count == 0);
		return;
	}
	for (size_t i = 0; i < edits.count; i++) {
		if (strcmp(edits.items[i].path, MAIN) == 0)
			table[0].text = edits.items[i].text;
		else if (strcmp(edits.items[i].path, table[1].path) == 0)
			table[1].text = edits.items[i].text;
		else
			table[2] = (struct fake_file){edits.items[i].path, edits.items[i].text};
	}
	require(containerd_files_read(&after, &root.base, MAIN, &err) == 0);
	require(containerd_plan_edits(&none, &after, major, minor, &runtime, &err) == 0);
	require(none.count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_FREE char *text = mem_copy(data, size);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TOML struct toml *toml = NULL;

	if (toml_parse(&toml, text, "fuzz", &err) < 0) {
		require(err.message && err.code == EXIT_INPUT && !toml);
		return 0;
	}
	check_node(&toml->root, 0, strlen(text));
	check_lines(toml);
	fuzz_lists(text);
	fuzz_plan(text, 1, 7);
	fuzz_plan(text, 2, 1);
	return 0;
}
