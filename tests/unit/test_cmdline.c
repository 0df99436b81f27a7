/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "builder/cmdline.h"
#include "builder/proc.h"
#include "tests/unit/tap.h"

#define DROPIN "boot/grub.d/zz-gpuimg.cfg"
#define OURS   "pci=nocrs pci=realloc module_blacklist=nouveau,nova_core,nova_drm"

static struct cmdline_edit make_edit(const char *add, const char *remove)
{
	return (struct cmdline_edit){cmdline_split(add), cmdline_split(remove)};
}

static void edit_free(struct cmdline_edit *e)
{
	strv_free(&e->add);
	strv_free(&e->remove);
}

#define CLEANUP_EDIT CLEANUP(edit_free)

static char *applied(const char *line, const char *add, const char *remove)
{
	CLEANUP_STRV struct strv tokens = cmdline_split(line);
	CLEANUP_EDIT struct cmdline_edit edit = make_edit(add, remove);

	cmdline_apply(&tokens, &edit);
	return cmdline_join(&tokens);
}

static void gives(const char *line, const char *add, const char *remove, const char *want,
                  const char *what)
{
	CLEANUP_FREE char *once = applied(line, add, remove);
	CLEANUP_FREE char *twice = applied(once, add, remove);

	check_str(once, want, "%s", what);
	check_str(twice, once, "%s: twice is the same as once", what);
}

static void test_split(void)
{
	CLEANUP_STRV struct strv v =
		cmdline_split("  a dyndbg=\"file x +p\"\t\"b c\"  d\" e\"f \"open to the end");
	CLEANUP_STRV struct strv none = cmdline_split(" \n ");
	CLEANUP_FREE char *line = cmdline_join(&v);
	CLEANUP_FREE char *endless = mem_alloc(100001);
	CLEANUP_STRV struct strv cut = {0};

	check(v.count == 5, "a line is split at blanks outside of double quotes");
	check_str(line, "a dyndbg=\"file x +p\" \"b c\" d\" e\"f \"open to the end",
	          "quotes are kept and an open one reaches to the end");
	check(none.count == 0, "a blank line has no tokens");
	memset(endless, 'x', 100000);
	cut = cmdline_split(endless);
	check(cut.count == 1 && strlen(cut.items[0]) == 16384, "an endless line is cut");
}

static void test_lookup(void)
{
	CLEANUP_STRV struct strv v =
		cmdline_split("some-name=1 some_name=2 quiet x=\"a b\" \"y=c d\" e= -- quiet x=2");
	CLEANUP_FREE char *last = cmdline_value(&v, "some_name"),
			  *bare = cmdline_value(&v, "quiet");
	CLEANUP_FREE char *quoted = cmdline_value(&v, "x"), *whole = cmdline_value(&v, "y");
	CLEANUP_FREE char *none = cmdline_value(&v, "absent"), *empty = cmdline_value(&v, "e");

	check_str(last, "2", "the last value counts, - and _ are one in names");
	check_str(bare, "", "a bare name has the empty value");
	check_str(quoted, "a b", "quotes around a value are taken off, init's part is not read");
	check_str(whole, "c d", "quotes around the whole parameter are taken off");
	check_str(empty, "", "an empty value is one");
	check(!none, "what is absent has no value");
	check(cmdline_count(&v, "quiet") == 1, "what stands after -- is not counted");
	check(cmdline_count(&v, "some-name=2") == 1, "a count compares the value exactly");
	check(cmdline_count(&v, "x=a b") == 1, "a count compares without quotes");
	check(cmdline_count(&v, "some-name") == 0, "a bare name is not the name with a value");
}

static void pci_is(const char *line, bool nocrs, bool use_crs, int on)
{
	CLEANUP_STRV struct strv v = cmdline_split(line);
	struct cmdline_pci state = cmdline_pci_state(&v);

	check(state.nocrs == nocrs && state.use_crs == use_crs && state.realloc == on,
	      "pci state of '%s': nocrs %d, use_crs %d, realloc %d", line, nocrs, use_crs, on);
}

