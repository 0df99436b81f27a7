/* SPDX-License-Identifier: Apache-2.0 */
#include "builder/toml-edit.h"
#include "builder/toml.h"
#include "tap.h"

/* The flattened text, "; " between the lines; or the error. */
static char *read_all(const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TOML struct toml *toml = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (toml_parse(&toml, text, "'f'", &err) < 0)
		return str_format("%s (exit %d)", err.message, error_exit_code(&err));
	toml_flatten(&toml->root, &lines);
	return strv_join(&lines, "; ");
}

static void says(const char *text, const char *want, const char *what)
{
	CLEANUP_FREE char *got = read_all(text);

	check_str(got, want, "%s", what);
}

static void refuses(const char *text, const char *want, const char *what)
{
	CLEANUP_FREE char *got = read_all(text), *whole = str_format("'f': %s (exit 4)", want);

	check_str(got, whole, "refused with its line: %s", what);
}

static void test_keys(void)
{
	says("", "", "an empty file says nothing");
	says("a = 1\nb-c_2 = 2\n3 = 4", "3 = 4; a = 1; b-c_2 = 2", "bare keys are read");
	says("\"a b\" = 1\n'c.d' = 2\n\"\" = 3", "\"\" = 3; \"a b\" = 1; \"c.d\" = 2",
	     "quoted keys are read");
	says("a.b . c = 1\na.d = 2\na.'x.y' = 3", "a.\"x.y\" = 3; a.b.c = 1; a.d = 2",
	     "dotted keys are read");
	says("[a]\nb = 1\n[a.b2]\nc = 2\n[ x . \"y z\" ]\nk = 0",
	     "a.b = 1; a.b2.c = 2; x.\"y z\".k = 0", "tables are read");
	says("[a.b.c]\nx = 1\n[a]\ny = 2\nb.z = 3", "a.b.c.x = 1; a.b.z = 3; a.y = 2",
	     "a table that was only implied may be defined later");
	says("[f]\na.c = 1\n[f.a.t]\ns = 2", "f.a.c = 1; f.a.t.s = 2",
	     "a table made by a dotted key may have tables below it");
	says("[[p]]\nn = 1\n[p.q]\nx = 2\n[[p]]\n[[p.r]]\n",
	     "p = [{n = 1, q = {x = 2}}, {r = [{}]}]", "arrays of tables are read");
	says("a = { b = 1, c.d = 2, e = { } }\nf = {}", "a.b = 1; a.c.d = 2",
	     "inline tables are read");
}

static void test_strings(void)
{
	says("a = \"x\\ty\\\"\\\\\\u00e9\\U0001F600\\b\\f\\r\\n\"",
	     "a = \"x\\ty\\\"\\\\\303\251\360\237\230\200\\b\\f\\r\\n\"", "escapes are read");
	says("a = 'C:\\x'\nb = ''", "a = \"C:\\\\x\"; b = \"\"", "literal strings have no escapes");
	says("a = \"\"\"\nx\n\"y\"\\\n   \n  z\"\"\"\"\"", "a = \"x\\n\\\"y\\\"z\\\"\\\"\"",
	     "strings of several lines are read, with folded lines and quotes");
	says("a = '''\nx\\\n'y'''''\nb = \"\"\"\"\"\"", "a = \"x\\\\\\n'y''\"; b = \"\"",
	     "literal strings of several lines are read");
	says("a = \"#\" # \"\nb = 'x' #", "a = \"#\"; b = \"x\"",
	     "comments are no part of strings");
	refuses("a = 1\nb = \"x\n", "line 2: a string is never closed", "an open string");
	refuses("a = '''\n\n", "line 1: a string is never closed", "an open string of lines");
	refuses("a = \"\\q\"", "line 1: unknown escape '\\q'", "an unknown escape");
	refuses("a = \"\\u12\"", "line 1: '\\u' without its 4 digits", "a short code point");
	refuses("a = \"\\ud800\"", "line 1: '\\ud800' is no character", "a surrogate");
	refuses("a = \"\\u0000\"", "line 1: a string with a NUL in it", "a NUL by its number");
	refuses("a = \"\"\"x\"\"\"\"\"\"", "line 1: too many quotes at the end of a string",
	        "six quotes");
	refuses("\"\"\"a\"\"\" = 1", "line 1: a string of several lines as a key",
	        "a key of several lines");
}

