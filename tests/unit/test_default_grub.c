/* SPDX-License-Identifier: Apache-2.0 */
/* /etc/default/grub as the shell reads it; the judge of the harder forms is sh itself. */
#include "builder/default-grub.h"
#include "builder/proc.h"
#include "tests/unit/tap.h"

#define NAME "GRUB_CMDLINE_LINUX"
#define PATH "/etc/default/grub"

static const char el9[] =
	"GRUB_TIMEOUT=5\n"
	"GRUB_DISTRIBUTOR=\"$(sed 's, release .*$,,g' /etc/system-release)\"\n"
	"GRUB_DEFAULT=saved\n"
	"GRUB_DISABLE_SUBMENU=true\n"
	"GRUB_TERMINAL_OUTPUT=\"console\"\n"
	"GRUB_CMDLINE_LINUX=\"crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M "
	"resume=/dev/mapper/rl-swap rd.lvm.lv=rl/root rd.lvm.lv=rl/swap net.ifnames=0\"\n"
	"GRUB_DISABLE_RECOVERY=\"true\"\n"
	"GRUB_ENABLE_BLSCFG=true\n";

static const char debian13[] =
	"# If you change this file or any /etc/default/grub.d/*.cfg file,\n"
	"# run 'update-grub' afterwards to update /boot/grub/grub.cfg.\n"
	"GRUB_DEFAULT=0\n"
	"GRUB_DISTRIBUTOR=`( . /etc/os-release; echo ${NAME:-Debian} ) 2>/dev/null || echo Debian`\n"
	"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n"
	"GRUB_CMDLINE_LINUX=\"\"\n"
	"#GRUB_TERMINAL=console\n";

/* The words as one line, or the error's message. */
static char *get(const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv words = {0};

	if (default_grub_get(&words, text, NAME, PATH, &err) < 0) {
		check(err.code == EXIT_INPUT && !words.items, "a refusal is about the input");
		return STEAL(err.message);
	}
	return cmdline_join(&words);
}

static void check_get(const char *text, const char *want, const char *what)
{
	CLEANUP_FREE char *got = get(text);

	check_str(got, want, "%s", what);
}

static void check_refused(const char *text, const char *line, const char *why)
{
	CLEANUP_FREE char *got = get(text);

	if (!check(strstr(got, line) && strstr(got, why) && strstr(got, PATH), "refused at %s: %s",
	           line, why))
		printf("# got: %s\n", got);
}