static void test_pci_state(void)
{
	pci_is("quiet", false, false, -1);
	pci_is("pci=nocrs pci=realloc", true, false, 1);
	pci_is("pci=noaer,nocrs,realloc=on", true, false, 1);
	pci_is("pci=\"nocrs,realloc\"", true, false, 1);
	pci_is("pci=realloc pci=realloc=off", false, false, 0);
	pci_is("pci=realloc=off,realloc", false, false, 1);
	/* both orders seen on Linux 6.1: "Ignoring host bridge windows from ACPI" */
	pci_is("pci=nocrs pci=use_crs", true, true, -1);
	pci_is("pci=use_crs,nocrs", true, true, -1);
	pci_is("pci=nocrs pci=conf1", false, false, -1);
	pci_is("pci=conf1 pci=nocrs", true, false, -1);
	pci_is("pci pci=nocrsx nocrs pci=,", false, false, -1);
	pci_is("quiet -- pci=nocrs", false, false, -1);
}

static void names_are(const char *line, const char *want)
{
	CLEANUP_STRV struct strv v = cmdline_split(line), names = cmdline_module_blacklist(&v);
	CLEANUP_FREE char *joined = strv_join(&names, " ");

	check_str(joined, want, "the kernel's own blacklist of '%s' is '%s'", line, want);
}

static void test_module_blacklist(void)
{
	names_are("quiet", "");
	names_are("module_blacklist=a,b module-blacklist=c", "c");
	names_are("module_blacklist=a,,b, -- module_blacklist=c", "a b");
	names_are("module_blacklist=nova-core", "nova-core");
	names_are("module_blacklist=a module_blacklist=", "");
	names_are("module_blacklist=a module_blacklist", "a");
}

static void does_hold(const char *line, const char *token)
{
	CLEANUP_STRV struct strv v = cmdline_split(line);
	CLEANUP_FREE char *why = NULL;

	check(cmdline_holds(&v, token, &why) && !why, "'%s' holds '%s'", line, token);
}

static void lacks(const char *line, const char *token, const char *want)
{
	CLEANUP_STRV struct strv v = cmdline_split(line);
	CLEANUP_FREE char *why = NULL;

	check(!cmdline_holds(&v, token, NULL), "'%s' does not hold '%s'", line, token);
	cmdline_holds(&v, token, &why);
	check_str(why, want, "and says why: %s", want);
}

static void test_holds(void)
{
	does_hold("pci=nocrs,realloc=on", "pci=realloc");
	does_hold("pci=realloc pci=nocrs", "pci=nocrs,realloc");
	does_hold("pci=nocrs pci=use_crs", "pci=nocrs");
	does_hold("pci=noaer,nomsi", "pci=nomsi");
	does_hold("module_blacklist=b,a", "module_blacklist=a");
	does_hold("modprobe.blacklist=a modprobe.blacklist=nova-core",
	          "modprobe.blacklist=nova_core,a");
	does_hold("console=ttyS0 console=tty0", "console=ttyS0");
	does_hold("foo=1 foo=2", "foo=2");
	does_hold("a-b=\"c d\"", "a_b=c d");
	does_hold("quiet=1 quiet", "quiet");

	lacks("quiet", "pci=nocrs", "'pci=nocrs' is missing");
	lacks("pci=realloc pci=realloc=off", "pci=realloc", "'pci=realloc=off' comes later");
	lacks("pci=realloc=off", "pci=realloc", "'pci=realloc=off' is set instead");
	lacks("pci=use_crs", "pci=nocrs", "'pci=use_crs' is set instead");
	lacks("pci=nocrs,off", "pci=nocrs", "'pci=off' comes later");
	lacks("pci=use_crs,nocrs", "pci=use_crs", "'pci=nocrs' wins over it");
	lacks("pci=nocrs", "pci=nocrs,noaer", "'pci=noaer' is missing");
	lacks("module_blacklist=a module_blacklist=b", "module_blacklist=a",
	      "the last 'module_blacklist=' lacks 'a'");
	lacks("module_blacklist=nova-core", "module_blacklist=nova_core",
	      "the last 'module_blacklist=' lacks 'nova_core'");
	lacks("", "module_blacklist=a", "there is no 'module_blacklist='");
	lacks("foo=1 foo=2", "foo=1", "'foo=2' comes later");
	lacks("foo=2", "foo=1", "'foo=2' is set instead");
	lacks("console=tty0", "console=ttyS0", "'console=ttyS0' is missing");
	lacks("a -- quiet", "quiet", "'quiet' is missing");
}

