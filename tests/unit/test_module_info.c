/* SPDX-License-Identifier: Apache-2.0 */
/* Modules as they are made here, compressed, signed, cut off and damaged. */
#include <archive.h>
#include <archive_entry.h>

#include "builder/module-info.h"
#include "module-maker.h"
#include "tap.h"

#define FIELDS                                                                                     \
	"license=NVIDIA|srcversion=ABC|version=550.54.14|firmware=nvidia/550.54.14/gsp_tu10x.bin|" \
	"firmware=nvidia/550.54.14/gsp_ga10x.bin|name=nvidia|"                                     \
	"vermagic=6.1.0-57-amd64 SMP preempt mod_unload modversions |"

static bool reads(struct module_info *info, const void *data, size_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	*info = (struct module_info){0};
	if (module_info_read(info, data, size, &err) == 0)
		return true;
	if (err.code != EXIT_INPUT || !err.message)
		check(false, "a refusal has a message, and is about the input");
	return false;
}

static size_t compress(char *to, size_t room, const struct made_module *m,
                       int (*filter)(struct archive *))
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	size_t used = 0;

	filter(a);
	archive_write_set_format_raw(a);
	archive_write_set_bytes_in_last_block(a, 1);
	archive_write_open_memory(a, to, room, &used);
	archive_entry_set_filetype(e, AE_IFREG);
	if (archive_write_header(a, e) != ARCHIVE_OK ||
	    archive_write_data(a, m->data, m->size) != (la_ssize_t)m->size ||
	    archive_write_close(a) != ARCHIVE_OK)
		abort();
	archive_entry_free(e);
	archive_write_free(a);
	return used;
}

static void test_fields(void)
{
	CLEANUP_MODULE_INFO struct module_info info = {0};
	struct made_module m;

	module_make(&m, EM_X86_64, FIELDS);
	if (!check(reads(&info, m.data, m.size), "a module is read"))
		return;
	check_str(info.version, "550.54.14", "it says its version, and not its srcversion");
	check_str(info.name, "nvidia", "it says its name");
	check_str(info.license, "NVIDIA", "it says its licence");
	check_str(info.vermagic, "6.1.0-57-amd64 SMP preempt mod_unload modversions ",
	          "it says which kernel it is for");
	check(info.firmware.count == 2 &&
	              str_equal(info.firmware.items[1], "nvidia/550.54.14/gsp_ga10x.bin"),
	      "all firmware that it asks for is told");
	check(!info.has_signature && !info.signer, "one that is not signed has no signer");
}

static void test_odd_fields(void)
{
	CLEANUP_MODULE_INFO struct module_info twice = {0}, bare = {0}, arm = {0};
	struct made_module m;

	module_make(&m, EM_X86_64, "version=1|version=2|name=a\033[31mb|license");
	check(reads(&twice, m.data, m.size) && str_equal(twice.version, "1"),
	      "of a field that stands twice the first one counts");
	check_str(twice.name, "a?[31mb", "control characters are not handed on");
	check(!twice.license, "a field without '=' is none");
	module_make(&m, EM_X86_64, "");
	check(reads(&bare, m.data, m.size) && !bare.version && !bare.firmware.count,
	      "a module that says nothing is one");
	module_make(&m, EM_AARCH64, FIELDS);
	check(reads(&arm, m.data, m.size) && str_equal(arm.name, "nvidia"),
	      "a module for AArch64 is read");
}

static void test_compressed(void)
{
	static const struct {
		const char *name;
		int (*filter)(struct archive *);
	} kinds[] = {{"xz", archive_write_add_filter_xz},
	             {"zstd", archive_write_add_filter_zstd},
	             {"gzip", archive_write_add_filter_gzip}};
	struct made_module m;

	module_make(&m, EM_X86_64, FIELDS);
	module_sign(&m, "Canonical Ltd. Kernel Module Signing");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		CLEANUP_MODULE_INFO struct module_info info = {0}, torn = {0};
		char packed[MODULE_ROOM];
		size_t size = compress(packed, sizeof(packed), &m, kinds[i].filter);

		check(reads(&info, packed, size) && str_equal(info.version, "550.54.14") &&
		              str_equal(info.signer, "Canonical Ltd. Kernel Module Signing"),
		      "one that %s compressed is read with its signature", kinds[i].name);
		check(!reads(&torn, packed, size / 2), "half of it is refused");
	}
}