static void test_scalars(void)
{
	says("a = 1_000\nb = 0xff\nc = 0o17\nd = 0b1_1\ne = -0\nf = +7",
	     "a = 1000; b = 255; c = 15; d = 3; e = 0; f = 7", "integers are compared by value");
	says("a = 1.50\nb = 5e+2\nc = -1_0.2_5E-1\nd = inf\ne = -nan",
	     "a = 1.5; b = 500.0; c = -1.0249999999999999; d = inf; e = -nan", "floats are read");
	says("a = true\nb = false", "a = true; b = false", "booleans are read");
	says("a = 1979-05-27T07:32:00Z\nb = 1979-05-27 00:32:00.5-07:00\nc = 1979-05-27\nd = 07:32:00",
	     "a = 1979-05-27T07:32:00Z; b = 1979-05-27T00:32:00.5-07:00; c = 1979-05-27; d = 07:32:00",
	     "dates and times are read");
	says("a = 9223372036854775807\nb = -9223372036854775808",
	     "a = 9223372036854775807; b = -9223372036854775808", "64 bits fit");
	refuses("a = 9223372036854775808", "line 1: '9223372036854775808' does not fit in 64 bits",
	        "more than 64 bits");
	refuses("a = 01", "line 1: '01' is no value", "a leading zero");
	refuses("a = 1__0", "line 1: '1__0' is no value", "two underscores");
	refuses("a = +0x1", "line 1: '+0x1' is no value", "a sign before 0x");
	refuses("a = 1.", "line 1: '1.' is no value", "a point without digits");
	refuses("a = .5", "line 1: '.5' is no value", "a point without digits before it");
	refuses("a = 1e", "line 1: '1e' is no value", "an empty exponent");
	refuses("a = True", "line 1: 'True' is no value", "a word");
	refuses("a = 1979-13-01", "line 1: '1979-13-01' is no value", "month 13");
	refuses("a = 25:00:00", "line 1: '25:00:00' is no value", "hour 25");
	refuses("a = ", "line 1: '' is no value", "no value");
}

static void test_arrays(void)
{
	says("a = [ ]\nb = [1, 2, ]\nc = [[1], ['x', \"y\"]]",
	     "a = []; b = [1, 2]; c = [[1], [\"x\", \"y\"]]", "arrays are read");
	says("a = [ # one\n\n  1, # two\n  2 # three\n # four\n]\n", "a = [1, 2]",
	     "arrays go over lines with comments");
	says("a = [{b = 1, a = 2}, {}]", "a = [{a = 2, b = 1}, {}]", "tables in arrays are read");
	refuses("a = [1 2]", "line 1: an array goes on with neither ',' nor ']'", "no comma");
	refuses("a = [\n1,\n", "line 3: '' is no value", "an open array");
	refuses("a = {b = 1,}", "line 1: a key is missing before '}'", "a comma at the end of {}");
	refuses("a = {b = 1\n}", "line 1: an inline table goes on with neither ',' nor '}'",
	        "an inline table of lines");
}

