/*
 * A server that does as little as a server can: one thread, one level-triggered epoll, one read and one write for what has
 * arrived. It stands for what the kernel itself costs. It parses nothing: a request is an empty line.
 *
 *     epoll --app http|echo|push-sse --listen 127.0.0.1:PORT
 *
 * It writes "listening ADDRESS" and ends when its standard input does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_EVENTS = 1024, BUFFER = 64 << 10, MAX_BATCH = 256, MAX_ANSWER = 256, MAX_FDS = 1 << 20 };

static char input[BUFFER];
static char answers[MAX_BATCH * MAX_ANSWER]; /* the same one, over and over */
static size_t answer_size;
static unsigned char matched[MAX_FDS]; /* by fd: how much of CRLFCRLF the last bytes were */

static void die(const char *what) {
	perror(what);
	exit(1);
}

static void prepare_answers(void) {
	char date[64], one[MAX_ANSWER];
	time_t now = time(NULL);
	strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
	answer_size = (size_t)snprintf(one, sizeof one,
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nDate: %s\r\nContent-Length: 13\r\n\r\nHello, World!", date);
	for (int i = 0; i < MAX_BATCH; i++)
		memcpy(answers + (size_t)i * answer_size, one, answer_size);
}

/* Requests that end in p, a part of a connection's input. */
static int count_requests(int fd, const char *p, ssize_t n) {
	static const char end[] = "\r\n\r\n";
	int found = 0;
	unsigned char at = matched[fd];
	for (ssize_t i = 0; i < n; i++) {
		if (p[i] == end[at])
			at++;
		else
			at = p[i] == '\r';
		if (at == 4) {
			at = 0;
			found++;
		}
	}
	matched[fd] = at;
	return found;
}

/* What does not fit into the socket's buffer ends the connection: its client does not read. */
static int send_all(int fd, const char *p, size_t n) {
	return write(fd, p, n) == (ssize_t)n;
}

static int serve_http(int fd, ssize_t n) {
	for (int left = count_requests(fd, input, n); left > 0; left -= MAX_BATCH) {
		int batch = left < MAX_BATCH ? left : MAX_BATCH;
		if (!send_all(fd, answers, (size_t)batch * answer_size))
			return 0;
	}
	return 1;
}

static int serve_echo(int fd, ssize_t n) {
	return send_all(fd, input, (size_t)n);
}

/*
 * Server-Sent Events without anything that a push server is: whoever asks for /events gets every publication, in one write each.
 * Requests come whole, in one read, and a publication's body ends with its data, a JSON string, and a brace.
 */
static int subscribers[MAX_FDS], subscriber_count;

static void publish(const char *data, size_t n) {
	static char event[BUFFER];
	size_t size = (size_t)snprintf(event, sizeof event, "%zx\r\ndata: %.*s\n\n\r\n", n + 8, (int)n, data);
	for (int i = 0; i < subscriber_count; i++)
		send_all(subscribers[i], event, size);
}

static int serve_push(int fd, ssize_t n) {
	static const char greeting[] =
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n";
	static const char done[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"result\":{}}";
	if (n > 4 && memcmp(input, "GET ", 4) == 0) {
		subscribers[subscriber_count++] = fd;
		return send_all(fd, greeting, sizeof greeting - 1);
	}
	char *data = n < BUFFER ? memmem(input, (size_t)n, "\"data\":", 7) : NULL;
	if (data == NULL || input[n - 1] != '}')
		return 0;
	data += 7;
	publish(data, (size_t)(input + n - 1 - data));
	return send_all(fd, done, sizeof done - 1);
}

static void unsubscribe(int fd) {
	for (int i = 0; i < subscriber_count; i++)
		if (subscribers[i] == fd)
			subscribers[i] = subscribers[--subscriber_count];
}

static void accept_all(int ep, int listener) {
	int one = 1;
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		if (fd >= MAX_FDS) {
			close(fd);
			continue;
		}
		matched[fd] = 0;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
			close(fd);
	}
}

static int listen_on(const char *address) {
	char host[64];
	int port, one = 1;
	if (sscanf(address, "%63[0-9.]:%d", host, &port) != 2) {
		fprintf(stderr, "not an IPv4 address and port: %s\n", address);
		exit(1);
	}
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
	socklen_t size = sizeof sa;
	inet_pton(AF_INET, host, &sa.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || listen(fd, 4096) < 0)
		die("listen");
	if (getsockname(fd, (struct sockaddr *)&sa, &size) < 0)
		die("getsockname");
	printf("listening %s:%d\n", host, ntohs(sa.sin_port));
	fflush(stdout);
	return fd;
}

static void run(int listener, int (*serve)(int, ssize_t)) {
	struct epoll_event events[MAX_EVENTS];
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event on_listener = {.events = EPOLLIN, .data.fd = listener};
	struct epoll_event on_stdin = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &on_listener) < 0)
		die("epoll");
	if (epoll_ctl(ep, EPOLL_CTL_ADD, STDIN_FILENO, &on_stdin) < 0)
		die("the standard input must be a pipe");
	for (;;) {
		int n = epoll_wait(ep, events, MAX_EVENTS, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener) {
				accept_all(ep, listener);
				continue;
			}
			ssize_t got = read(fd, input, sizeof input);
			if (fd == STDIN_FILENO) {
				if (got <= 0)
					return;
				continue;
			}
			if (got < 0 && errno == EAGAIN)
				continue;
			if (got <= 0 || !serve(fd, got)) {
				unsubscribe(fd);
				close(fd);
			}
		}
	}
}

int main(int argc, char **argv) {
	const char *app = "", *address = "127.0.0.1:0";
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--app") == 0)
			app = argv[i + 1];
		if (strcmp(argv[i], "--listen") == 0)
			address = argv[i + 1];
	}
	if (strcmp(app, "http") == 0) {
		prepare_answers();
		run(listen_on(address), serve_http);
	} else if (strcmp(app, "echo") == 0) {
		run(listen_on(address), serve_echo);
	} else if (strcmp(app, "push-sse") == 0) {
		run(listen_on(address), serve_push);
	} else {
		fprintf(stderr, "there is no app \"%s\" in this server: it has echo, http, push-sse\n", app);
		return 1;
	}
	return 0;
}