static void opposes(const char *line, const char *token, const char *want)
{
	CLEANUP_STRV struct strv v = cmdline_split(line);
	CLEANUP_FREE char *other = cmdline_contradiction(&v, token);

	check_str(other, want, "against '%s' in '%s': %s", token, line, want ? want : "nothing");
}

static void test_contradiction(void)
{
	opposes("pci=nocrs pci=use_crs", "pci=nocrs", "pci=use_crs");
	opposes("pci=realloc=off pci=realloc", "pci=realloc", "pci=realloc=off");
	opposes("pci=nocrs,realloc", "pci=nocrs,realloc", NULL);
	opposes("foo=2 foo=1", "foo=1", "foo=2");
	opposes("console=tty0 console=ttyS0", "console=ttyS0", NULL);
	opposes("module_blacklist=b", "module_blacklist=a", NULL);
}

static void test_add(void)
{
	gives("", OURS, "", OURS, "an empty line gets all");
	gives("ro quiet", OURS, "", "ro quiet " OURS, "parameters go to the end");
	gives("pci=nocrs,realloc a", OURS, "",
	      "pci=nocrs,realloc a module_blacklist=nouveau,nova_core,nova_drm",
	      "pci options that hold are not added");
	gives("pci=noaer", "pci=noaer,nocrs", "", "pci=noaer pci=nocrs",
	      "only the pci options that are missing are added");
	gives("pci=realloc=off", "pci=realloc", "", "pci=realloc=off pci=realloc",
	      "an option that is off is turned on by a later one");
	gives("pci=nocrs", "pci=use_crs", "", "pci=nocrs pci=use_crs",
	      "use_crs is added beside nocrs, once");
	gives("a module_blacklist=x b", OURS, "",
	      "a module_blacklist=x,nouveau,nova_core,nova_drm b pci=nocrs pci=realloc",
	      "module names are merged into the list that is there");
	gives("module-blacklist=x,y m module_blacklist=\"y,z\"", "module_blacklist=z,w", "",
	      "m module_blacklist=x,y,z,w", "lists given twice are joined where the last stands");
	gives("module_blacklist=x module_blacklist", "module_blacklist=w", "",
	      "module_blacklist=x,w module_blacklist", "a bare name is no list");
	gives("module_blacklist=x module_blacklist=w", "module_blacklist=w", "",
	      "module_blacklist=x,w", "also if the last one has all names");
	gives("modprobe.blacklist=nova-core", "modprobe.blacklist=nova_core,nouveau", "",
	      "modprobe.blacklist=nova-core,nouveau", "kmod's list is merged, - and _ being one");
	gives("foo=1 foo=2", "foo=1", "", "foo=1 foo=2 foo=1", "the last value counts");
	gives("console=ttyS0 console=tty0", "console=ttyS0", "", "console=ttyS0 console=tty0",
	      "a console that is there is not added again");
	gives("a -- b", "c pci=nocrs", "", "a c pci=nocrs -- b", "init's part stays behind");
}

static void test_remove(void)
{
	gives("a quiet b quiet=1", "", "quiet", "a b", "a name is removed with any value");
	gives("console=tty0 console=\"ttyS0\" c", "", "console=ttyS0", "console=tty0 c",
	      "a name with value is removed with that value only");
	gives("pci=use_crs,noaer pci=use_crs", "", "pci=use_crs", "pci=noaer",
	      "a pci option is taken out of its list");
	gives("pci=a,b,c", "", "pci=c,a", "pci=b", "several pci options are taken out");
	gives("pci=use_crsx pci", "", "pci=use_crs", "pci=use_crsx pci",
	      "other pci options stay as they are");
	gives("pci=\"a,b\" some-name=1", "", "pci=c some_name", "pci=\"a,b\"",
	      "what is not edited keeps its quotes");
	gives("module_blacklist=a", "module_blacklist=b", "module_blacklist", "module_blacklist=b",
	      "removing comes before adding");
	gives("a -- a", "", "a", "-- a", "init's part is not edited");
	gives("", "", "a", "", "nothing is removed from nothing");
}

