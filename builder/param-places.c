/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "bls.h"
#include "default-grub.h"
#include "grubenv.h"
#include "param-places.h"

#define TEXT_MAX_BYTES   (1024UL * 1024)
#define BLS_MAX_BYTES    (64UL * 1024)
#define SCRIPT_MAX_BYTES (1024UL * 1024)
#define LINUX_VARIABLE   "GRUB_CMDLINE_LINUX"

bool param_is_machine_id(const char *word)
{
	static const char name[] = "systemd.machine_id=";
	const char *id = word + strlen(name);
	size_t digits = 0;

	if (!str_starts(word, name))
		return false;
	for (; *id; id++) {
		if (*id != '-' && !isxdigit((unsigned char)*id))
			return false; /* "firmware", "uninitialized" */
		digits += *id != '-';
	}
	return digits == 32;
}

void param_drop_machine_ids(struct strv *words)
{
	for (size_t i = words->count; i-- > 0;)
		if (param_is_machine_id(words->items[i]))
			strv_remove(words, i);
}

static int script_mentions(struct rootfs *root, const char *path, const char *word, bool *ret,
                           struct error *err)
{
	CLEANUP_FREE void *text = NULL;

	if (rootfs_read(root, path, SCRIPT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	*ret = strstr(text, word) != NULL;
	return 0;
}

static bool has_source(const struct bootchain *chain, enum boot_source source)
{
	for (size_t i = 0; i < chain->count; i++)
		if (chain->entries[i].source == source)
			return true;
	return false;
}

static int find_grub(struct param_places *p, struct rootfs *root, const struct bootchain *chain,
                     struct error *err)
{
	static const char *const programs[] = {"/usr/sbin/grub-mkconfig",
	                                       "/usr/sbin/grub2-mkconfig"};
	const char *program = NULL;

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]) && !program; i++)
		if (rootfs_exists(root, programs[i]))
			program = programs[i];
	if (program && script_mentions(root, program, "/default/grub.d", &p->dropin, err) < 0)
		return -1;
	/* Where all entries are BLS files, grub.cfg only reads them, and need not be written. */
	if (!chain->grub_reads_bls)
		p->mkconfig = program;
	p->default_grub = !p->dropin && rootfs_exists(root, DEFAULT_GRUB_PATH);
	return 0;
}

static int find_grubenv(struct param_places *p, struct rootfs *root, const struct bootchain *chain,
                        struct error *err)
{
	CLEANUP_FREE void *block = NULL;
	CLEANUP_FREE char *value = NULL;
	size_t size;

	if (!chain->grubenv || !chain->grub_reads_bls)
		return 0;
	if (rootfs_read(root, chain->grubenv, TEXT_MAX_BYTES, &block, &size, err) < 0)
		return -1;
	value = grubenv_get(block, size, "kernelopts");
	if (value)
		p->grubenv = chain->grubenv;
	return 0;
}

int param_places_find(struct param_places *ret, struct rootfs *root, const struct bootchain *chain,
                      struct error *err)
{
	struct param_places p = {0};

	/* Enterprise Linux 8 that boots by UEFI alone has its only grub.cfg on the ESP. */
	if ((chain->grub_cfg || chain->grub_reads_bls) &&
	    (find_grub(&p, root, chain, err) < 0 || find_grubenv(&p, root, chain, err) < 0))
		return -1;
	p.kernel_cmdline = (has_source(chain, BOOT_BLS) || has_source(chain, BOOT_UKI)) &&
	                   (rootfs_exists(root, "/usr/bin/kernel-install") ||
	                    rootfs_exists(root, "/bin/kernel-install") ||
	                    rootfs_exists(root, KERNEL_CMDLINE_PATH));
	*ret = p;
	return 0;
}

/* Writes a text where it differs from what is there, with the mode that is there. */
static int replace_text(struct rootfs *root, const char *path, const char *old, const char *text,
                        struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {.mode = 0644};

	if (old && strcmp(old, text) == 0)
		return 0;
	/* A link (/etc/default/grub may be one) stays, and what it leads to is written. */
	if (rootfs_resolve_new(root, path, &real, err) < 0 || rootfs_stat(root, real, &st, err) < 0)
		return -1;
	return rootfs_write(root, real, text, strlen(text), st.mode & 07777, err);
}

static int edit_grubenv(struct rootfs *root, const char *path, const struct cmdline_edit *edit,
                        struct error *err)
{
	CLEANUP_FREE void *block = NULL;
	CLEANUP_FREE void *edited = NULL;
	CLEANUP_FREE char *value = NULL;
	CLEANUP_FREE char *joined = NULL;
	CLEANUP_FREE char *real = NULL;
	CLEANUP_STRV struct strv words = {0};
	struct rootfs_stat st;
	size_t size;

