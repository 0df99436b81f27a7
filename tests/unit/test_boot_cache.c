/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/boot-cache.h"
#include "tests/unit/tap.h"

#define SHA_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SHA_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static struct boot_facts sample(void)
{
	struct boot_facts f = {
		.firmware = FIRMWARE_UEFI_SECURE_BOOT,
		.window = WINDOW_REACHABLE,
		.early_only = true,
		.ended = str_copy("the early facts are in"),
		.kernel_started = FACT_YES,
		.userspace = FACT_NO,
		.secure_boot = FACT_YES,
		.lockdown = str_copy("integrity"),
		.refusal = str_copy("GRUB does not start the kernel"),
		.bar_assigned = FACT_NO,
		.bar_message = str_copy("BAR 2: can't assign; no space"),
		.nouveau_loaded = FACT_YES,
		.card_reads = 2,
		.cmdline = str_copy("root=UUID=1 ro \"quoted\""),
		.seconds = 41.5,
	};

	strv_add(&f.failed_units, "a.service");
	strv_add(&f.unseen, "machine_id: \xc3\xa4");
	f.driver = (struct boot_driver){.asked = true,
	                                .loaded = FACT_NO,
	                                .no_card = FACT_YES,
	                                .exit_code = str_copy("1"),
	                                .version = str_copy("535.309.01")};
	strv_add(&f.driver.kernel_lines, "NVRM: No NVIDIA GPU found.");
	return f;
}

static char *as_text(const struct boot_facts *f)
{
	json_t *json = boot_facts_json(f);
	char *text = json_dumps(json, JSON_COMPACT);

	json_decref(json);
	return text;
}

static void test_facts_and_back(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct boot_facts f = sample(), back = {0};
	json_t *json = boot_facts_json(&f);
	CLEANUP_FREE char *before = as_text(&f);
	CLEANUP_FREE char *after = NULL;
	const char *key;
	json_t *value;
	size_t wrong = 0, keys = 0;

	check(boot_facts_from_json(&back, json, &err) == 0, "facts are read back from their JSON");
	after = as_text(&back);
	check(strcmp(before, after) == 0, "and are the same");
	boot_facts_free(&back);
	json_object_foreach(json, key, value)
	{
		json_t *broken = json_copy(json);
		CLEANUP_ERROR struct error why = ERROR_INIT;

		json_object_set_new(broken, key, json_object());
		wrong +=
			boot_facts_from_json(&back, broken, &why) == 0 || !strstr(why.message, key);
		keys++;
		json_decref(broken);
	}
	check(keys > 20 && wrong == 0, "a field of another type is refused by its name");
	json_decref(json);
	boot_facts_free(&f);
	f = (struct boot_facts){0};
	json = boot_facts_json(&f);
	check(json_is_null(json_object_get(json, "driver")) &&
	              boot_facts_from_json(&back, json, &err) == 0 && !back.driver.asked,
	      "no driver was asked for: null, and back");
	boot_facts_free(&back);
	json_decref(json);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	close(fd);
}

struct scene {
	char *dir, *console, *data;
	struct cache *cache;
	struct boot_options options;
};

static void scene_make(struct scene *s)
{
	static const char *const names[] = {"facts.sh", "meta-data", "user-data"};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char dir[] = "/tmp/test-boot-cache-XXXXXX";

	if (!mkdtemp(dir))
		abort();
	s->dir = str_copy(dir);
	s->console = str_format("%s/console.log", dir);
	s->data = str_format("%s/data/boot/smoke", dir);
	for (char *slash = strchr(s->data + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(s->data, 0755);
		*slash = '/';
	}
	mkdir(s->data, 0755);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", s->data, names[i]);

		write_text(path, names[i]);
	}
	*strstr(s->data, "/boot/smoke") = '\0';
	if (cache_open(&s->cache, dir, 0, false, NULL, &err) < 0)
		abort();
	s->options = (struct boot_options){.image = "image",
	                                   .format = "qcow2",
	                                   .bar_bytes = 1024,
	                                   .early_only = true,
	                                   .work_dir = s->dir,
	                                   .data_dir = s->data};
}

static void scene_free(struct scene *s)
{
	CLEANUP_FREE char *command = str_format("rm -rf %s", s->dir);

	cache_close(s->cache);
	if (system(command) != 0)
		abort();
	free(s->dir);
	free(s->console);
	free(s->data);
}