static void test_check_token(void)
{
	static const char *const good[] = {"pci=nocrs", "quiet",        "dyndbg=\"file x.c +p\"",
	                                   "8250.x=1",  "a=b\"c; d\"e", "nfsroot=1.2.3.4:/x,v3"};
	static const char *const bad[] = {"",           "a b",    "a=\"b",  "a=$x",  "a=`x`",
	                                  "a=b\\c",     "a='b'",  "a=b\nc", "a;b",   "a|b",
	                                  "a=\"$b\"",   "--",     "#a",     "=b",    "\"a=b\"",
	                                  "a=\xc3\xa4", "a=\x7f", "a{b}",   "a&b>c", "a\tb"};
	CLEANUP_FREE char *endless = mem_alloc(2001);
	CLEANUP_ERROR struct error err = ERROR_INIT;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		check(cmdline_check_token(good[i], &err) == 0, "'%s' may be added", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CLEANUP_ERROR struct error e = ERROR_INIT;
		int r = cmdline_check_token(bad[i], &e);

		check(r < 0 && e.code == EXIT_USAGE && e.hint,
		      "unfit parameter %zu is refused with a hint", i);
	}
	memset(endless, 'x', 2000);
	check(cmdline_check_token(endless, &err) < 0, "an endless parameter is refused");
}

/* ---- the drop-in for GRUB, boot/grub.d, does the same in shell ---- */

static char *read_dropin(void)
{
	CLEANUP_CLOSE int fd = open(DROPIN, O_RDONLY | O_CLOEXEC);
	char *text = mem_alloc(65536);
	ssize_t n = fd >= 0 ? read(fd, text, 65535) : -1;

	if (!check(n > 0, "%s can be read (tests run from the source tree)", DROPIN))
		exit(tap_done());
	return text;
}

/* Writes the drop-in with other values, as the builder does, to a file of its own. */
static void render(const char *path, const char *add, const char *remove, const char *names)
{
	CLEANUP_FREE char *text = read_dropin();
	CLEANUP_FCLOSE FILE *f = fopen(path, "we");
	char *rest = text, *line;

	if (!check(f != NULL, "the drop-in can be rendered"))
		exit(tap_done());
	while ((line = strsep(&rest, "\n")) != NULL) {
		if (str_starts(line, "gpuimg_add='"))
			fprintf(f, "gpuimg_add='%s'\n", add);
		else if (str_starts(line, "gpuimg_remove='"))
			fprintf(f, "gpuimg_remove='%s'\n", remove);
		else if (str_starts(line, "gpuimg_blacklist='"))
			fprintf(f, "gpuimg_blacklist='%s'\n", names);
		else
			fprintf(f, "%s\n", line);
	}
}

/* Both variables after the drop-in ran in that shell. */
static bool run_dropin(const char *shell, const char *path, const char *linux_line,
                       const char *default_line, struct strv *ret_linux, struct strv *ret_default)
{
	static const char script[] = "set -e; GRUB_CMDLINE_LINUX=$1; "
				     "GRUB_CMDLINE_LINUX_DEFAULT=$2; . \"$3\"; "
				     "printf '%s\\n%s' \"$GRUB_CMDLINE_LINUX\" "
				     "\"$GRUB_CMDLINE_LINUX_DEFAULT\"";
	const char *const argv[] = {shell,      "-c",         script, "sh",
	                            linux_line, default_line, path,   NULL};
	struct proc_options options = {.timeout_ms = 20000};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	char *newline;

	if (proc_run(argv, &options, &out, 65536, &err) < 0 || !(newline = strchr(out, '\n'))) {
		check(false, "%s runs the drop-in: %s", shell, err.message ? err.message : out);
		return false;
	}
	*newline = '\0';
	*ret_linux = cmdline_split(out);
	*ret_default = cmdline_split(newline + 1);
	return true;
}

