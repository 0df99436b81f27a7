/* SPDX-License-Identifier: Apache-2.0 */
/* GRUB's entries, from grub.cfg, the files that it sources, and grub.cfg files of the ESP. */
#include <string.h>

#include "bootchain-internal.h"
#include "grubenv.h"

#define SOURCES_MAX        16
#define GRUB_CFG_MAX_BYTES (4UL * 1024 * 1024)
#define GRUBENV_MAX_BYTES  (64UL * 1024)

static void take_entry(struct chain_reader *r, const struct grub_entry *from, const char *file)
{
	struct boot_entry *e = chain_add(r->chain);

	e->source = BOOT_GRUB;
	e->file = str_copy(file);
	e->line = from->line;
	e->title = str_copy(from->title);
	e->kernel = bootchain_guest_path(r->guest, "/boot/.", from->kernel);
	for (size_t i = 0; i < from->initrds.count; i++)
		strv_take(&e->initrds,
		          bootchain_guest_path(r->guest, "/boot/.", from->initrds.items[i]));
	strv_add_all(&e->args, &from->args);
	e->recovery = from->recovery;
	e->xen = from->xen;
}

static int read_config(struct chain_reader *r, struct grub_config *ret, char **ret_text,
                       const char *path, struct error *err)
{
	void *text = NULL;

	if (rootfs_read(r->root, path, GRUB_CFG_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	*ret_text = text;
	return grubcfg_parse(ret, text, path, err);
}

/* The value of 'set NAME="…"' in a grub.cfg, as 10_linux of Enterprise Linux writes it. */
static char *find_set(const char *text, const char *name)
{
	CLEANUP_FREE char *head = str_format("set %s=\"", name);
	const char *at = strstr(text, head);
	const char *end;

	if (!at)
		return NULL;
	at += strlen(head);
	end = strchr(at, '"');
	return end ? mem_copy(at, (size_t)(end - at)) : NULL;
}

/* What "$kernelopts" of BLS entries stands for: grubenv's, else grub.cfg's own. */
static int find_kernelopts(struct chain_reader *r, const char *text, struct error *err)
{
	CLEANUP_FREE void *block = NULL;
	size_t size;

	if (r->chain->grubenv) {
		if (rootfs_read(r->root, r->chain->grubenv, GRUBENV_MAX_BYTES, &block, &size, err) <
		    0)
			return -1;
		r->kernelopts = grubenv_get(block, size, "kernelopts");
	}
	if (!r->kernelopts)
		r->kernelopts = find_set(text, "kernelopts");
	if (!r->kernelopts)
		r->kernelopts = find_set(text, "default_kernelopts");
	return 0;
}

static int read_file(struct chain_reader *r, const char *path, struct strv *ret_sources,
                     struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_ERROR struct error refused = ERROR_INIT;
	CLEANUP_GRUBCFG struct grub_config config = {0};

	if (read_config(r, &config, &text, path, &refused) < 0)
		return chain_note_unreadable(r, &refused, err);
	for (size_t i = 0; i < config.count; i++)
		take_entry(r, &config.entries[i], path);
	strv_add_all(ret_sources, &config.sources);
	r->chain->grub_reads_bls |= config.loads_blscfg;
	r->reads_uki |= config.loads_uki;
	return config.loads_blscfg && !r->kernelopts ? find_kernelopts(r, text, err) : 0;
}

/*
 * "$prefix/custom.cfg", "${config_directory}/custom.cfg": variables stand for GRUB's own directory.
 * A file that is not there is none that GRUB loads.
 */
static int add_source(struct chain_reader *r, struct strv *sources, const char *source,
                      struct strv *seen, struct error *err)
{
	const char *slash = strrchr(source, '/');
	CLEANUP_FREE char *path =
		str_format("%s/%s", r->guest->grub_dir, slash ? slash + 1 : source);

	if (strv_has(seen, path) || !rootfs_exists(r->root, path) || rootfs_is_dir(r->root, path))
		return 0;
	strv_add(seen, path);
	if (seen->count > SOURCES_MAX)
		return error_set(err, "'%s' sources more than %d files", r->chain->grub_cfg,
		                 SOURCES_MAX);
	return read_file(r, path, sources, err);
}

static int read_main(struct chain_reader *r, struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};
	CLEANUP_STRV struct strv sources = {0};
	CLEANUP_FREE char *grubenv = NULL;

	if (!r->guest->grub_dir)
		return 0;
	r->chain->grub_cfg = str_format("%s/grub.cfg", r->guest->grub_dir);
	grubenv = str_format("%s/grubenv", r->guest->grub_dir);
	if (rootfs_exists(r->root, grubenv))
		r->chain->grubenv = STEAL(grubenv);
	strv_add(&seen, r->chain->grub_cfg);
	if (read_file(r, r->chain->grub_cfg, &sources, err) < 0)
		return -1;
	for (size_t i = 0; i < sources.count; i++)
		if (add_source(r, &sources, sources.items[i], &seen, err) < 0)
			return -1;
	return 0;
}

static void add_stub(struct bootchain *chain, const char *path, bool leads_on, bool has_entries)
{
	chain->stubs = mem_grow(chain->stubs, chain->stub_count + 1, sizeof(*chain->stubs));
	chain->stubs[chain->stub_count++] = (struct boot_stub){
		.path = str_copy(path), .leads_on = leads_on, .has_entries = has_entries};
}

static bool leads_to_config(const struct strv *sources)
{
	for (size_t i = 0; i < sources->count; i++)
		if (str_ends(sources->items[i], "grub.cfg"))
			return true;
	return false;
}

/* Where it is the only grub.cfg, its environment block lies beside it. */
static void find_stub_grubenv(struct chain_reader *r, const char *path)
{
	CLEANUP_FREE char *grubenv =
		str_format("%.*s/grubenv", (int)(strrchr(path, '/') - path), path);

	if (!r->guest->grub_dir && !r->chain->grubenv && rootfs_exists(r->root, grubenv))
		r->chain->grubenv = STEAL(grubenv);
}

/* What is no GRUB script at all leads nowhere, and GRUB would stop at its prompt. */
static int read_stub(struct chain_reader *r, const char *path, struct error *err)
{
	CLEANUP_ERROR struct error broken = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_GRUBCFG struct grub_config config = {0};
	bool leads_on, own;

	if (read_config(r, &config, &text, path, &broken) < 0) {
		if (!text)
			return error_take(err, &broken);
		add_stub(r->chain, path, false, false);
		return 0;
	}
	leads_on = leads_to_config(&config.sources) || strstr(text, "\nnormal") != NULL;
	own = config.count > 0 || config.loads_blscfg;
	add_stub(r->chain, path, leads_on, own);
	for (size_t i = 0; i < config.count; i++)
		take_entry(r, &config.entries[i], path);
	r->chain->grub_reads_bls |= config.loads_blscfg;
	if (config.loads_blscfg)
		find_stub_grubenv(r, path);
	return config.loads_blscfg && !r->kernelopts ? find_kernelopts(r, text, err) : 0;
}

static int read_stubs(struct chain_reader *r, const char *esp, struct error *err)
{
	CLEANUP_FREE char *dir = str_format("%s/EFI", esp);
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(r->root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s/grub.cfg", dir, names.items[i]);

		if (rootfs_exists(r->root, path) && !rootfs_is_dir(r->root, path) &&
		    read_stub(r, path, err) < 0)
			return -1;
	}
	return 0;
}

int chain_read_grub(struct chain_reader *r, struct error *err)
{
	if (read_main(r, err) < 0)
		return -1;
	for (size_t i = 0; i < r->chain->esps.count; i++)
		if (read_stubs(r, r->chain->esps.items[i], err) < 0)
			return -1;
	return 0;
}
