/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the texts that kernel parameters stand in: boot entries of type 1, GRUB's
 * environment block and /etc/default/grub. The first byte says which. Whatever comes in, the answer
 * is an error with a message; and an edit that was made is found again, twice the same as once.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/bls.h"
#include "builder/cmdline.h"
#include "builder/default-grub.h"
#include "builder/grubenv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static char name[] = "GRUB_CMDLINE_LINUX", added[] = "pci=nocrs";

static void fuzz_entry(const uint8_t *data, size_t size)
{
	CLEANUP_BLS struct bls_entry spec = {0}, grub = {0}, again = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT, grub_err = ERROR_INIT, again_err = ERROR_INIT;
	CLEANUP_FREE char *text = mem_copy(data, size), *once = NULL, *twice = NULL;
	CLEANUP_STRV struct strv words = {0};
	int rc = bls_parse(&spec, (const char *)data, size, "fuzz", &err);
	int grub_rc = bls_parse_as_grub(&grub, (const char *)data, size, "fuzz", &grub_err);

	require(rc == 0 ? spec.linux_path || spec.efi : err.message && err.code == EXIT_INPUT);
	require(grub_rc == 0 ? grub.linux_path || grub.efi
	                     : grub_err.message && grub_err.code == EXIT_INPUT);
	strv_add(&words, added);
	once = bls_set_options(text, &words);
	twice = bls_set_options(once, &words);
	require(str_equal(once, twice));
	if (rc < 0 || size > 60000)
		return;
	require(bls_parse(&again, once, strlen(once), "fuzz", &again_err) == 0);
	require(again.options_lines == 1 && again.options.count == 1);
	require(str_equal(again.options.items[0], added));
	require(str_equal(again.linux_path, spec.linux_path));
	require(again.initrds.count == spec.initrds.count);
}

static void fuzz_block(const uint8_t *data, size_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *was = grubenv_get(data, size, "a"), *now = NULL;
	CLEANUP_FREE void *block = NULL, *again = NULL;

	(void)was;
	if (grubenv_set(&block, data, size, "kernelopts", "ro \\x", &err) < 0) {
		require(err.message && err.code == EXIT_INPUT && !block);
		return;
	}
	now = grubenv_get(block, size, "kernelopts");
	require(str_equal(now, "ro \\x"));
	require(grubenv_set(&again, block, size, "kernelopts", "ro \\x", &err) == 0);
	require(memcmp(again, block, size) == 0);
}

static void fuzz_defaults(const uint8_t *data, size_t size)
{
	struct cmdline_edit edit = {.add = {(char *[]){added, NULL}, 1}};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *text = mem_copy(data, size), *once = NULL, *twice = NULL;
	CLEANUP_STRV struct strv words = {0};

	if (default_grub_edit(&once, text, name, &edit, "fuzz", &err) < 0) {
		require(err.message && err.code == EXIT_INPUT && !once);
		return;
	}
	require(default_grub_get(&words, once, name, "fuzz", &err) == 0);
	require(default_grub_edit(&twice, once, name, &edit, "fuzz", &err) == 0);
	require(str_equal(once, twice));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % 3 == 0)
		fuzz_entry(data + 1, size - 1);
	else if (data[0] % 3 == 1)
		fuzz_block(data + 1, size - 1);
	else
		fuzz_defaults(data + 1, size - 1);
	return 0;
}