static void test_redefinitions(void)
{
	refuses("a = 1\n\na = 2", "line 3: 'a' was defined before, in line 1", "a key twice");
	refuses("a = 1\na.b = 2", "line 2: 'a' was defined before, in line 1",
	        "a value as a table");
	refuses("[a]\n[b]\n[a]", "line 3: 'a' was defined before, in line 1", "a table twice");
	refuses("[a.b]\nx = 1\n[a]\nb.y = 2", "line 4: 'b' was defined before, in line 1",
	        "a dotted key into a table with a header");
	refuses("a.b = 1\n[a]", "line 2: 'a' was defined before, in line 1",
	        "a header for a dotted table");
	refuses("a = {}\n[a.b]", "line 2: 'a' was defined before, in line 1, as something else",
	        "a header below an inline table");
	refuses("a = {b = {c = 1}, b.d = 2}", "line 1: 'b' was defined before, in line 1",
	        "a dotted key into an inline table");
	refuses("a = [{}]\n[[a]]", "line 2: 'a' was defined before, in line 1",
	        "an item for an array in brackets");
	refuses("[a]\n[[a]]", "line 2: 'a' was defined before, in line 1", "an item for a table");
	refuses("[[a]]\n[a]", "line 2: 'a' was defined before, in line 1", "a table for an array");
	refuses("[[a.b]]\n[a]\nb.c = 1", "line 3: 'b' was defined before, in line 1",
	        "a dotted key into an array of tables");
}

static char *repeat(const char *first, const char *word, size_t count, const char *last)
{
	CLEANUP_STRV struct strv words = {0};

	strv_add(&words, first);
	for (size_t i = 0; i < count; i++)
		strv_add(&words, word);
	strv_add(&words, last);
	return strv_join(&words, "");
}

static void test_bounds(void)
{
	CLEANUP_FREE char *array = repeat("a = ", "[", 200, ""),
			  *keys = repeat("a", ".a", 200, "=1");
	CLEANUP_FREE char *wide = repeat("a=[", "1,", 40000, ""),
			  *key = repeat("", "k", 5000, "=1");
	CLEANUP_FREE char *header = repeat("[a", ".a", 200, "]"),
			  *large = mem_alloc(TOML_MAX_BYTES + 2);
	CLEANUP_FREE char *got = NULL;

	refuses(array, "line 1: nested more than 64 deep", "an array that is too deep");
	refuses(keys, "line 1: nested more than 64 deep", "a key that is too deep");
	refuses(header, "line 1: nested more than 64 deep", "a header that is too deep");
	refuses(wide, "line 1: more than 16384 keys and values", "too many values");
	refuses(key, "line 1: keys of more than 4096 bytes", "a key that is too long");
	memset(large, '\n', TOML_MAX_BYTES + 1);
	got = read_all(large);
	check_str(got, "'f': more than 1048576 bytes (exit 4)",
	          "a file that is too large is refused");
}

static void test_garbage(void)
{

	refuses("a", "line 1: a key without '='", "a key alone");
	refuses("= 1", "line 1: a key is missing before '= 1'", "no key");
	refuses("a = 1 b = 2", "line 1: 'b = 2' stands where the line should end", "two in a line");
	refuses("[a", "line 1: a header is never closed", "an open header");
	refuses("[[a]", "line 1: a header is never closed", "a half open header");
	refuses("[]", "line 1: a key is missing before ']'", "an empty header");
	refuses("[a] x", "line 1: 'x' stands where the line should end", "words behind a header");
	refuses("a = 1\n#\001", "line 2: control character 0x01",
	        "a control character in a comment");
	refuses("a = 1\rb = 2", "line 1: control character 0x0d", "a CR alone");
	refuses("\n\n# \377", "line 3: not UTF-8", "a byte that is not UTF-8");
	refuses("a = 1\n\357\273\277b = 2", "line 2: a key is missing before '\357\273\277b = 2'",
	        "a byte order mark that is not in front");
	says("\357\273\277a = 1", "a = 1", "a byte order mark in front is read past");
	says("\357\273\277", "", "also where nothing follows");
}

