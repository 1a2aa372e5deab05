#include "core/conf/qwp_endpoints.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/conf/qwp_option.h"

static bool host_is_valid(const char *host, bool bracketed)
{
    if (bracketed) {
        char address[64];
        struct in6_addr binary;
        /* A link-local address may name its interface behind a '%'. */
        const size_t len = strcspn(host, "%");
        if (len >= sizeof address) {
            return false;
        }
        memcpy(address, host, len);
        address[len] = '\0';
        return inet_pton(AF_INET6, address, &binary) == 1;
    }
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    const size_t len = strlen(host);
    return len > 0 && len <= 253 && strspn(host, allowed) == len;
}

static bool read_port(const char *text, uint16_t *port)
{
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != '\0') {
        return false;
    }
    const long number = strtol(text, NULL, 10);
    *port = (uint16_t)number;
    return number >= 1 && number <= UINT16_MAX;
}

static enum qwp_result append(struct qwp_endpoints *endpoints, const char *host, uint16_t port,
                              struct qwp_error *err)
{
    for (size_t i = 0; i < endpoints->count; i++) {
        const struct qwp_endpoint *other = &endpoints->list[i];
        if (other->port == port && strcasecmp(other->host, host) == 0) {
            return qwp_fail(err, QWP_INVALID, 0, "addr: '%s' with port %u is given twice",
                            qwp_show(host).text, (unsigned)port);
        }
    }
    struct qwp_endpoint *grown =
        realloc(endpoints->list, (endpoints->count + 1) * sizeof *endpoints->list);
    if (grown == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "addr: no memory");
    }
    endpoints->list = grown;
    endpoints->list[endpoints->count++] = (struct qwp_endpoint){host, port};
    return QWP_OK;
}

/* Cuts `entry` into host and port, in place. */
static enum qwp_result parse_one(struct qwp_endpoints *endpoints, char *entry,
                                 struct qwp_error *err)
{
    const struct qwp_shown shown = qwp_show(entry);
    const bool bracketed = entry[0] == '[';
    char *host = bracketed ? entry + 1 : entry;
    uint16_t port = QWP_PORT_DEFAULT;
    if (entry[0] == '\0') {
        return qwp_fail(err, QWP_INVALID, 0, "addr: holds an empty entry");
    }
    if (strchr(entry, '@') != NULL) { /* perhaps user:password@host: say nothing of it */
        return qwp_fail(err, QWP_INVALID, 0,
                        "addr: holds an '@': credentials go into username and password");
    }
    char *behind = bracketed ? strchr(entry, ']') : strchr(entry, ':');
    if (bracketed && behind == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "addr: '%s' has no closing ']'", shown.text);
    }
    if (bracketed) {
        *behind++ = '\0';
    } else if (behind != NULL && strchr(behind + 1, ':') != NULL) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "addr: '%s' has several ':'; write an IPv6 address as [::1]:9000",
                        shown.text);
    }
    if (behind != NULL && *behind != '\0') {
        const bool colon = *behind == ':';
        *behind = '\0';
        if (!colon || !read_port(behind + 1, &port)) {
            return qwp_fail(err, QWP_INVALID, 0, "addr: '%s' has no port from 1 to 65535",
                            shown.text);
        }
    }
    if (!host_is_valid(host, bracketed)) {
        return qwp_fail(err, QWP_INVALID, 0, "addr: '%s' is no host name or address", shown.text);
    }
    return append(endpoints, host, port, err);
}

enum qwp_result qwp_endpoints_parse(struct qwp_endpoints *endpoints, char *value,
                                    struct qwp_error *err)
{
    for (char *entry = value; entry != NULL;) {
        char *comma = strchr(entry, ',');
        if (comma != NULL) {
            *comma++ = '\0';
        }
        const enum qwp_result result = parse_one(endpoints, entry, err);
        if (result != QWP_OK) {
            return result;
        }
        entry = comma;
    }
    return QWP_OK;
}

void qwp_endpoints_fini(struct qwp_endpoints *endpoints)
{
    free(endpoints->list);
    *endpoints = (struct qwp_endpoints){0};
}
