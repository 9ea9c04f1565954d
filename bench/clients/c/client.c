// The least that a client with epoll can do, as a measure of what a load driver costs:
//
//   client http HOST:PORT PATH CONNECTIONS SECONDS
//   client push HOST:PORT CONNECTIONS RATE SECONDS SIZE
//
// The first makes requests in a closed loop. The second subscribes over WebSocket by the Centrifuge
// protocol, publishes RATE times a second over HTTP, and counts what the subscribers get. Both
// record the latency of each. They end with one line, whose times are microseconds:
//
//   COUNT in TIME, cpu TIME, p50 TIME, p99 TIME
//
// CPU time counts from when all are connected. Of the server's answers they check only what they
// need to count.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM 16384

static void die(const char *what) {
	perror(what);
	exit(1);
}

static void fail(const char *what) {
	fprintf(stderr, "client: %s\n", what);
	exit(1);
}

static int64_t now_in(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// The time of publications is that of the wall, as myriad load has it.
static int64_t now(void) { return now_in(CLOCK_REALTIME); }

static int64_t began, used; // when all were connected

static void begin(void) {
	began = now();
	used = now_in(CLOCK_PROCESS_CPUTIME_ID);
}

// A histogram of nanoseconds: 64 steps for each power of two, so it is exact to 1.6 %.
static int64_t counts[64 * 64];
static int64_t total;

static void record(int64_t ns) {
	uint64_t v = ns < 64 ? 64 : (uint64_t)ns;
	int power = 63 - __builtin_clzll(v);
	counts[power * 64 + ((v >> (power - 6)) & 63)]++;
	total++;
}

static double quantile(double q) {
	int64_t want = (int64_t)(q * (double)total), seen = 0;
	for (int i = 0; i < 64 * 64; i++)
		if ((seen += counts[i]) > want)
			return (double)((64ULL + i % 64) << (i / 64 - 6)) / 1000;
	return 0;
}

// A link is one connection. have bytes of in wait for more.
struct link {
	int fd;
	int open;       // the handshake of the WebSocket is over
	int publisher;
	int64_t since;  // when the request under way was sent
	int have;
	char *in;       // NULL while have is 0
};

static struct link *links;
static int poller, count;
static struct sockaddr_in server;
static char host[64];

static void resolve(const char *address) {
	snprintf(host, sizeof host, "%s", address);
	char ip[64];
	snprintf(ip, sizeof ip, "%s", address);
	char *colon = strrchr(ip, ':');
	if (!colon)
		fail("the address has no port");
	*colon = 0;
	server.sin_family = AF_INET;
	server.sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, ip, &server.sin_addr) != 1)
		fail("the address is not one of IPv4");
}

static void put(struct link *l, const char *p, size_t n) {
	if (write(l->fd, p, n) != (ssize_t)n)
		die("write");
}

static void dial(struct link *l) {
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l->fd < 0)
		die("socket");
	int one = 1;
	setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (connect(l->fd, (struct sockaddr *)&server, sizeof server))
		die("connect");
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
	if (epoll_ctl(poller, EPOLL_CTL_ADD, l->fd, &e))
		die("epoll_ctl");
}

// answer_end is where an answer ends: 0 if its head is not complete.
static size_t answer_end(const char *p, size_t n) {
	const char *end = memmem(p, n, "\r\n\r\n", 4);
	if (!end)
		return 0;
	const char *length = memmem(p, (size_t)(end - p), "Content-Length: ", 16);
	return (size_t)(end - p) + 4 + (length ? strtoul(length + 16, NULL, 10) : 0);
}

static const char *request;
static size_t request_size;

// http takes in answers, and returns how many bytes it has used.
static size_t http(struct link *l, const char *p, size_t n) {
	size_t end = answer_end(p, n);
	if (end == 0 || end > n)
		return 0;
	if (memcmp(p, "HTTP/1.1 200", 12))
		fail("an answer is not 200");
	int64_t t = now();
	record(t - l->since);
	l->since = t;
	put(l, request, request_size);
	return end;
}

static int subscribed;

// put_text sends a short text message, masked by zeroes.
static void put_text(struct link *l, const char *text) {
	char frame[256] = {(char)0x81, (char)(0x80 | strlen(text))};
	memcpy(frame + 6, text, strlen(text));
	put(l, frame, 6 + strlen(text));
}

static void message(struct link *l, const char *p, size_t n) {
	if (n == 2 && !memcmp(p, "{}", 2)) {
		put_text(l, "{}");
		return;
	}
	if (n > 7 && !memcmp(p, "{\"id\":", 6)) {
		if (memmem(p, n, "\"error\"", 7))
			fail("a command was refused");
		if (memmem(p, n, "\"id\":2", 6))
			subscribed++;
		return;
	}
	int64_t t = now();
	for (const char *end = p + n; (p = memmem(p, (size_t)(end - p), "\"due\":", 6)); p += 6)
		record(t - strtoll(p + 6, NULL, 10));
}