static void test_get(void)
{
	check_get(el9,
	          "crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M resume=/dev/mapper/rl-swap "
	          "rd.lvm.lv=rl/root rd.lvm.lv=rl/swap net.ifnames=0",
	          "EL's file is read");
	check_get(debian13, "", "Debian's too, whose value is empty");
	check_get("", "", "an empty file has none");
	check_get("XGRUB_CMDLINE_LINUX=a\nGRUB_CMDLINE_LINUX_DEFAULT=b\n", "",
	          "longer names are other names");
	check_get("# GRUB_CMDLINE_LINUX=a\n", "", "a comment is none");
	check_get(NAME "='a b'\n", "a b", "single quotes");
	check_get(NAME "=a\n", "a", "no quotes");
	check_get(NAME "=a\\ b\n", "a b", "an escaped blank");
	check_get("export " NAME "=\"a\"\n", "a", "export before it");
	check_get(NAME "=\"a\"\nexport " NAME "\n", "a", "export behind it");
	check_get("  \t" NAME "=\"a\" # why\n", "a", "a comment behind it");
	check_get(NAME "=a#b\n", "a#b", "'#' inside of a word");
	check_get(NAME "=\"a \\\n b\"\n", "a b", "a line that goes on, in quotes");
	check_get(NAME "=a\\\nb\n", "ab", "and without");
	check_get(NAME "='a \\\nb'\n", "a \\ b", "but not in single quotes");
	check_get(NAME "=\"a\nb\"\n", "a b", "a line break in quotes is a blank for the kernel");
	check_get(NAME "=\"a=\\\"b c\\\" d\"\n", "a=\"b c\" d", "quotes for the kernel");
	check_get(NAME "=\"\\$a \\`b \\\\c \\d\"\n", "$a `b \\c \\d", "escapes in double quotes");
	check_get(NAME "=\"a\"' b'\\ c\n", "a b c", "pieces side by side");
	check_get(NAME "=a\n" NAME "=b\n", "b", "the last one counts");
	check_get(NAME "=a; X=1 " NAME "=b Y=2\n", "b", "several in a line");
	check_get(NAME "=a\n" NAME "+=\" b\"\n", "a b", "+= adds to it");
	check_get(NAME "+=b\n", "b", "also to nothing");
	check_get(NAME "=\"a\"", "a", "a last line without an end");
	check_get(NAME "=\"a\"\r\n", "a", "a carriage return is no word");
	check_get(NAME "=\"$X\"\n" NAME "=a\n", "a", "what is overwritten may have an expansion");
	check_get("if [ -f /x ]; then\n\tX=1\nfi\n" NAME "=a\n", "a", "other names may depend");
	check_get("X=$(echo \"a)\" '(' $(b))\n" NAME "=a\n", "a",
	          "nested commands are stepped over");
	check_get(". /etc/x\n" NAME "=a\n", "a", "another file, read before");
	check_get("if x; then " NAME "=b; fi\n" NAME "=a\n", "a", "a condition before it");
	check_get("f() { x; }\n" NAME "=a\n", "a", "a function");
	check_get("x && y\n" NAME "=a\n", "a", "a list before it");
	check_get("(x; y)\n" NAME "=a\n", "a", "a part of its own before it");
	check_get("case $x in a) b;; (c) d;; esac\n" NAME "=a\n", "a", "a case before it");
	check_get("if { x; } then (y; { z; }) fi\n" NAME "=a\n", "a", "parts inside of parts");
	check_get("for i in a b; do x $i; done\nwhile x; do y; done\n" NAME "=a\n", "a", "loops");
}

static void test_refused(void)
{
	check_refused("\n" NAME "=\"$X a\"\n", "line 2", "an expansion");
	check_refused(NAME "=\"a $(x)\"\n", "line 1", "a command");
	check_refused(NAME "=\"a `x`\"\n", "line 1", "a command");
	check_refused(NAME "=${X:-\"a b\"}\n", "line 1", "an expansion");
	check_refused(NAME "=$'a'\n", "line 1", "an expansion");
	check_refused(NAME "=~/x\n", "line 1", "an expansion");
	check_refused(NAME "=a>b\n", "line 1", "a redirection");
	check_refused("X=1\n" NAME "=\"a\n\nb\n", "line 2", "never closed");
	check_refused("X='1\n" NAME "=a\n", "line 1", "never closed");
	check_refused("X=$(y\n" NAME "=a\n", "line 1", "never closed");
	check_refused("X=${y\n" NAME "=a\n", "line 1", "never closed");
	check_refused("X=`y\n" NAME "=a\n", "line 1", "never closed");
	check_refused("cat <<E\n" NAME "=a\nE\n", "line 1", "here-document");
	check_refused(NAME "=a\nif x; then\n" NAME "=b\nfi\n", "line 3", "under a condition");
	check_refused("case x in\na) " NAME "=b ;;\nesac\n", "line 2", "under a condition");
	check_refused("[ -f x ] && " NAME "=a\n", "line 1", "under a condition");
	check_refused("[ -f x ] ||\n\n" NAME "=a\n", "line 3", "under a condition");
	check_refused(NAME "=a | cat\n", "line 1", "a list of commands");
	check_refused(NAME "=(a b)\n", "line 1", "an array");
	check_refused("(" NAME "=a)\n", "line 1", "a part of its own");
	check_refused("( case x in a) b;; (c) d;; esac\n" NAME "=a )\n", "line 2",
	              "a part of its own");
	check_refused("f() {\n" NAME "=a\n}\n", "line 2", "under a condition");
	check_refused("for i in 1; do " NAME "=a; done\n", "line 1", "under a condition");
	check_refused(NAME "=a cat\n", "line 1", "for one command only");
	check_refused(NAME "=a\nunset " NAME "\n", "line 2", "a command that can set it");
	check_refused(NAME "=a\ndeclare " NAME "=b\n", "line 2", "a command that can set it");
	check_refused(NAME "=a\n. /etc/default/more\n", "line 2", "another file");
	check_refused(NAME "=a\neval \"$x\"\n", "line 2", "another file or text");
	check_refused(NAME "=\"$X\"\n" NAME "+=a\n", "line 1", "an expansion");
}

