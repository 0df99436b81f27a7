/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/stat.h>

#include "tree-lazy.h"

/*
 * Until a file is filled: who opens it. All the time: who writes to it, or truncates it by its
 * path, since its ctime does not tell that if it was in the clock tick in which we filled it.
 */
#define MASK (FAN_OPEN_PERM | FAN_MODIFY)

/* What the kernel told, for the filling thread, in order. */
struct event {
	struct event *next;
	int fd; /* the file; -1: a mark that lazy_sync() waits for */
	uint64_t mask;
	uint64_t sync;
};

struct lazy {
	struct rootfs *filler;
	struct tree_index *index;
	struct inode_table placeholders; /* inode on the host: number of the entry */
	uint64_t source_bytes;
	int group;   /* of fanotify */
	int wake_fd; /* eventfd: look at 'end' and 'sync_asked' */
	pthread_t listener, worker;
	bool has_listener, has_worker;
	pid_t worker_tid; /* set before the listener starts */

	pthread_mutex_t mutex; /* for what follows, and the 'fill' of entries */
	pthread_cond_t cond;
	struct event *first, **last;
	uint64_t sync_asked, sync_done;
	bool stop; /* refuse what is waiting, and end; the worker first, */
	bool end;  /* then the listener, whom it may still need */
	uint64_t filled_bytes;
	struct error error; /* of the first fill that failed */
};

static void lock(struct lazy *l)
{
	pthread_mutex_lock(&l->mutex);
}

static void unlock(struct lazy *l)
{
	pthread_mutex_unlock(&l->mutex);
}

static void keep_error(struct lazy *l, struct error *err)
{
	lock(l);
	if (!l->error.message)
		error_take(&l->error, err);
	unlock(l);
	error_free(err);
}

/* ENOENT: the opener was killed while it waited. */
static void answer(struct lazy *l, int fd, bool allow)
{
	const struct fanotify_response response = {.fd = fd,
	                                           .response = allow ? FAN_ALLOW : FAN_DENY};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	ssize_t n;

	do {
		n = write(l->group, &response, sizeof(response));
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != ENOENT) {
		error_errno(&err, errno, "cannot answer an opener of the sandbox's tree");
		keep_error(l, &err);
	}
}

/* --- the filling thread --- */

/* False: it would be more than there can be. */
static bool count_filled(struct lazy *l, uint64_t bytes)
{
	bool fits;

	lock(l);
	l->filled_bytes += bytes;
	fits = l->filled_bytes <= l->source_bytes;
	unlock(l);
	return fits;
}

static int fill(struct lazy *l, int fd, struct tree_entry *entry, const char *path,
                struct error *err)
{
	CLEANUP_FREE struct tree_fill *done = NULL;

	if (lazy_fill_file(&done, l->filler, fd, entry, path, err) < 0)
		return -1;
	if (!count_filled(l, done->bytes)) {
		error_set(err,
		          "the files hold more data than their file systems, which are damaged");
		return error_code(err, EXIT_INPUT);
	}
	if (entry->mode & 0111)
		lazy_await_writers(fd);
	fanotify_mark(l->group, FAN_MARK_REMOVE, FAN_OPEN_PERM, fd, NULL);
	lock(l);
	entry->fill = STEAL(done);
	unlock(l);
	return 0;
}

/* NULL: not a placeholder of ours. */
static struct tree_entry *entry_of(const struct lazy *l, int fd, uint32_t *ret_number)
{
	const uint32_t *number;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	number = inode_table_find(&l->placeholders, 0, st.st_ino);
	if (!number)
		return NULL;
	*ret_number = *number;
	return &l->index->entries[*number];
}

static void note_change(struct lazy *l, struct tree_entry *entry, int fd)
{
	lock(l);
	entry->fill->changed = true;
	unlock(l);
	fanotify_mark(l->group, FAN_MARK_REMOVE, MASK, fd, NULL);
}

static bool handle_file(struct lazy *l, const struct event *event)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = NULL;
	uint32_t number = 0;
	struct tree_entry *entry = entry_of(l, event->fd, &number);

	if (!entry)
		return true;
	if (!entry->fill) {
		path = tree_index_path(l->index, number);
		if (fill(l, event->fd, entry, path, &err) < 0) {
			error_prefix(&err, "cannot fill '%s' from the image", path);
			keep_error(l, &err);
			return false;
		}
	}
	if (event->mask & FAN_MODIFY)
		note_change(l, entry, event->fd);
	return true;
}