/* What a line comes to: everything that a node could tell apart, sorted. */
static char *effect(const struct strv *tokens)
{
	struct cmdline_pci pci = cmdline_pci_state(tokens);
	CLEANUP_STRV struct strv names = cmdline_module_blacklist(tokens), others = {0};
	CLEANUP_FREE char *joined_names = NULL, *joined = NULL;

	strv_sort(&names);
	for (size_t i = 0; i < tokens->count; i++)
		if (!str_starts(tokens->items[i], "module"))
			strv_add(&others, tokens->items[i]);
	strv_sort(&others);
	joined_names = strv_join(&names, ",");
	joined = strv_join(&others, " ");
	return str_format("nocrs=%d use_crs=%d realloc=%d block=%s %s", pci.nocrs, pci.use_crs,
	                  pci.realloc, joined_names, joined);
}

static void agree(const char *shell, const char *path, const struct cmdline_edit *edit,
                  const char *linux_line, const char *default_line)
{
	CLEANUP_FREE char *line = str_format("%s %s", linux_line, default_line);
	CLEANUP_STRV struct strv want = cmdline_split(line), got = {0}, got_default = {0};
	CLEANUP_FREE char *want_effect = NULL, *got_effect = NULL;
	size_t held = 0;

	if (!run_dropin(shell, path, linux_line, default_line, &got, &got_default))
		return;
	for (size_t i = 0; i < edit->add.count; i++)
		held += cmdline_holds(&got, edit->add.items[i], NULL);
	check(held == edit->add.count, "%s, '%s' + '%s': the recovery entry holds all", shell,
	      linux_line, default_line);
	strv_add_all(&got, &got_default);
	cmdline_apply(&want, edit);
	want_effect = effect(&want);
	got_effect = effect(&got);
	check_str(got_effect, want_effect, "%s, '%s' + '%s': the same effect as cmdline_apply()",
	          shell, linux_line, default_line);
}

static void test_agreement(const char *shell, const char *path)
{
	static const char *const lines[][2] = {
		{"", ""},
		{"", "quiet splash console=tty1 console=ttyS0"},
		{"net.ifnames=0", "pci=nocrs quiet pci=realloc"},
		{"pci=nocrs,realloc=on", ""},
		{"pci=realloc=off pci=use_crs,noaer", "quiet"},
		{"a pci=realloc,nocrs -- b", ""},
		{"module_blacklist=x,nouveau a", "b"},
		{"a", "module_blacklist=x b"},
		{"module_blacklist=x", "module-blacklist=y,x"},
		{"dyndbg=\"file x +p\" gone=1 gone", "\"y=c d\" gone=\"1\" pci=gone,noaer"},
		{"foo=1 foo=2 * ?", "console=tty0"},
		{"gone gone=2", "pci=use_crs"},
	};
	CLEANUP_EDIT struct cmdline_edit edit = make_edit(OURS " foo=1", "gone pci=gone");

	if (!proc_have(shell)) {
		check(true, "%s agrees # SKIP there is no %s on this host", shell, shell);
		return;
	}
	render(path, "pci=nocrs pci=realloc foo=1", "gone pci=gone", "nouveau,nova_core,nova_drm");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		agree(shell, path, &edit, lines[i][0], lines[i][1]);
}

/* The drop-in takes nothing away by itself; the proof has to see what comes of it. */
static void test_conflict(const char *path)
{
	CLEANUP_STRV struct strv tokens = {0}, rest = {0};
	CLEANUP_FREE char *why = NULL;

	render(path, "pci=nocrs pci=realloc", "", "nouveau");
	if (!run_dropin("sh", path, "", "quiet pci=realloc=off", &tokens, &rest))
		return;
	strv_add_all(&tokens, &rest);
	check(!cmdline_holds(&tokens, "pci=realloc", &why), "a base's realloc=off is seen");
	check_str(why, "'pci=realloc=off' comes later", "and told");
}

int main(void)
{
	char dir[] = "/tmp/test_cmdline.XXXXXX";
	CLEANUP_FREE char *path = NULL;

	test_split();
	test_lookup();
	test_pci_state();
	test_module_blacklist();
	test_holds();
	test_contradiction();
	test_add();
	test_remove();
	test_check_token();
	if (!check(mkdtemp(dir) != NULL, "there is a place for the rendered drop-in"))
		return tap_done();
	path = str_format("%s/zz-gpuimg.cfg", dir);
	test_agreement("dash", path);
	test_agreement("bash", path);
	test_conflict(path);
	unlink(path);
	rmdir(dir);
	return tap_done();
}
