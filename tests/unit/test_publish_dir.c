/* SPDX-License-Identifier: Apache-2.0 */
/* A directory, or the image's own, whose file system says no: calls that fail on demand. */
#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "builder/fd.h"
#include "builder/workdir.h"
#include "files.h"
#include "publish/publish.h"
#include "tap.h"

/* errno of calls that are to fail, 0: none is; in the place of libc's for the whole program. */
static struct {
	int flock, mkdir, write, pread, pread_fd;
} fault;

int flock(int fd, int operation)
{
	errno = fault.flock;
	return fault.flock ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int mkdir(const char *path, mode_t mode)
{
	errno = fault.mkdir;
	return fault.mkdir ? -1 : mkdirat(AT_FDCWD, path, mode);
}

ssize_t write(int fd, const void *data, size_t size)
{
	errno = fault.write;
	return fault.write ? -1 : syscall(SYS_write, fd, data, size);
}

/* Of pread_fd alone, or of all others where that is negative: ~fd. */
ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
	bool meant = fault.pread_fd < 0 ? fd != ~fault.pread_fd : fd == fault.pread_fd;

	errno = fault.pread;
	return fault.pread && meant ? -1 : syscall(SYS_pread64, fd, data, size, offset);
}

/* --- An image, a directory, a job --- */

static const char content[] = "the image's bytes";

struct place {
	char *top, *root;
	struct publish_image image;
	struct publish_location where;
	atomic_bool stop;
};

static char name[] = "node", one[] = "1.0", arch[] = "amd64";
static char sum[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void place_begin(struct place *p)
{
	char template[] = "/tmp/gpuimg-test-XXXXXX";

	*p = (struct place){.top = str_copy(mkdtemp(template) ? template : "/nowhere")};
	p->root = str_format("%s/root", p->top);
	mkdir(p->root, 0755);
	p->image = (struct publish_image){.path = str_format("%s/node.qcow2", p->top),
	                                  .name = name,
	                                  .version = one,
	                                  .sha256 = sum,
	                                  .arch = arch,
	                                  .size_bytes = sizeof(content)};
	write_file(p->image.path, content, sizeof(content));
	p->image.fd = open(p->image.path, O_RDONLY | O_CLOEXEC);
	check(fstat(p->image.fd, &p->image.st) == 0, "there is an image");
	p->where.settings = json_pack("{s:s}", "path", p->root);
}

static void place_end(struct place *p)
{
	memset(&fault, 0, sizeof(fault));
	close(p->image.fd);
	json_decref(p->where.settings);
	workdir_remove(p->top);
	free(p->image.path);
	free(p->root);
	free(p->top);
}

static char *part_of(const struct place *p)
{
	return str_format("%s/node/1.0/%s/node.qcow2.part", p->root, sum);
}

/* Sends, and names if that goes well: the exit code, and the error for who wants to see more. */
static enum exit_code publish_to(struct place *p, struct error *err)
{
	struct publish_job job = {.image = &p->image, .where = &p->where, .stop = &p->stop};
	int result = (publish_dir.check)(&job, err);

	if (result == 0)
		result = publish_dir.send(&job, err);
	if (result == 0)
		result = publish_dir.name(&job, err);
	publish_dir.end(&job);
	free(job.ref);
	return result == 0 ? EXIT_OK : error_exit_code(err);
}

static void expect(struct place *p, enum exit_code want, const char *message, const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	enum exit_code code = publish_to(p, &err);

	memset(&fault, 0, sizeof(fault));
	check(code == want, "%s: exit code %d, want %d", what, code, want);
	check(err.message && strstr(err.message, message), "%s is told by '%s': %s", what, message,
	      err.message ? err.message : "no error");
}

static void test_good(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct place p;

	place_begin(&p);
	check(publish_to(&p, &err) == EXIT_OK, "without a fault all is written: %s",
	      err.message ? err.message : "good");
	place_end(&p);
}

static void test_directories(void)
{
	static const struct {
		int errnum;
		enum exit_code code;
	} cases[] = {{EACCES, EXIT_HOST}, {EPERM, EXIT_HOST},     {EROFS, EXIT_HOST},
	             {ELOOP, EXIT_HOST},  {ENOSPC, EXIT_PUBLISH}, {EIO, EXIT_PUBLISH}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_FREE char *what = str_format("mkdir: %s", strerror(cases[i].errnum));
		CLEANUP_FREE char *told = str_format("/root/node': %s", strerror(cases[i].errnum));
		struct place p;

		place_begin(&p);
		fault.mkdir = cases[i].errnum;
		expect(&p, cases[i].code, told, what);
		place_end(&p);
	}
}

static void test_writes(void)
{
	static const struct {
		int errnum;
		enum exit_code code;
	} cases[] = {{ENOSPC, EXIT_PUBLISH},
	             {EDQUOT, EXIT_PUBLISH},
	             {EIO, EXIT_PUBLISH},
	             {EROFS, EXIT_HOST},
	             {EFBIG, EXIT_HOST}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_FREE char *what = str_format("write: %s", strerror(cases[i].errnum));
		struct place p;

		place_begin(&p);
		fault.write = cases[i].errnum;
		expect(&p, cases[i].code, "node.qcow2.part': ", what);
		place_end(&p);
	}
}

/* What an interrupted run left is compared, and one of the two disks fails. */
static void test_comparing(void)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;

	for (int of_image = 0; of_image < 2; of_image++) {
		CLEANUP_FREE char *part = NULL;
		CLEANUP_FREE char *dir = NULL;
		struct place p;

		place_begin(&p);
		part = part_of(&p);
		dir = mem_copy(part, (size_t)(strrchr(part, '/') - part));
		check(workdir_make_parents(dir, &ignored) == 0, "a run was interrupted");
		write_file(part, content, 5);
		fault.pread = EIO;
		fault.pread_fd = of_image ? p.image.fd : ~p.image.fd;
		if (of_image)
			expect(&p, EXIT_INPUT, "/node.qcow2': Input/output error",
			       "an image that cannot be read");
		else
			expect(&p, EXIT_PUBLISH, "node.qcow2.part': Input/output error",
			       "a beginning that cannot be read");
		place_end(&p);
	}
}