static void handle_event(struct lazy *l, struct event *event, bool stop)
{
	bool good;

	if (event->fd < 0) {
		lock(l);
		l->sync_done = event->sync;
		pthread_cond_broadcast(&l->cond);
		unlock(l);
	} else {
		good = !stop && handle_file(l, event);
		if (event->mask & FAN_OPEN_PERM)
			answer(l, event->fd, good);
		close(event->fd);
	}
	free(event);
}

/* NULL: the end. */
static struct event *next_event(struct lazy *l, bool *ret_stop)
{
	struct event *event;

	lock(l);
	while (!l->first && !l->stop)
		pthread_cond_wait(&l->cond, &l->mutex);
	event = l->first;
	if (event)
		l->first = event->next;
	if (!l->first)
		l->last = &l->first;
	*ret_stop = l->stop;
	unlock(l);
	return event;
}

static void *work(void *opaque)
{
	struct lazy *l = opaque;
	struct event *event;
	bool stop;

	lock(l);
	l->worker_tid = gettid();
	pthread_cond_broadcast(&l->cond);
	unlock(l);
	while ((event = next_event(l, &stop)))
		handle_event(l, event, stop);
	return NULL;
}

/* --- the listening thread --- */

/* False: there is nobody any more who would take it. */
static bool enqueue(struct lazy *l, const struct event *event)
{
	bool stop;

	lock(l);
	stop = l->stop;
	if (!stop) {
		*l->last = mem_copy(event, sizeof(*event));
		l->last = &(*l->last)->next;
		pthread_cond_broadcast(&l->cond);
	}
	unlock(l);
	return !stop;
}

static void take_event(struct lazy *l, const struct fanotify_event_metadata *data)
{
	const struct event event = {.fd = data->fd, .mask = data->mask};
	bool ours = data->pid == l->worker_tid;

	if (data->fd < 0)
		return;
	if (!ours && enqueue(l, &event))
		return;
	if (data->mask & FAN_OPEN_PERM)
		answer(l, data->fd, ours);
	close(data->fd);
}

/* A failed read has cost one event, and its opener was refused. */
static void read_failed(struct lazy *l)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	error_errno(&err, errno, "cannot learn who opens a file of the sandbox's tree");
	keep_error(l, &err);
}

static void take_events(struct lazy *l)
{
	_Alignas(struct fanotify_event_metadata) char buffer[4096];

	for (;;) {
		const struct fanotify_event_metadata *data = (const void *)buffer;
		ssize_t n = read(l->group, buffer, sizeof(buffer));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			read_failed(l);
		if (n <= 0)
			return;
		for (; FAN_EVENT_OK(data, n); data = FAN_EVENT_NEXT(data, n))
			take_event(l, data);
	}
}

/* False: the end. */
static bool take_wake(struct lazy *l)
{
	struct event mark = {.fd = -1};
	eventfd_t ignored;
	bool end;

	eventfd_read(l->wake_fd, &ignored);
	lock(l);
	mark.sync = l->sync_asked;
	end = l->end;
	unlock(l);
	take_events(l);
	enqueue(l, &mark);
	return !end;
}

static void *listen_for(void *opaque)
{
	struct lazy *l = opaque;
	struct pollfd fds[] = {{.fd = l->group, .events = POLLIN},
	                       {.fd = l->wake_fd, .events = POLLIN}};
	bool on = true;

	while (on) {
		if (poll(fds, 2, -1) < 0)
			continue;
		take_events(l);
		if (fds[1].revents)
			on = take_wake(l);
	}
	return NULL;
}

/* --- what the tree calls --- */

