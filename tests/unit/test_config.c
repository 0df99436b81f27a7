/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration reader: what it accepts, and above all what it refuses and how it says so. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/config.h"
#include "tests/unit/tap.h"

static const struct config_key keys[] = {
	{"name", CONFIG_STRING, NULL},
	{"base.url", CONFIG_STRING, NULL},
	{"base.sha256", CONFIG_STRING, NULL},
	{"boot.firmware", CONFIG_STRING, "bios|uefi|both"},
	{"boot.memory", CONFIG_SIZE, NULL},
	{"boot.test", CONFIG_BOOL, NULL},
	{"boot.qemu.cpus", CONFIG_UINT, NULL},
	{"cmdline.add", CONFIG_LIST, NULL},
	{"stages", CONFIG_LIST, "modprobe|cmdline|seal"},
	{0},
};

static void write_text(const char *name, const char *text, size_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, size) != (ssize_t)size)
		printf("Bail out! cannot write %s\n", name);
	if (fd >= 0)
		close(fd);
}

static struct config *read_text(const char *text, size_t size, struct error *err)
{
	struct config *config = NULL;

	write_text("c.yaml", text, size);
	config_read(&config, "c.yaml", keys, err);
	return config;
}

static void test_whole_file(void)
{
	static const char text[] = "# a comment\n"
				   "name: gpu-base\n"
				   "base:\n"
				   "  url: https://example.com/a.qcow2  # with a comment\n"
				   "boot:\n"
				   "  firmware: uefi\n"
				   "  memory: 2G\n"
				   "  test: false\n"
				   "  qemu: {cpus: 4}\n"
				   "cmdline:\n"
				   "  add:\n"
				   "    - pci=realloc\n"
				   "    - \"pci=nocrs\"\n"
				   "stages: [modprobe, seal]\n";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONFIG struct config *c = read_text(text, strlen(text), &err);
	const struct config_value *value;
	bool test = true;
	uint64_t memory = 0, cpus = 0;

	check(c != NULL, "reads a file with all kinds of values");
	if (!c) {
		printf("# %s\n", err.message);
		return;
	}
	check(c->count == 8, "finds each value once");
	check_str(config_string(c, "name"), "gpu-base", "gives a string");
	check_str(config_string(c, "base.url"), "https://example.com/a.qcow2",
	          "gives a nested string without its comment");
	check_str(config_string(c, "base.sha256"), NULL, "gives NULL for an absent key");
	check(config_bool(c, "boot.test", &test) && !test, "gives a boolean");
	check(config_size(c, "boot.memory", &memory) && memory == UINT64_C(2) << 30,
	      "gives a size in bytes");
	check(config_uint(c, "boot.qemu.cpus", &cpus) && cpus == 4,
	      "gives a number three levels down, in flow style");
	check(config_list(c, "cmdline.add") && config_list(c, "cmdline.add")->count == 2,
	      "gives a list in block style");
	check_str(config_list(c, "cmdline.add")->items[1], "pci=nocrs", "unquotes items");
	check(config_list(c, "stages") && config_list(c, "stages")->count == 2,
	      "gives a list in flow style");
	value = config_find(c, "boot.firmware");
	check(value && value->line == 6 && value->column == 13, "knows where a value stands");
	check(value && config_error(c, value, &err, "no OVMF for '%s'", "uefi") < 0 &&
	              error_exit_code(&err) == EXIT_USAGE,
	      "lets the caller refuse a value");
	check_str(err.message, "c.yaml:6:13: 'boot.firmware': no OVMF for 'uefi'",
	          "and names its place");
}