static char *edit(const char *text, const char *add, const char *remove, char **ret_error)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct cmdline_edit e = {strv_split(add, " "), strv_split(remove, " ")};
	char *result = NULL;

	if (default_grub_edit(&result, text, NAME, &e, PATH, &err) < 0 && ret_error)
		*ret_error = STEAL(err.message);
	strv_free(&e.add);
	strv_free(&e.remove);
	return result;
}

static void check_edit(const char *text, const char *add, const char *remove, const char *want,
                       const char *what)
{
	CLEANUP_FREE char *once = edit(text, add, remove, NULL);
	CLEANUP_FREE char *twice = once ? edit(once, add, remove, NULL) : NULL;

	check_str(once, want, "%s", what);
	check_str(twice, want, "the same once more: %s", what);
}

static void test_edit(void)
{
	check_edit("A=1\n" NAME "=\"a b\"  # why\nB=2\n", "c", "a",
	           "A=1\n" NAME "=\"b c\"  # why\nB=2\n", "the value is edited, the rest stays");
	check_edit(NAME "='a' # 1\n" NAME "=b\n", "c", "", NAME "='a' # 1\n" NAME "=\"b c\"\n",
	           "the last assignment only");
	check_edit("export " NAME "=a\\ b;X=1", "c", "", "export " NAME "=\"a b c\";X=1",
	           "other forms become double quotes");
	check_edit(NAME "='a'   \n", "a", "b", NAME "='a'   \n", "nothing to do, nothing changed");
	check_edit("A=1\n", "a b", "", "A=1\n" NAME "=\"a b\"\n", "a line is added");
	check_edit("A=1", "a", "", "A=1\n" NAME "=\"a\"\n", "behind a line without an end");
	check_edit("A=1 \\\n", "a", "", "A=1 \\\n\n" NAME "=\"a\"\n", "behind one that goes on");
	check_edit("A=1\\", "a", "", "A=1\\\n\n" NAME "=\"a\"\n", "in whatever way");
	check_edit("", "a", "", NAME "=\"a\"\n", "in an empty file");
	check_edit("A=1\n", "", "x", "A=1\n", "nothing to add, no line");
	check_edit(NAME "='a=\"b c\" $d \\e'\n", "f", "", NAME "=\"a=\\\"b c\\\" \\$d \\\\e f\"\n",
	           "what double quotes do not hold");
	check_edit(NAME "=a\n" NAME "+=\" b\"\n", "c", "a", NAME "=a\n" NAME "=\"b c\"\n",
	           "the last += becomes the whole value");
	check_edit(NAME "=\"a \\\n  b\"\nX=1\n", "c", "", NAME "=\"a b c\"\nX=1\n",
	           "a value of two lines becomes one");
	check_edit(NAME "=\"module_blacklist=a pci=nocrs\"\n", "module_blacklist=nouveau pci=nocrs",
	           "", NAME "=\"module_blacklist=a,nouveau pci=nocrs\"\n",
	           "names are merged as the kernel needs it");
}

