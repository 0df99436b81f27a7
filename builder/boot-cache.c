/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot-cache.h"
#include "tools.h"

#define QEMU "qemu-system-x86_64"

char *boot_console_path(const struct boot_options *o)
{
	return o->console_path ? str_copy(o->console_path)
	                       : str_format("%s/console.log", o->work_dir);
}

static int add_firmware(struct cache_key *key, struct cache *cache, enum boot_firmware firmware,
                        struct error *err)
{
	CLEANUP_FREE char *code = NULL;
	CLEANUP_FREE char *vars = NULL;
	CLEANUP_FREE char *code_digest = NULL;
	CLEANUP_FREE char *vars_digest = NULL;

	if (boot_recipe_firmware(firmware, &code, &vars, err) < 0 ||
	    cache_digest_file(cache, code, NULL, &code_digest, err) < 0 ||
	    cache_digest_file(cache, vars, NULL, &vars_digest, err) < 0)
		return -1;
	cache_key_add(key, "firmware_code", code_digest);
	cache_key_add(key, "firmware_vars", vars_digest);
	return 0;
}

static int add_smoke_files(struct cache_key *key, const char *data_dir, struct error *err)
{
	static const char *const names[] = {"facts.sh", "meta-data", "user-data"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CLEANUP_FREE char *path = str_format("%s/boot/smoke/%s", data_dir, names[i]);

		if (cache_key_add_file(key, names[i], path, err) < 0)
			return -1;
	}
	return 0;
}

static int make_key(struct cache_key **ret, struct cache *cache, const struct boot_options *o,
                    const char *sha256, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = cache_key_new("boot");
	CLEANUP_FREE char *qemu = tools_version(QEMU);
	CLEANUP_FREE char *cpu = o->kvm ? tools_cpu() : NULL;

	cache_key_add(key, "image", sha256);
	cache_key_add(key, "format", o->format);
	cache_key_add(key, "firmware", boot_firmware_name(o->firmware));
	cache_key_add(key, "window", o->window == WINDOW_REACHABLE ? "reachable" : "unreachable");
	cache_key_add_int(key, "bar_bytes", (int64_t)o->bar_bytes);
	cache_key_add_int(key, "memory_bytes", (int64_t)o->memory_bytes);
	cache_key_add_int(key, "timeout_s", o->timeout_s);
	cache_key_add_int(key, "early_only", o->early_only);
	cache_key_add_int(key, "driver", o->driver);
	cache_key_add(key, "qemu", qemu);
	cache_key_add(key, "kvm_cpu", cpu);
	if ((boot_firmware_is_uefi(o->firmware) &&
	     add_firmware(key, cache, o->firmware, err) < 0) ||
	    add_smoke_files(key, o->data_dir, err) < 0)
		return -1;
	*ret = STEAL(key);
	return 0;
}

/* The name is for a regular file of ours from an earlier run, or for nothing yet. */
static bool make_way(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT;
	return S_ISREG(st.st_mode) && unlink(path) == 0;
}

int boot_cache_get(struct cache *cache, const struct boot_options *o, const char *sha256,
                   struct boot_facts *ret, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = NULL;
	CLEANUP_ERROR struct error unusable = ERROR_INIT;
	CLEANUP_FREE char *console = boot_console_path(o);
	json_t *facts = NULL;
	int found;

	if (make_key(&key, cache, o, sha256, err) < 0)
		return -1;
	if (!make_way(console))
		return 0;
	found = cache_get(cache, key, console, &facts, err);
	if (found == 1 && boot_facts_from_json(ret, facts, &unusable) < 0) {
		log_warn(o->log, "a remembered boot cannot be used: %s, ignoring",
		         unusable.message);
		found = 0;
	}
	json_decref(facts);
	return found;
}

void boot_cache_put(struct cache *cache, const struct boot_options *o, const char *sha256,
                    const struct boot_facts *facts)
{
	CLEANUP_CACHE_KEY struct cache_key *key = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *console = boot_console_path(o);
	json_t *json;

	if (make_key(&key, cache, o, sha256, &err) < 0) {
		log_warn(o->log, "cannot remember a boot: %s, ignoring", err.message);
		return;
	}
	json = boot_facts_json(facts);
	cache_put(cache, key, console, json);
	json_decref(json);
}