static void test_accepted(void)
{
	static const struct {
		const char *text, *key, *value, *what;
	} cases[] = {
		{"", "name", NULL, "an empty file"},
		{"# nothing\n", "name", NULL, "a file of comments"},
		{"---\n", "name", NULL, "an empty document"},
		{"{}\n", "name", NULL, "an empty mapping"},
		{"---\nname: a\n...\n", "name", "a", "document markers"},
		{"\xef\xbb\xbfname: a\n", "name", "a", "a byte order mark"},
		{"name: a\r\nboot:\r\n  firmware: bios\r\n", "boot.firmware", "bios", "CR LF"},
		{"name: 24.04\n", "name", "24.04", "a number as a string, unchanged"},
		{"name: 'true'\n", "name", "true", "a quoted word"},
		{"name: no\n", "name", "no", "the word no as a string"},
		{"name: \"\"\n", "name", "", "an empty string in quotes"},
		{"name: >-\n  folded\n  text\n", "name", "folded text", "folded text"},
		{"name: Stra\xc3\x9f"
	         "e\n",
	         "name",
	         "Stra\xc3\x9f"
	         "e",
	         "UTF-8"},
		{"boot: {memory: \"512M\"}\n", "boot.memory", "512M", "a quoted size"},
		{"stages: []\n", "stages", NULL, "an empty list"},
		{"boot: {}\n", "boot.test", NULL, "an empty section"},
		{"\"name\": a\n", "name", "a", "a quoted key"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_CONFIG struct config *c =
			read_text(cases[i].text, strlen(cases[i].text), &err);

		if (!check(c != NULL, "accepts %s", cases[i].what)) {
			printf("# %s\n", err.message);
			continue;
		}
		check_str(config_string(c, cases[i].key), cases[i].value, "and understands %s",
		          cases[i].what);
	}
}

static void refused(const char *text, size_t size, const char *words, const char *hint,
                    const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONFIG struct config *c = read_text(text, size, &err);
	bool good = !c && strstr(err.message, words) &&
	            (!hint || (err.hint && strstr(err.hint, hint))) &&
	            error_exit_code(&err) == EXIT_USAGE;

	if (!check(good, "refuses %s", what))
		printf("# got:  %s (hint: %s)\n# want: %s (hint: %s)\n",
		       c ? "no error" : err.message, err.hint ? err.hint : "none", words,
		       hint ? hint : "any");
}

static void test_refused(void)
{
	static const struct {
		const char *text, *words, *hint, *what;
	} cases[] = {
		{"nmae: a\n", "c.yaml:1:1: unknown key 'nmae'", "'name'", "a misspelt key"},
		{"name: a\nboot:\n  firmwear: bios\n", "c.yaml:3:3: unknown key 'boot.firmwear'",
	         "'boot.firmware'", "a misspelt nested key"},
		{"bot:\n  firmware: bios\n", "c.yaml:1:1: unknown key 'bot'", "'boot'",
	         "a misspelt section"},
		{"firmware: bios\n", "unknown key 'firmware'", "'boot.firmware'",
	         "a key outside its section"},
		{"boot.firmware: bios\n", "unknown key 'boot.firmware'", "one mapping inside",
	         "a dotted key"},
		{"xyzzyplugh: 1\n", "unknown key", NULL, "a key that resembles none"},
		{"name: a\nname: b\n", "c.yaml:2:1: 'name' is given twice, first in line 1", NULL,
	         "a key given twice"},
		{"boot: {test: true}\nboot: {memory: 1G}\n", "c.yaml:2:7: 'boot' is given twice",
	         NULL, "a section given twice"},
		{"boot:\n  test: yes\n", "c.yaml:2:9: 'boot.test' is 'yes'; expected true or false",
	         NULL, "yes as a boolean"},
		{"boot: {test: \"true\"}\n", "expected true or false", NULL, "a quoted boolean"},
		{"boot: {memory: lots}\n", "expected a size", NULL, "a word as a size"},
		{"boot: {memory: -1}\n", "expected a size", NULL, "a negative size"},
		{"boot: {memory: 99999999999T}\n", "expected a size", NULL, "a size of 2^76"},
		{"boot: {qemu: {cpus: 1.5}}\n", "expected a number", NULL, "a fraction"},
		{"boot: {firmware: efi}\n", "expected one of bios|uefi|both", NULL,
	         "a value that is not allowed"},
		{"stages: [modprobe, sael]\n", "c.yaml:1:20: 'stages' is 'sael'", NULL,
	         "an item that is not allowed"},
		{"stages: seal\n", "'stages' is a single value; expected a list", NULL,
	         "a scalar for a list"},
		{"stages: {a: b}\n", "'stages' is a mapping", NULL, "a mapping for a list"},
		{"stages: [[seal]]\n", "an item of 'stages'", NULL, "a list in a list"},
		{"name: [a]\n", "'name' is a list", NULL, "a list for a string"},
		{"name: {a: b}\n", "'name' is a mapping", NULL, "a mapping for a string"},
		{"name:\n", "'name' has no value", "remove the line", "a key without value"},
		{"name: ~\n", "'name' has no value", NULL, "null"},
		{"stages:\n", "'stages' has no value", NULL, "a list without value"},
		{"stages: [seal, ]\nstages2:\n", "unknown key", NULL, "a key after a list"},
		{"boot: bios\n", "'boot' is a section", NULL, "a scalar for a section"},
		{"boot:\n", "'boot' is a section", NULL, "a section without content"},
		{"- name\n", "c.yaml:1:1: the file must be a mapping", "name: value",
	         "a list at the top"},
		{"name\n", "the file must be a mapping", NULL, "a scalar at the top"},
		{"name: &a b\n", "anchors", "quotes", "an anchor"},
		{"name: *a\n", "anchors", NULL, "an alias"},
		{"name: !!str a\n", "anchors", NULL, "a tag"},
		{"boot: &x {test: true}\n", "anchors", NULL, "an anchored section"},
		{"stages: &x [seal]\n", "anchors", NULL, "an anchored list"},
		{"<<: {name: a}\n", "unknown key '<<'", NULL, "a merge key"},
		{"? [a]\n: b\n", "a key must be", NULL, "a list as a key"},
		{"boot:\n\tfirmware: bios\n", "c.yaml:2:1", "spaces", "tabs as indentation"},
		{"name: a\n---\nname: b\n", "c.yaml:2:1: a second document", NULL,
	         "a second document"},
		{"name: \"a\n", "c.yaml:", NULL, "an open quote"},
		{"name: a: b\n", "c.yaml:1:8", NULL, "a mapping on one line"},
		{"name: [a\n", "c.yaml:", NULL, "an open bracket"},
		{"name: |\n  a\n  b\n", "more than one line", NULL, "text of several lines"},
		{"name: \"a\\0b\"\n", "control character", NULL, "an escaped NUL"},
		{"name: \"\\e[31m\"\n", "control character", NULL, "an escape sequence"},
		{"name: \xff\xfe\n", "not valid UTF-8", "UTF-8", "bytes that are not UTF-8"},
		{"name: caf\xe9\n", "not valid UTF-8", "UTF-8", "Latin-1"},
		{"name: \xed\xa0\x80\n", "not valid UTF-8", NULL, "a surrogate"},
		{"%YAML 9.9\n---\nname: a\n", "c.yaml:1:1", NULL, "another YAML version"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(cases[i].text, strlen(cases[i].text), cases[i].words, cases[i].hint,
		        cases[i].what);
	refused("\xff\xfen\0:\0a\0\n\0", 10, "not a text file", NULL, "UTF-16");
}

static void test_bounds(void)
{
	size_t size = 1048576;
	CLEANUP_FREE char *big = mem_alloc(size + 2);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONFIG struct config *c = NULL;

	memset(big, '#', size + 1);
	c = read_text(big, size, &err);
	check(c && c->count == 0, "accepts a file of 1 MiB");
	refused(big, size + 1, "more than 1 MiB", NULL, "one byte more");
	memset(big, '[', size);
	memcpy(big, (const char[6]){'n', 'a', 'm', 'e', ':', ' '}, 6);
	refused(big, size, "'name' is a list", NULL, "a million brackets");
	memset(big, '{', size);
	refused(big, size, "a key must be", NULL, "a million braces");
	memset(big, ' ', size);
	memcpy(big, (const char[9]){'s', 't', 'a', 'g', 'e', 's', ':', ' ', '['}, 9);
	for (size_t i = 9; i + 6 < size; i += 5)
		memcpy(big + i, (const char[5]){'s', 'e', 'a', 'l', ','}, 5);
	refused(big, size, "more than 4096 items", NULL, "a list without end");
}

static void unreadable(const char *path, const char *words, const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONFIG struct config *c = NULL;

	if (!check(config_read(&c, path, keys, &err) < 0 && strstr(err.message, words) &&
	                   strstr(err.message, path) && error_exit_code(&err) == EXIT_USAGE,
	           "refuses %s", what))
		printf("# got: %s\n", c ? "no error" : err.message);
}

static void test_files(void)
{
	if (mkfifo("fifo.yaml", 0600) < 0)
		printf("Bail out! mkfifo\n");
	alarm(20);
	unreadable("fifo.yaml", "not a regular file", "a FIFO without hanging");
	alarm(0);
	unreadable("missing.yaml", "No such file", "a missing file");
	unreadable(".", "not a regular file", "a directory");
}

static void test_fuzz(void)
{
	static const char start[] = "name: a\nboot: {test: true, memory: 1G}\nstages: [seal]\n"
				    "cmdline:\n  add:\n    - \"x=1\"\n";
	static const char bytes[] = "&*!|>'\"%@`{}[],#?:-\t\n \\\xff\xc3\x80~<=.";
	uint64_t state = 99;
	size_t refused_count = 0, rounds = 3000;

	for (size_t i = 0; i < rounds; i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_FREE char *text = mem_copy(start, strlen(start));
		CLEANUP_CONFIG struct config *c = NULL;

		for (size_t j = 0; j < 1 + i % 5; j++) {
			state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
			text[(state >> 33) % strlen(start)] = bytes[(state >> 20) % strlen(bytes)];
		}
		c = read_text(text, strlen(start), &err);
		refused_count += !c;
		if (!c && !err.message)
			check(false, "says why it refuses '%s'", text);
	}
	check(refused_count > rounds / 4 && refused_count < rounds,
	      "survives %zu damaged files (%zu of them refused)", rounds, refused_count);
}

int main(void)
{
	char dir[] = "/tmp/test_config.XXXXXX";

	if (!mkdtemp(dir) || chdir(dir) < 0)
		return 1;
	test_whole_file();
	test_accepted();
	test_refused();
	test_bounds();
	test_files();
	test_fuzz();
	unlink("c.yaml");
	unlink("fifo.yaml");
	if (chdir("/") == 0)
		rmdir(dir);
	return tap_done();
}