static void test_edit_refused(void)
{
	CLEANUP_FREE char *why = NULL, *result = edit(NAME "=\"$X\"\n", "a", "", &why),
			  *open = NULL;

	check(!result && why && strstr(why, "line 1"),
	      "a value that is not understood is not edited");
	free(STEAL(why));
	result = edit("X=1\n" NAME "=\"a=\\\"b c\"\n", "d", "", &why);
	check(!result && why && strstr(why, "line 2") && strstr(why, "not in pairs"),
	      "nor one with an open quote for the kernel, which would take the new words in");
	free(STEAL(why));
	open = edit("if x; then\n", "a", "", &why);
	check(!open && why && strstr(why, "cannot edit"), "nor is a line added under a condition");
}

static void test_bounds(void)
{
	CLEANUP_FREE char *large = mem_alloc((1 << 20) + 2), *value = mem_alloc(20001);
	CLEANUP_FREE char *assignment = NULL, *sum = NULL, *deep = NULL;
	CLEANUP_STRV struct strv opened = {0};

	memset(large, '\n', 1 << 20);
	check_get(large, "", "1 MiB is read");
	large[1 << 20] = '\n';
	check_refused(large, "line 1", "larger than 1 MiB");

	memset(value, 'x', 20000);
	assignment = str_format(NAME "=%s\n", value);
	check_refused(assignment, NAME, "longer than 16 KiB");
	sum = str_format(NAME "+=%s\n" NAME "+=%s\n" NAME "+=a\n", value, value);
	check_refused(sum, NAME, "longer than 16 KiB");

	strv_add(&opened, "X=");
	for (int i = 0; i < 100; i++)
		strv_add(&opened, "$(");
	deep = strv_join(&opened, "");
	check_refused(deep, "line 1", "nested too deeply");
}

/* What sh itself makes of the same text: the value in effect, by words. */
static char *by_shell(const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *script = str_format("%s\nprintf '%%s' \"$" NAME "\"", text);
	const char *const argv[] = {"sh", "-c", script, NULL};
	struct proc_options options = {.timeout_ms = 30000};
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *value = NULL;

	if (proc_run(argv, &options, &value, 65536, &err) < 0)
		return STEAL(err.message);
	words = cmdline_split(value);
	return cmdline_join(&words);
}

static void test_against_shell(void)
{
	static const char *const texts[] = {
		NAME "=\"a b\"\n",
		NAME "='a \"b\" \\c'\n",
		NAME "=\"\\a \\\"\\\" \\$x \\`y \\\\ 'q' #\"\n",
		NAME "=a\\ b\\\"c\\'d\\\"\n",
		NAME "=a\"b c\"'d e'f#g # h\n",
		NAME "=\"a \\\nb\"\n",
		NAME "='a \\\nb'\n",
		"X=`echo \")\" '(' \\`echo y\\``\n" NAME "=a\n",
		"X=$(echo \")\" '\"' \"$(echo \"(\")\")\n" NAME "=\"b\"\n",
		"X=\"${Y:-a}}\"; X=\"$(echo '}' \"x\")\"\n" NAME "=c\n",
		"X=\"it's\"\n" NAME "=d # it's\nY='#'\n",
		"X=${#Y}; Z=a$\n" NAME "=e\n",
		"X=1 \\\n  # no comment\n" NAME "=f\n",
		NAME "=~x/~y:z\\~\n" NAME "=a~b\n",
		"case a in a) :;; (b) :;; esac\n" NAME "=g\n",
		"for i in 1 2; do { :; }; done; " NAME "=h\n",
		"echo " NAME "x >/dev/null; " NAME "=i; :\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		CLEANUP_FREE char *ours = get(texts[i]), *theirs = by_shell(texts[i]);
		CLEANUP_FREE char *edited = edit(texts[i], "new=$q`\\", "", NULL);
		CLEANUP_FREE char *theirs_edited = by_shell(edited ? edited : "");
		CLEANUP_FREE char *want = str_format("%s new=$q`\\", theirs);

		check_str(ours, theirs, "sh reads the same: %zu", i);
		check_str(theirs_edited, want, "and finds the edit: %zu", i);
	}
}

int main(void)
{
	test_get();
	test_refused();
	test_edit();
	test_edit_refused();
	test_bounds();
	test_against_shell();
	return tap_done();
}
