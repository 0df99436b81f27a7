/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "str.h"

#define BAR_WIDTH        24
#define PLAIN_EVERY_MS   15000 /* without a terminal: a sign of life this often */
#define DRAW_EVERY_MS    100
#define DETAIL_MAX_BYTES 200

struct log {
	pthread_mutex_t lock;
	FILE *file;
	char *path;
	enum log_level level;
	bool terminal;
	bool line_open; /* a progress line stands on the terminal without its newline */
	char *step;
	struct timespec begin;
	struct timespec drawn;
	struct timespec start;
};

static double seconds_since(const struct timespec *then)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) / 1e9;
}

int log_open(struct log **ret, const char *path, enum log_level level, struct error *err)
{
	struct log *log = mem_alloc(sizeof(*log));

	pthread_mutex_init(&log->lock, NULL);
	clock_gettime(CLOCK_MONOTONIC, &log->start);
	log->level = level;
	log->terminal = isatty(STDERR_FILENO) && !str_equal(getenv("TERM"), "dumb");
	if (path) {
		log->path = str_copy(path);
		log->file = fopen(path, "we");
		if (!log->file) {
			error_errno(err, errno, "cannot write the log '%s'", path);
			log_close(log);
			return -1;
		}
		setvbuf(log->file, NULL, _IOLBF, 0);
	}
	*ret = log;
	return 0;
}

void log_close(struct log *log)
{
	if (!log)
		return;
	if (log->line_open)
		fputc('\n', stderr);
	if (log->file)
		fclose(log->file);
	pthread_mutex_destroy(&log->lock);
	free(log->path);
	free(log->step);
	free(log);
}

const char *log_path(const struct log *log)
{
	return log ? log->path : NULL;
}

/* A text may quote a guest, whose bytes must not drive the terminal; its newlines stay. */
static char *printable(const char *text)
{
	CLEANUP_STRV struct strv lines = {0};

	for (;;) {
		size_t length = strcspn(text, "\n");

		strv_take(&lines, str_printable(text, length));
		if (!text[length])
			return strv_join(&lines, "\n");
		text += length + 1;
	}
}

/* The caller holds the lock. */
static void clear_line(struct log *log)
{
	if (log->line_open)
		fputs("\r\033[K", stderr);
	log->line_open = false;
}

static void write_line(struct log *log, enum log_level level, const char *mark, const char *format,
                       va_list args)
{
	CLEANUP_FREE char *raw = NULL;
	CLEANUP_FREE char *text = NULL;

	if (!log)
		return;
	raw = str_vformat(format, args);
	text = printable(raw);
	pthread_mutex_lock(&log->lock);
	if (log->file)
		fprintf(log->file, "[%8.3f] %s%s\n", seconds_since(&log->start), mark, text);
	if (level <= log->level) {
		clear_line(log);
		fprintf(stderr, "gpuimg: %s%s\n", mark, text);
	}
	pthread_mutex_unlock(&log->lock);
}

void log_detail(struct log *log, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(log, LOG_VERBOSE, "", format, args);
	va_end(args);
}

void log_note(struct log *log, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(log, LOG_NORMAL, "", format, args);
	va_end(args);
}

void log_warn(struct log *log, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(log, LOG_NORMAL, "warning: ", format, args);
	va_end(args);
}

void log_error(struct log *log, const char *mark, const char *raw)
{
	CLEANUP_FREE char *text = printable(raw);

	if (log) {
		pthread_mutex_lock(&log->lock);
		clear_line(log);
		if (log->file)
			fprintf(log->file, "[%8.3f] %s%s\n", seconds_since(&log->start), mark,
			        text);
	}
	fprintf(stderr, "gpuimg: %s%s\n", mark, text);
	if (log)
		pthread_mutex_unlock(&log->lock);
}

void log_raw(struct log *log, const void *data, size_t size)
{
	if (!log || !log->file)
		return;
	pthread_mutex_lock(&log->lock);
	fwrite(data, 1, size, log->file);
	pthread_mutex_unlock(&log->lock);
}

void log_step_begin(struct log *log, const char *name, const char *raw_what)
{
	CLEANUP_FREE char *what = printable(raw_what);

	if (!log)
		return;
	pthread_mutex_lock(&log->lock);
	free(log->step);
	log->step = str_copy(name);
	clock_gettime(CLOCK_MONOTONIC, &log->begin);
	log->drawn = log->begin;
	if (log->file)
		fprintf(log->file, "[%8.3f] begin %s: %s\n", seconds_since(&log->start), name,
		        what);
	if (log->level >= LOG_NORMAL) {
		clear_line(log);
		if (log->terminal) {
			fprintf(stderr, "  %-12s %s", name, what);
			log->line_open = true;
		} else {
			fprintf(stderr, "gpuimg: %s: %s\n", name, what);
		}
	}
	pthread_mutex_unlock(&log->lock);
}

static void draw_bar(struct log *log, double done, const char *detail)
{
	char bar[BAR_WIDTH + 1];
	int full = done < 0 ? 0 : done > 1 ? BAR_WIDTH : (int)(done * BAR_WIDTH);

	memset(bar, '-', BAR_WIDTH);
	memset(bar, '#', (size_t)full);
	bar[BAR_WIDTH] = '\0';
	fprintf(stderr, "\r\033[K  %-12s ", log->step);
	if (done >= 0)
		fprintf(stderr, "[%s] %3.0f%% ", bar, done * 100);
	fprintf(stderr, "%5.1f s  %.60s", seconds_since(&log->begin), detail);
	fflush(stderr);
	log->line_open = true;
}

void log_step_progress(struct log *log, double done, const char *raw_detail)
{
	/* One line that is drawn over: a newline is of no use here. */
	CLEANUP_FREE char *detail = str_printable(raw_detail ? raw_detail : "", DETAIL_MAX_BYTES);
	double every;

	if (!log || log->level < LOG_NORMAL)
		return;
	pthread_mutex_lock(&log->lock);
	every = (log->terminal ? DRAW_EVERY_MS : PLAIN_EVERY_MS) / 1000.0;
	if (log->step && seconds_since(&log->drawn) >= every) {
		clock_gettime(CLOCK_MONOTONIC, &log->drawn);
		if (log->terminal)
			draw_bar(log, done, detail);
		else if (done >= 0)
			fprintf(stderr, "gpuimg: %s: %.0f%%, %.0f s %s\n", log->step, done * 100,
			        seconds_since(&log->begin), detail);
		else
			fprintf(stderr, "gpuimg: %s: %.0f s %s\n", log->step,
			        seconds_since(&log->begin), detail);
	}
	pthread_mutex_unlock(&log->lock);
}

double log_step_end(struct log *log, bool ok)
{
	double seconds;

	if (!log || !log->step)
		return 0;
	pthread_mutex_lock(&log->lock);
	seconds = seconds_since(&log->begin);
	if (log->file)
		fprintf(log->file, "[%8.3f] end %s: %s, %.1f s\n", seconds_since(&log->start),
		        log->step, ok ? "ok" : "failed", seconds);
	if (log->level >= LOG_NORMAL) {
		clear_line(log);
		fprintf(stderr, log->terminal ? "  %-12s %s  %.1f s\n" : "gpuimg: %s: %s, %.1f s\n",
		        log->step, ok ? "done" : "failed", seconds);
	}
	free(log->step);
	log->step = NULL;
	pthread_mutex_unlock(&log->lock);
	return seconds;
}