static void test_locks(void)
{
	static const struct {
		int errnum;
		enum exit_code code;
		const char *told;
	} cases[] = {
		{EWOULDBLOCK, EXIT_PUBLISH, "another publisher writes"},
		{ENOLCK, EXIT_HOST, ".part': No locks available"},
		{EOPNOTSUPP, EXIT_HOST, ".part': Operation not supported"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_FREE char *what = str_format("lock: %s", strerror(cases[i].errnum));
		struct place p;

		place_begin(&p);
		fault.flock = cases[i].errnum;
		expect(&p, cases[i].code, cases[i].told, what);
		place_end(&p);
	}
}

static void test_index_lock(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct place p;
	struct publish_job job = {.image = &p.image, .where = &p.where, .stop = &p.stop};
	int result;

	place_begin(&p);
	check((publish_dir.check)(&job, &err) == 0 && publish_dir.send(&job, &err) == 0,
	      "the image was sent");
	fault.flock = ENOLCK;
	result = publish_dir.name(&job, &err);
	check(result < 0 && error_exit_code(&err) == EXIT_HOST &&
	              strstr(err.message, "cannot lock"),
	      "an index that cannot be locked is told as what it is: %s", err.message);
	publish_dir.end(&job);
	free(job.ref);
	place_end(&p);
}

static void test_state_lock(void)
{
	static const struct {
		int errnum;
		const char *told;
	} cases[] = {{EWOULDBLOCK, "another gpuimg publishes this image now"},
	             {ENOLCK, "No locks available"},
	             {EOPNOTSUPP, "Operation not supported"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		struct publish_state *state = NULL;
		struct place p;
		int result;

		place_begin(&p);
		fault.flock = cases[i].errnum;
		result = publish_state_open(&state, &p.image, &err);
		check(result < 0 && error_exit_code(&err) == EXIT_HOST &&
		              strstr(err.message, cases[i].told),
		      "the state's lock: %s", err.message ? err.message : "no error");
		publish_state_close(state);
		place_end(&p);
	}
}

static void test_read_path(void)
{
	char something[] = "something";
	CLEANUP_FREE char *text = NULL;
	char *none = something, *kept;
	struct place p;

	place_begin(&p);
	check(fd_read_path("/nowhere/at/all", 10, &none) == 0 && !none,
	      "of a file that is not there, there is no text");
	check(fd_read_path(p.image.path, sizeof(content), &text) == 0 && text,
	      "a file of just the limit is read");
	check_str(text, content, "as it is");
	kept = text;
	check(fd_read_path(p.image.path, sizeof(content) - 1, &text) < 0 && errno == EFBIG &&
	              text == kept,
	      "one that is larger is refused, and nothing written");
	check(fd_read_path(p.root, 10, &text) < 0 && errno == EISDIR, "a directory is no text");
	place_end(&p);
}

int main(void)
{
	test_good();
	test_directories();
	test_writes();
	test_comparing();
	test_locks();
	test_index_lock();
	test_state_lock();
	test_read_path();
	return tap_done();
}