// push takes in one frame, or the answer to the handshake or to a publication.
static size_t push(struct link *l, const char *p, size_t n) {
	if (!l->open || l->publisher) {
		size_t end = answer_end(p, n);
		if (end == 0 || end > n)
			return 0;
		if (memcmp(p, l->publisher ? "HTTP/1.1 200" : "HTTP/1.1 101", 12))
			fail("the handshake, or a publication, was refused");
		if (!l->publisher) {
			l->open = 1;
			put_text(l, "{\"id\":1,\"connect\":{}}");
			put_text(l, "{\"id\":2,\"subscribe\":{\"channel\":\"client\"}}");
		}
		return end;
	}
	if (n < 2)
		return 0;
	size_t head = 2, size = (unsigned char)p[1] & 127;
	if (size == 126) {
		if (n < 4)
			return 0;
		head = 4, size = (size_t)(unsigned char)p[2] << 8 | (unsigned char)p[3];
	}
	if (size == 127)
		fail("a message is too large");
	if (n < head + size)
		return 0;
	if ((p[0] & 15) == 1)
		message(l, p + head, size);
	return head + size;
}

static size_t (*take)(struct link *, const char *, size_t);

// receive reads once, and takes in what is complete.
static void receive(struct link *l) {
	static char buffer[4 * ROOM];
	if (l->have)
		memcpy(buffer, l->in, (size_t)l->have);
	ssize_t n = read(l->fd, buffer + l->have, sizeof buffer - (size_t)l->have);
	if (n <= 0)
		fail("the server has closed a connection");
	size_t all = (size_t)(l->have + n), used = 0;
	for (size_t one; used < all && (one = take(l, buffer + used, all - used)); used += one)
		;
	l->have = (int)(all - used);
	if (l->have == 0)
		return;
	if (l->have > ROOM)
		fail("an answer is too large");
	if (!l->in && !(l->in = malloc(ROOM)))
		die("malloc");
	memcpy(l->in, buffer + used, (size_t)l->have);
}

// serve waits for at most ms milliseconds, and serves what has come.
static void serve(int ms) {
	struct epoll_event events[256];
	int n = epoll_wait(poller, events, 256, ms);
	if (n < 0 && errno != EINTR)
		die("epoll_wait");
	for (int i = 0; i < n; i++)
		receive(events[i].data.ptr);
}

static void closed_loop(const char *path, double seconds) {
	char text[512];
	request_size = (size_t)snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host);
	request = text;
	take = http;
	for (int i = 0; i < count; i++) {
		dial(&links[i]);
		links[i].since = now();
		put(&links[i], request, request_size);
	}
	begin();
	int64_t end = began + (int64_t)(seconds * 1e9);
	while (now() < end)
		serve(100);
}

static void publish(int64_t number, int64_t due, int size) {
	char body[ROOM], text[ROOM + 512];
	int n = snprintf(body, 256, "{\"channel\":\"client\",\"data\":");
	int from = n;
	n += snprintf(body + n, 256, "{\"seq\":%lld,\"due\":%lld,\"pad\":\"", (long long)number, (long long)due);
	while (n - from < size - 2)
		body[n++] = 'x';
	n += snprintf(body + n, 4, "\"}}");
	int m = snprintf(text, sizeof text, "POST /api/publish HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
		"Content-Length: %d\r\n\r\n%s", host, n, body);
	put(&links[count], text, (size_t)m);
}

static void broadcast(double rate, double seconds, int size) {
	if (size > ROOM / 2)
		fail("the publications are too large");
	char hello[512];
	int n = snprintf(hello, sizeof hello, "GET /connection/websocket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\n"
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", host);
	take = push;
	for (int i = 0; i < count; i++) {
		dial(&links[i]);
		put(&links[i], hello, (size_t)n);
		if (i % 64 == 63)
			serve(0);
	}
	links[count].publisher = 1;
	dial(&links[count]);
	while (subscribed < count)
		serve(100);
	begin();
	int64_t all = (int64_t)(rate * seconds);
	for (int64_t k = 0; k < all;) {
		int64_t due = began + (int64_t)((double)k * 1e9 / rate), wait = (due - now() + 999999) / 1000000;
		if (wait <= 0)
			publish(++k, due, size);
		serve(wait > 0 ? (int)wait : 0);
	}
	int64_t patience = now() + 10000000000LL;
	while (total < all * count && now() < patience)
		serve(100);
	if (total < all * count)
		fail("deliveries are missing");
}

int main(int argc, char **argv) {
	if (argc < 6)
		fail("usage: http HOST:PORT PATH CONNECTIONS SECONDS | push HOST:PORT CONNECTIONS RATE SECONDS SIZE");
	int subscribes = !strcmp(argv[1], "push");
	resolve(argv[2]);
	count = atoi(argv[subscribes ? 3 : 4]);
	links = calloc((size_t)count + 1, sizeof *links);
	poller = epoll_create1(EPOLL_CLOEXEC);
	if (!links || poller < 0)
		die("begin");
	if (subscribes && argc == 7)
		broadcast(atof(argv[4]), atof(argv[5]), atoi(argv[6]));
	else
		closed_loop(argv[3], atof(argv[5]));
	printf("%lld in %.0f, cpu %.0f, p50 %.1f, p99 %.1f\n", (long long)total, (double)(now() - began) / 1000,
		(double)(now_in(CLOCK_PROCESS_CPUTIME_ID) - used) / 1000, quantile(0.5), quantile(0.99));
	return 0;
}