static void test_signed(void)
{
	CLEANUP_MODULE_INFO struct module_info info = {0}, by_key = {0}, nameless = {0};
	struct made_module m;

	module_make(&m, EM_X86_64, FIELDS);
	module_sign(&m, "DKMS module signing key");
	check(reads(&info, m.data, m.size) && info.has_signature, "a signature is seen");
	check_str(info.signer, "DKMS module signing key", "its signer is told by the common name");
	module_make(&m, EM_X86_64, FIELDS);
	module_sign_with(&m, "who", CMS_USE_KEYID);
	check(reads(&by_key, m.data, m.size) && by_key.has_signature && !by_key.signer,
	      "a signature by the key's id alone names nobody");
	module_make(&m, EM_X86_64, FIELDS);
	module_sign(&m, "");
	check(reads(&nameless, m.data, m.size) && nameless.has_signature && !nameless.signer,
	      "one by a certificate without a common name names nobody");
}

/* Everything behind the module itself, byte by byte: no crash, and always a module. */
static void test_damaged_signature(void)
{
	struct made_module m;
	size_t plain;
	bool kept = true;

	module_make(&m, EM_X86_64, FIELDS);
	plain = m.size;
	module_sign(&m, "somebody");
	for (size_t at = plain; at < m.size; at++) {
		CLEANUP_MODULE_INFO struct module_info info = {0};
		unsigned char was = m.data[at];

		m.data[at] ^= 0xff;
		kept = kept && reads(&info, m.data, m.size) &&
		       (info.has_signature || at >= m.size - 28);
		m.data[at] = was;
	}
	check(kept, "with any byte of its signature damaged, it is still a module with one");
	m.data[m.size - 29] = 0xff; /* the length's last byte: longer than the file */
	m.data[m.size - 32] = 0xff;
	{
		CLEANUP_MODULE_INFO struct module_info info = {0};

		check(reads(&info, m.data, m.size) && info.has_signature && !info.signer,
		      "a signature longer than the file is one that cannot be read");
	}
}

static void test_refused(void)
{
	CLEANUP_MODULE_INFO struct module_info info = {0};
	struct made_module m;
	bool quiet = true;

	check(!reads(&info, "#!/bin/sh\n", 10), "a script is no module");
	check(!reads(&info, "", 0), "an empty file is none");
	module_make(&m, EM_RISCV, FIELDS);
	check(!reads(&info, m.data, m.size), "a module for another machine is refused");
	module_make(&m, EM_X86_64, FIELDS);
	for (size_t cut = 0; cut < m.size; cut++)
		quiet = quiet && !reads(&info, m.data, cut);
	check(quiet, "a module that is cut off anywhere is refused");
	((Elf64_Ehdr *)m.data)->e_type = ET_EXEC;
	check(!reads(&info, m.data, m.size), "a program is refused");
}

/* What is found in a damaged module stands in it, or has '?' where it was not printable. */
static bool stands_in(const char *text, const struct made_module *m)
{
	size_t length = text ? strlen(text) : 0;

	for (size_t at = 0; text && at + length <= m->size; at++) {
		size_t i = 0;

		while (i < length && (text[i] == '?' || text[i] == (char)m->data[at + i]))
			i++;
		if (i == length)
			return true;
	}
	return !text;
}

static void test_damaged(void)
{
	struct made_module m;
	bool within = true;

	module_make(&m, EM_X86_64, FIELDS);
	for (size_t at = 0; at < m.size; at++) {
		CLEANUP_MODULE_INFO struct module_info info = {0};
		unsigned char was = m.data[at];

		m.data[at] = 0xff;
		if (reads(&info, m.data, m.size))
			within = within && stands_in(info.version, &m) && stands_in(info.name, &m);
		m.data[at] = was;
	}
	check(within, "with any byte damaged, what is found still stands in the file");
}

int main(void)
{
	test_fields();
	test_odd_fields();
	test_compressed();
	test_signed();
	test_damaged_signature();
	test_refused();
	test_damaged();
	return tap_done();
}