static void test_places(void)
{
	static const char text[] =
		"# c\nv = 2 # n\n\n[a] # h\r\n  x = [1,\n 2]\n\n# of b\n[a.b]\ny.z = \"s\"";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TOML struct toml *toml = NULL;
	const struct toml_node *node;

	if (!check(toml_parse(&toml, text, "'f'", &err) == 0, "a text with places is read"))
		return;
	node = toml_find(&toml->root, "v", NULL);
	check(node && text[node->begin] == '2' && node->end == node->begin + 1 && node->line == 2,
	      "a value is where it stands");
	check(toml->root.body_end == (size_t)(strstr(text, "\n\n") + 1 - text),
	      "the root's body ends behind its last key");
	node = toml_find(&toml->root, "a", NULL);
	check(node && node->has_header && text[node->begin] == '[' &&
	              node->end == (size_t)(strstr(text, "  x") - text),
	      "a header is where it stands, up to its CRLF");
	check(node && node->body_end == (size_t)(strstr(text, "\n# of b") - text),
	      "a body ends before blank lines and the next one's comment");
	node = toml_find(&toml->root, "a", "x", NULL);
	check(node && node->type == TOML_ARRAY && node->count == 2 && node->children[1].line == 6 &&
	              strncmp(text + node->begin, "[1,\n 2]", node->end - node->begin) == 0,
	      "an array is where it stands, with the lines of its items");
	node = toml_find(&toml->root, "a", "b", "y", NULL);
	check(node && node->is_dotted && !node->has_header, "a dotted table is known as one");
	check(!toml_find(&toml->root, "a", "q", "y", NULL), "what is missing is not found");
}

/* --- edits -------------------------------------------------------------------------------- */

static void sets(const char *text, const char *path, const char *value, const char *want,
                 const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv keys = strv_split(path, "/");
	CLEANUP_FREE char *edited = str_copy(text);
	int rc = toml_set(&edited, &keys, value, "'f'", &err);

	check_str(rc == 0 ? edited : err.message, want, "%s", what);
	if (rc < 0)
		check(strcmp(text, edited) == 0 && error_exit_code(&err) == EXIT_INPUT,
		      "and the text is as it was");
}

static void test_set(void)
{
	sets("a = 1 # n\nb = 2\n", "a", "\"x\"", "a = \"x\" # n\nb = 2\n",
	     "a value is replaced, its comment stays");
	sets("a = 1", "b", "2", "a = 1\nb = 2\n",
	     "a line is added to a file without a last newline");
	sets("a = 1\r\n\r\n[t]\r\n", "b", "2", "a = 1\r\nb = 2\r\n\r\n[t]\r\n", "CRLF stays");
	sets("", "a/b", "1", "[a]\nb = 1\n", "an empty file gets a table");
	sets("# license\n\n[t]\n", "v", "1", "# license\n\nv = 1\n\n[t]\n",
	     "a first key goes behind the comment that the file begins with");
	sets("# of t\n[t]\n", "v", "1", "v = 1\n\n# of t\n[t]\n",
	     "a first key does not part a table from its comment");
	sets("[t]\n  x = 1\n  # end\n\n[u]\n", "t/y", "2",
	     "[t]\n  x = 1\n  y = 2\n  # end\n\n[u]\n", "a line is indented like its neighbours");
	sets("[p]\n  [p.a]\n    x = 1\n\n# of q\n[q]\n", "p/b/y", "2",
	     "[p]\n  [p.a]\n    x = 1\n\n  [p.b]\n    y = 2\n\n# of q\n[q]\n",
	     "a table stands behind its neighbours, indented like them");
	sets("[p.a]\nx.y = 1\n", "p/a/x/z", "2", "[p.a]\nx.y = 1\nx.z = 2\n",
	     "a dotted table gets a dotted key");
	sets("p.a.x = 1\n", "p/b/c/y", "2", "p.a.x = 1\n\n[p.b.c]\ny = 2\n",
	     "a table below a dotted one gets a header");
	sets("[p.a.o]\nx = 1\n", "p/a/y", "2", "[p.a.o]\nx = 1\n\n[p.a]\ny = 2\n",
	     "a table that was implied gets its own header");
	sets("[plugins.'a.b'.c]\n", "plugins/a.b/d/y", "'s'",
	     "[plugins.'a.b'.c]\n\n[plugins.'a.b'.d]\ny = 's'\n", "the file's own quotes are used");
	sets("a = {b = 1}\n", "a/b", "2",
	     "'f': line 1: 'a' is a table in braces, which is not edited; write it with a header",
	     "a table in braces is refused");
	sets("[[a]]\nb = 1\n", "a/b", "2", "'f': line 1: 'a' is no table",
	     "an array of tables is refused");
	sets("\na = 1\n", "a/b", "2", "'f': line 2: 'a' is no table",
	     "a value on the way is refused");
	sets("[a]\n", "a", "2", "'f': line 1: 'a' is a table", "a table is not replaced");
	sets("a = 1\n", "b", "2\nc = 3", "'f': line 1: '2?c = 3' is more than a value",
	     "more than a value is refused");
}

