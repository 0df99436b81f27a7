/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A web server for tests of the transport: it plays a list of steps, one for each request that
 * comes, and keeps what it was asked. Loopback, a port that the kernel picks, a thread of its own.
 */
#ifndef GPUIMG_TESTS_HTTP_SERVER_H
#define GPUIMG_TESTS_HTTP_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_STEPS_MAX 16
#define SERVER_HEAD_MAX  8192

struct server_step {
	const char *reply;    /* all of it, status line first; NULL: the connection is closed */
	uint64_t read_max;    /* of the body before it replies; 0: all */
	unsigned wait_ms;     /* before it replies */
	bool hang;            /* reads no more and says nothing until the client goes away */
	bool keep;            /* the connection stays for the next step */
	bool refuse_continue; /* replies to the head, where the client waits for 100 */
	const char *before;   /* sent in the place of a plain "100 Continue" */
};

struct server {
	int fd;
	unsigned port;
	const struct server_step *steps;
	size_t count, served;
	char heads[SERVER_STEPS_MAX][SERVER_HEAD_MAX];
	uint64_t body_bytes[SERVER_STEPS_MAX];
	pthread_t thread;
};

static inline void server_say(int fd, const char *text)
{
	for (size_t at = 0, size = strlen(text); at < size;) {
		ssize_t n = send(fd, text + at, size - at, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		at += (size_t)n;
	}
}

static inline bool server_read_head(int fd, char *head)
{
	size_t size = 0;

	while (size + 1 < SERVER_HEAD_MAX && recv(fd, head + size, 1, 0) == 1) {
		head[++size] = '\0';
		if (size >= 4 && strcmp(head + size - 4, "\r\n\r\n") == 0)
			return true;
	}
	return false;
}

static inline uint64_t server_read_body(int fd, uint64_t size)
{
	static _Thread_local char buffer[65536];
	uint64_t done = 0;

	while (done < size) {
		uint64_t want = size - done < sizeof(buffer) ? size - done : sizeof(buffer);
		ssize_t n = recv(fd, buffer, (size_t)want, 0);

		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	return done;
}

/* As servers do that refuse a body: what is still on its way is taken, so that no reset overtakes
 * the reply. */
static inline void server_linger(int fd)
{
	char buffer[4096];
	struct pollfd p = {.fd = fd, .events = POLLIN};

	shutdown(fd, SHUT_WR);
	while (poll(&p, 1, 3000) > 0 && recv(fd, buffer, sizeof(buffer), 0) > 0)
		;
}

static inline uint64_t server_length(const char *head)
{
	const char *line = strcasestr(head, "\r\ncontent-length:");

	return line ? strtoull(line + strlen("\r\ncontent-length:"), NULL, 10) : 0;
}

static inline void server_play(struct server *s, int fd, size_t index)
{
	const struct server_step *step = &s->steps[index];
	uint64_t length = server_length(s->heads[index]);

	if (step->refuse_continue)
		length = 0;
	else if (strcasestr(s->heads[index], "expect: 100-continue"))
		server_say(fd, step->before ? step->before : "HTTP/1.1 100 Continue\r\n\r\n");
	if (step->read_max && step->read_max < length)
		length = step->read_max;
	s->body_bytes[index] = server_read_body(fd, length);
	if (step->hang) {
		struct pollfd p = {.fd = fd, .events = POLLRDHUP};

		poll(&p, 1, 20000);
		return;
	}
	usleep(step->wait_ms * 1000);
	if (step->reply)
		server_say(fd, step->reply);
}

static inline void *server_thread(void *opaque)
{
	struct server *s = opaque;
	int fd = -1;

	while (s->served < s->count) {
		size_t index = s->served;

		if (fd < 0)
			fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			break; /* told to stop */
		if (server_read_head(fd, s->heads[index])) {
			s->served++;
			server_play(s, fd, index);
			if (s->steps[index].keep)
				continue;
		}
		if (s->steps[index].reply && !s->steps[index].hang)
			server_linger(fd);
		close(fd);
		fd = -1;
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static inline void server_start(struct server *s, const struct server_step *steps, size_t count)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);

	memset(s, 0, sizeof(*s));
	s->steps = steps;
	s->count = count;
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(s->fd, 8) < 0 || getsockname(s->fd, (struct sockaddr *)&address, &length) < 0 ||
	    pthread_create(&s->thread, NULL, server_thread, s) != 0) {
		printf("Bail out! cannot start a server\n");
		exit(1);
	}
	s->port = ntohs(address.sin_port);
}

/* How many requests came is s->served afterwards. */
static inline void server_stop(struct server *s)
{
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->fd);
}

#endif
