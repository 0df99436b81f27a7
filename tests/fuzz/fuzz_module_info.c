/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the reader of kernel modules and of their signatures. Whatever comes in, the
 * answer is an error with a message, or texts that are printable and no longer than the file.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/cleanup.h"
#include "builder/module-info.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void ask_text(const char *text)
{
	if (!text)
		return;
	require(strlen(text) <= 512);
	for (const char *c = text; *c; c++)
		require((unsigned char)*c >= ' ' && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_MODULE_INFO struct module_info info = {0};
	CLEANUP_FREE char *signer = NULL;

	if (module_info_read(&info, data, size, &err) < 0)
		require(err.message && err.code == EXIT_INPUT && !info.name &&
		        !info.firmware.count);
	ask_text(info.name);
	ask_text(info.version);
	ask_text(info.vermagic);
	ask_text(info.license);
	ask_text(info.signer);
	require(info.has_signature || !info.signer);
	for (size_t i = 0; i < info.firmware.count; i++)
		ask_text(info.firmware.items[i]);
	require(module_signature_read(data, size, &signer) || !signer);
	ask_text(signer);
	return 0;
}