static void list(const char *text, const char *add, const char *remove, const char *want,
                 const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv keys = strv_split("l", "/");
	CLEANUP_FREE char *edited = str_copy(text), *value = toml_quote(add ? add : "");
	int rc = add ? toml_add_item(&edited, &keys, value, "'f'", &err)
	             : toml_remove_item(&edited, &keys, remove, "'f'", &err);

	check_str(rc == 0 ? edited : err.message, want, "%s", what);
}

static void test_lists(void)
{
	list("v = 1\n", "x", NULL, "v = 1\nl = [\"x\"]\n", "a list is made");
	list("l = []\n", "x", NULL, "l = [\"x\"]\n", "an empty list gets its item");
	list("l = ['a', 'b'] # c\n", "x", NULL, "l = ['a', 'b', \"x\"] # c\n",
	     "a list gets one more");
	list("l = ['a',]\n", "x", NULL, "l = ['a', \"x\",]\n", "a comma at the end stays");
	list("l = [\n  'a', # one\n  'b' # two\n  # none\n]\n", "x", NULL,
	     "l = [\n  'a', # one\n  'b', # two\n  \"x\"\n  # none\n]\n",
	     "a list over lines gets a line, comments stay with their items");
	list("l = [\r\n\t'a',\r\n]\r\n", "x", NULL, "l = [\r\n\t'a',\r\n\t\"x\",\r\n]\r\n",
	     "and it keeps its commas and CRLF");
	list("l = ['a', 'cri', 'b']\n", NULL, "cri", "l = ['a', 'b']\n",
	     "an item goes out of the middle");
	list("l = [\"cri\"]\n", NULL, "cri", "l = []\n", "the only item goes");
	list("l = ['a', \"cri\"]\n", NULL, "cri", "l = ['a']\n",
	     "the last item goes with its comma");
	list("l = ['cri', 'a', 'cri']\n", NULL, "cri", "l = ['a']\n", "every one of them goes");
	list("l = [\n  'cri', # no\n  'a', # yes\n]\n", NULL, "cri",
	     "l = [\n  # no\n  'a', # yes\n]\n", "comments stay");
	list("l = [\n  'a',\n  'cri'\n]\n", NULL, "cri", "l = [\n  'a',\n]\n", "a line goes");
	list("l = ['a']\n", NULL, "cri", "l = ['a']\n", "an item that is not there is fine");
	list("v = 1\n", NULL, "cri", "v = 1\n", "and so is a list that is not there");
	list("l = 'cri'\n", NULL, "cri", "'f': line 1: 'l' is no list",
	     "what is no list is refused");
}

int main(void)
{
	test_keys();
	test_strings();
	test_scalars();
	test_arrays();
	test_redefinitions();
	test_garbage();
	test_bounds();
	test_places();
	test_set();
	test_lists();
	return tap_done();
}