	if (rootfs_resolve(root, path, true, &real, err) < 0 ||
	    rootfs_read(root, path, TEXT_MAX_BYTES, &block, &size, err) < 0 ||
	    rootfs_stat(root, path, &st, err) < 0)
		return -1;
	value = grubenv_get(block, size, "kernelopts");
	if (!value)
		return 0;
	words = cmdline_split(value);
	cmdline_apply(&words, edit);
	param_drop_machine_ids(&words);
	joined = cmdline_join(&words);
	if (strcmp(joined, value) == 0)
		return 0;
	if (grubenv_set(&edited, block, size, "kernelopts", joined, err) < 0)
		return error_prefix(err, "'%s'", path);
	return rootfs_write(root, real, edited, size, st.mode & 07777, err);
}

/* What GRUB's variable gives already need not stand in the entry too. */
static void edit_beside_kernelopts(struct strv *options, const struct cmdline_edit *edit,
                                   const struct strv *effective)
{
	struct cmdline_edit rest = {.remove = edit->remove};

	for (size_t i = 0; i < edit->add.count; i++)
		if (!cmdline_holds(effective, edit->add.items[i], NULL))
			strv_add(&rest.add, edit->add.items[i]);
	cmdline_apply(options, &rest);
	strv_free(&rest.add);
}

/* What the kernel will get of an entry once kernelopts is edited: its words, the edit applied. */
static struct strv words_after(const struct boot_entry *e, const struct cmdline_edit *edit,
                               bool in_grubenv)
{
	struct strv words = {0};

	strv_add_all(&words, &e->args);
	if (in_grubenv)
		cmdline_apply(&words, edit);
	return words;
}

static int edit_bls(struct rootfs *root, const struct boot_entry *e,
                    const struct cmdline_edit *edit, bool in_grubenv, struct error *err)
{
	CLEANUP_BLS struct bls_entry bls = {0};
	CLEANUP_FREE void *text = NULL;
	CLEANUP_FREE char *edited = NULL;
	CLEANUP_STRV struct strv words = {0};
	size_t size;

	if (rootfs_read(root, e->file, BLS_MAX_BYTES, &text, &size, err) < 0 ||
	    bls_parse(&bls, text, size, e->file, err) < 0)
		return -1;
	/* An entry that has no options gets those of GRUB's variable; a line of ours takes its
	 * place. */
	strv_add_all(&words, bls.options_lines ? &bls.options : &e->args);
	if (e->uses_kernelopts && bls.options_lines) {
		CLEANUP_STRV struct strv effective = words_after(e, edit, in_grubenv);

		edit_beside_kernelopts(&words, edit, &effective);
	} else {
		cmdline_apply(&words, edit);
	}
	param_drop_machine_ids(&words);
	edited = bls_set_options(text, &words);
	return replace_text(root, e->file, text, edited, err);
}

/* What the running system would have given to kernel-install as its /proc/cmdline: the words of the
 * newest ordinary entry, without those that a boot loader adds. */
static struct strv words_of_base(const struct bootchain *chain)
{
	const struct boot_entry *newest = NULL;
	struct strv words = {0};

	for (size_t i = 0; i < chain->count; i++) {
		const struct boot_entry *e = &chain->entries[i];

		if (e->recovery || e->source == BOOT_GRUB)
			continue;
		if (!newest ||
		    (e->version && newest->version && strverscmp(e->version, newest->version) > 0))
			newest = e;
	}
	for (size_t i = 0; newest && i < newest->args.count; i++)
		if (!str_starts(newest->args.items[i], "initrd=") &&
		    !str_starts(newest->args.items[i], "BOOT_IMAGE="))
			strv_add(&words, newest->args.items[i]);
	return words;
}

/* The lines of a cmdline file are joined. '#' lines are comments to kernel-install from systemd 257
 * on; older ones put their words into entries, so they go when the file is edited. */
static struct strv file_words(const char *text)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");
	struct strv words = {0};

	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_STRV struct strv line = {0};

		if (*lines.items[i] == '#')
			continue;
		line = cmdline_split(lines.items[i]);
		strv_add_all(&words, &line);
	}
	return words;
}

static int read_kernel_cmdline(struct rootfs *root, char **ret, struct error *err)
{
	static const char *const paths[] = {KERNEL_CMDLINE_PATH, "/usr/lib/kernel/cmdline"};
	void *text = NULL;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!rootfs_exists(root, paths[i]))
			continue;
		if (rootfs_read(root, paths[i], TEXT_MAX_BYTES, &text, NULL, err) < 0)
			return -1;
		*ret = text;
		return 0;
	}
	return 0;
}