int lazy_new(struct lazy **ret, struct rootfs *filler, struct error *err)
{
	CLEANUP_CLOSE int group =
		fanotify_init(FAN_CLASS_PRE_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK |
	                              FAN_UNLIMITED_MARKS | FAN_UNLIMITED_QUEUE | FAN_REPORT_TID,
	                      O_RDONLY | O_LARGEFILE | O_CLOEXEC | O_NOATIME);
	CLEANUP_CLOSE int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct lazy *l;

	if (group < 0 || wake_fd < 0)
		return error_errno(err, errno, "cannot watch for files that are opened (fanotify)");
	l = mem_alloc(sizeof(*l));
	*l = (struct lazy){.filler = filler,
	                   .group = steal_fd(&group),
	                   .wake_fd = steal_fd(&wake_fd),
	                   .mutex = PTHREAD_MUTEX_INITIALIZER,
	                   .cond = PTHREAD_COND_INITIALIZER};
	l->last = &l->first;
	*ret = l;
	return 0;
}

int lazy_mark(struct lazy *lazy, int fd, uint64_t inode, uint32_t entry)
{
	if (fanotify_mark(lazy->group, FAN_MARK_ADD, MASK, fd, NULL) < 0)
		return -1;
	inode_table_add(&lazy->placeholders, 0, inode, entry);
	return 0;
}

size_t lazy_count(const struct lazy *lazy)
{
	return lazy->placeholders.used;
}

static int start_threads(struct lazy *l)
{
	int failed = pthread_create(&l->worker, NULL, work, l);

	if (failed)
		return failed;
	l->has_worker = true;
	lock(l);
	while (!l->worker_tid)
		pthread_cond_wait(&l->cond, &l->mutex);
	unlock(l);
	failed = pthread_create(&l->listener, NULL, listen_for, l);
	l->has_listener = failed == 0;
	return failed;
}

int lazy_start(struct lazy *lazy, struct tree_index *index, uint64_t source_bytes,
               struct error *err)
{
	sigset_t all, before;
	int failed;

	lazy->index = index;
	lazy->source_bytes = source_bytes;
	/* Signals are for the thread that waits for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = start_threads(lazy);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed ? error_errno(err, failed, "cannot start a thread that fills files") : 0;
}

void lazy_sync(struct lazy *lazy)
{
	uint64_t mine;

	lock(lazy);
	mine = ++lazy->sync_asked;
	eventfd_write(lazy->wake_fd, 1);
	while (lazy->sync_done < mine)
		pthread_cond_wait(&lazy->cond, &lazy->mutex);
	unlock(lazy);
}

int lazy_check(struct lazy *lazy, struct error *err)
{
	int result = 0;

	lock(lazy);
	if (lazy->error.message) {
		struct error copy = {.message = str_copy(lazy->error.message),
		                     .hint = str_copy(lazy->error.hint),
		                     .code = lazy->error.code};

		result = error_take(err, &copy);
	}
	unlock(lazy);
	return result;
}

static struct tree_entry *find_entry(struct lazy *lazy, uint64_t inode)
{
	const uint32_t *number = inode_table_find(&lazy->placeholders, 0, inode);

	return number ? &lazy->index->entries[*number] : NULL;
}

const struct tree_fill *lazy_fill_of(struct lazy *lazy, uint64_t inode)
{
	const struct tree_entry *entry = find_entry(lazy, inode);
	const struct tree_fill *fill;

	lock(lazy);
	fill = entry ? entry->fill : NULL;
	unlock(lazy);
	return fill;
}

bool lazy_is_placeholder(struct lazy *lazy, uint64_t inode)
{
	return find_entry(lazy, inode) && !lazy_fill_of(lazy, inode);
}

uint64_t lazy_filled_bytes(struct lazy *lazy)
{
	uint64_t bytes;

	lock(lazy);
	bytes = lazy->filled_bytes;
	unlock(lazy);
	return bytes;
}

static void stop(struct lazy *l)
{
	lock(l);
	l->stop = true;
	pthread_cond_broadcast(&l->cond);
	unlock(l);
	if (l->has_worker)
		pthread_join(l->worker, NULL);
	lock(l);
	l->end = true;
	unlock(l);
	eventfd_write(l->wake_fd, 1);
	if (l->has_listener)
		pthread_join(l->listener, NULL);
}

void lazy_free(struct lazy *lazy)
{
	if (!lazy)
		return;
	stop(lazy);
	close(lazy->group);
	close(lazy->wake_fd);
	inode_table_free(&lazy->placeholders);
	pthread_cond_destroy(&lazy->cond);
	pthread_mutex_destroy(&lazy->mutex);
	error_free(&lazy->error);
	free(lazy);
}