/* Whether the cache has this boot; -1 for an error. */
static int has(const struct scene *s, const struct boot_options *o, const char *sha256)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct boot_facts facts = {0};
	int found = boot_cache_get(s->cache, o, sha256, &facts, &err);

	boot_facts_free(&facts);
	return found;
}

static void test_each_input(struct scene *s)
{
	struct boot_options o = s->options;
	CLEANUP_FREE char *script = str_format("%s/boot/smoke/facts.sh", s->data);

	check(has(s, &o, SHA_B) == 0, "another image was not booted before");
	o.format = "raw";
	check(has(s, &o, SHA_A) == 0, "nor one of another format");
	o = s->options;
	o.window = WINDOW_REACHABLE;
	check(has(s, &o, SHA_A) == 0, "nor one in another window");
	o = s->options;
	o.bar_bytes = 2048;
	check(has(s, &o, SHA_A) == 0, "nor one with another BAR");
	o = s->options;
	o.memory_bytes = 1;
	check(has(s, &o, SHA_A) == 0, "nor one with another memory size");
	o = s->options;
	o.timeout_s = 1;
	check(has(s, &o, SHA_A) == 0, "nor one with another deadline");
	o = s->options;
	o.early_only = false;
	check(has(s, &o, SHA_A) == 0, "nor one to its end");
	o = s->options;
	o.driver = true;
	check(has(s, &o, SHA_A) == 0, "nor one whose driver was not tried");
	o = s->options;
	o.kvm = true;
	check(has(s, &o, SHA_A) == 0, "nor one under KVM");
	write_text(script, "another");
	check(has(s, &s->options, SHA_A) == 0, "nor one with other scripts of ours");
	write_text(script, "facts.sh");
	check(has(s, &s->options, SHA_A) == 1, "but the same is there all the time");
}

static bool host_has(enum boot_firmware firmware)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *code = NULL;
	CLEANUP_FREE char *vars = NULL;

	return boot_recipe_firmware(firmware, &code, &vars, &err) == 0;
}

/* The key holds the firmware's files, so a host must have them. */
static void test_each_firmware(void)
{
	struct scene s = {0};
	struct boot_facts f = sample();
	struct boot_options o;

	scene_make(&s);
	o = s.options;
	write_text(s.console, "console\n");
	boot_cache_put(s.cache, &o, SHA_A, &f);
	o.firmware = FIRMWARE_UEFI;
	if (!host_has(FIRMWARE_UEFI)) {
		check(true, "a boot with BIOS is none with UEFI # SKIP no UEFI firmware");
	} else {
		check(has(&s, &o, SHA_A) == 0, "a boot with BIOS is none with UEFI");
		write_text(s.console, "console\n");
		boot_cache_put(s.cache, &o, SHA_A, &f);
		check(has(&s, &o, SHA_A) == 1, "one with UEFI is remembered");
		o.firmware = FIRMWARE_UEFI_SECURE_BOOT;
		if (host_has(FIRMWARE_UEFI_SECURE_BOOT))
			check(has(&s, &o, SHA_A) == 0, "but not as one with Secure Boot");
		else
			check(true, "but not with Secure Boot # SKIP no firmware with its keys");
	}
	boot_facts_free(&f);
	scene_free(&s);
}

static void test_put_and_get(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct scene s = {0};
	struct boot_facts f = sample(), back = {0};
	CLEANUP_FREE char *before = as_text(&f);
	CLEANUP_FREE char *after = NULL;
	struct stat st;

	scene_make(&s);
	write_text(s.console, "console\n");
	check(has(&s, &s.options, SHA_A) == 0, "an empty cache has no boot");
	write_text(s.console, "console\n");
	boot_cache_put(s.cache, &s.options, SHA_A, &f);
	unlink(s.console);
	check(boot_cache_get(s.cache, &s.options, SHA_A, &back, &err) == 1, "a boot is remembered");
	after = as_text(&back);
	check(strcmp(before, after) == 0, "with its facts");
	check(stat(s.console, &st) == 0 && st.st_size == 8, "and its console");
	test_each_input(&s);
	boot_facts_free(&back);
	boot_facts_free(&f);
	scene_free(&s);
}

int main(void)
{
	test_facts_and_back();
	test_put_and_get();
	test_each_firmware();
	return tap_done();
}