static int edit_kernel_cmdline(struct rootfs *root, const struct bootchain *chain,
                               const struct cmdline_edit *edit, struct log *log, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *joined = NULL;
	CLEANUP_FREE char *edited = NULL;
	CLEANUP_STRV struct strv words = {0};

	if (read_kernel_cmdline(root, &text, err) < 0)
		return -1;
	words = text ? file_words(text) : words_of_base(chain);
	if (!text)
		log_note(log, "'" KERNEL_CMDLINE_PATH "' is missing: it is made from the newest "
		              "boot entry, for kernels that are installed later");
	cmdline_apply(&words, edit);
	param_drop_machine_ids(&words);
	joined = cmdline_join(&words);
	edited = str_format("%s\n", joined);
	return replace_text(root, KERNEL_CMDLINE_PATH,
	                    rootfs_exists(root, KERNEL_CMDLINE_PATH) ? text : NULL, edited, err);
}

int param_places_check(const struct param_places *p, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv words = {0};

	if (!p->default_grub)
		return 0;
	if (rootfs_read(root, DEFAULT_GRUB_PATH, TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	return default_grub_get(&words, text, LINUX_VARIABLE, DEFAULT_GRUB_PATH, err);
}

static int edit_default_grub(struct rootfs *root, const struct cmdline_edit *edit,
                             struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_FREE char *edited = NULL;

	if (rootfs_read(root, DEFAULT_GRUB_PATH, TEXT_MAX_BYTES, &text, NULL, err) < 0 ||
	    default_grub_edit(&edited, text, LINUX_VARIABLE, edit, DEFAULT_GRUB_PATH, err) < 0)
		return -1;
	return replace_text(root, DEFAULT_GRUB_PATH, text, edited, err);
}

int param_places_apply(const struct param_places *p, struct rootfs *root,
                       const struct bootchain *chain, const struct cmdline_edit *edit,
                       struct log *log, struct error *err)
{
	if (p->default_grub && edit_default_grub(root, edit, err) < 0)
		return -1;
	if (p->grubenv && edit_grubenv(root, p->grubenv, edit, err) < 0)
		return -1;
	for (size_t i = 0; i < chain->count; i++)
		if (chain->entries[i].source == BOOT_BLS &&
		    edit_bls(root, &chain->entries[i], edit, p->grubenv != NULL, err) < 0)
			return -1;
	return p->kernel_cmdline ? edit_kernel_cmdline(root, chain, edit, log, err) : 0;
}

static void check_words(struct findings *f, const struct strv *words, const struct strv *params,
                        const char *path)
{
	for (size_t i = 0; i < words->count; i++)
		if (param_is_machine_id(words->items[i]))
			finding_bad(f, "cmdline.machine-id", "take it out of the file",
			            "'%s': '%s' would give all nodes one identity", path,
			            words->items[i]);
	for (size_t i = 0; i < params->count; i++) {
		CLEANUP_FREE char *why = NULL;

		if (cmdline_holds(words, params->items[i], &why))
			finding_ok(f, "cmdline.later", "'%s': '%s'", path, params->items[i]);
		else
			finding_bad(f, "cmdline.later",
			            "add it there: kernels installed later take it from this file",
			            "'%s': '%s' is not in effect: %s", path, params->items[i],
			            why ? why : "missing");
	}
}

/* Entries that Enterprise Linux 8 writes for a new kernel have "$kernelopts" and nothing else. */
static int check_grubenv(struct findings *f, const char *path, struct rootfs *root,
                         const struct strv *params, struct error *err)
{
	CLEANUP_FREE void *block = NULL;
	CLEANUP_FREE char *value = NULL;
	CLEANUP_FREE char *name = str_format("%s (kernelopts)", path);
	CLEANUP_STRV struct strv words = {0};
	size_t size = 0;

	if (rootfs_exists(root, path) &&
	    rootfs_read(root, path, TEXT_MAX_BYTES, &block, &size, err) < 0)
		return -1;
	value = block ? grubenv_get(block, size, "kernelopts") : NULL;
	words = cmdline_split(value ? value : "");
	check_words(f, &words, params, name);
	return 0;
}

int proof_places(struct findings *f, const struct param_places *p, struct rootfs *root,
                 const struct strv *params, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE void *grub = NULL;
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_STRV struct strv grub_words = {0};

	if (p->kernel_cmdline) {
		if (read_kernel_cmdline(root, &text, err) < 0)
			return -1;
		words = file_words(text ? text : "");
		check_words(f, &words, params, KERNEL_CMDLINE_PATH);
	}
	if (p->grubenv && check_grubenv(f, p->grubenv, root, params, err) < 0)
		return -1;
	if (!p->default_grub)
		return 0;
	if (rootfs_read(root, DEFAULT_GRUB_PATH, TEXT_MAX_BYTES, &grub, NULL, err) < 0 ||
	    default_grub_get(&grub_words, grub, LINUX_VARIABLE, DEFAULT_GRUB_PATH, err) < 0)
		return -1;
	check_words(f, &grub_words, params, DEFAULT_GRUB_PATH);
	return 0;
}
