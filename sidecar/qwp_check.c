#include "sidecar/qwp_check.h"

#include <stdarg.h>
#include <string.h>

#include "sidecar/qwp_json.h"

static const char *const level_names[] = {"ok", "warn", "fail"};

void qwp_check_add(struct qwp_check *check, enum qwp_check_level level, const char *subject,
                   const char *advice, const char *format, ...)
{
    char found[QWP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    qwp_text_clean(found);
    const bool has_advice = level != QWP_CHECK_OK && advice != NULL;
    if (check->json) {
        const unsigned before = check->counts[0] + check->counts[1] + check->counts[2];
        fprintf(check->out, "%s{\"name\":", before > 0 ? "," : "");
        qwp_json_text(check->out, subject);
        fprintf(check->out, ",\"level\":\"%s\",\"found\":", level_names[level]);
        qwp_json_text(check->out, found);
        fputs(",\"advice\":", check->out);
        qwp_json_text(check->out, has_advice ? advice : "");
        fputs("}", check->out);
    } else {
        fprintf(check->out, "%-4s  %-18s  %s\n", level_names[level], subject, found);
        if (has_advice) {
            fprintf(check->out, "%26s-> %s\n", "", advice);
        }
    }
    check->counts[level]++;
}

static void check_conf(struct qwp_check *check, const struct qwp_conf *conf,
                       const struct qwp_error *conf_error)
{
    if (conf_error != NULL) {
        qwp_check_add(check, QWP_CHECK_FAIL, "connect string",
                      "correct it; `qwp-sidecar run --help` lists the keys", "%s",
                      conf_error->text);
        return;
    }
    if (conf == NULL) {
        qwp_check_add(check, QWP_CHECK_WARN, "connect string",
                      "give --conf, --conf-file or " QWP_CONF_ENV " to have servers tried",
                      "none given");
        return;
    }
    qwp_check_add(check, QWP_CHECK_OK, "connect string", NULL, "%s, %zu server%s, %s",
                  conf->tls ? "wss" : "ws", conf->endpoints.count,
                  conf->endpoints.count == 1 ? "" : "s",
                  conf->authorization != NULL ? "with credentials" : "no credentials");
    if (conf->ignored_count > 0) {
        qwp_check_add(check, QWP_CHECK_OK, "ignored keys", NULL,
                      "%zu without meaning to a sidecar, the first is %s", conf->ignored_count,
                      conf->ignored[0]);
    }
    if (!conf->tls && conf->authorization != NULL) {
        qwp_check_add(check, QWP_CHECK_WARN, "credentials", "use the schema wss",
                      "the connection is not encrypted: anyone on the way can read them");
    }
    if (conf->tls && conf->tls_verify != QWP_TLS_VERIFY_ON) {
        qwp_check_add(check, QWP_CHECK_WARN, "tls_verify",
                      "remove tls_verify=unsafe_off; name a private authority with tls_roots",
                      "certificates are not checked: anyone can pose as the server");
    }
}

int qwp_check_run(const struct qwp_options *options, const struct qwp_conf *conf,
                  const struct qwp_error *conf_error)
{
    struct qwp_check check = {.out = stdout, .json = options->json};
    fputs(check.json ? "{\"checks\":[" : "", check.out);
    qwp_check_kernel(&check);
    qwp_check_limits(&check, options);
    qwp_check_rings(&check, options);
    check_conf(&check, conf, conf_error);
    if (conf != NULL) {
        qwp_check_store(&check, options, conf);
        qwp_check_servers(&check, options, conf);
    }
    const unsigned *counts = check.counts;
    if (check.json) {
        fprintf(check.out, "],\"ok\":%u,\"warn\":%u,\"fail\":%u}\n", counts[QWP_CHECK_OK],
                counts[QWP_CHECK_WARN], counts[QWP_CHECK_FAIL]);
    } else {
        fprintf(check.out, "\n%u ok, %u warn, %u fail\n", counts[QWP_CHECK_OK],
                counts[QWP_CHECK_WARN], counts[QWP_CHECK_FAIL]);
    }
    return counts[QWP_CHECK_FAIL] > 0 ? 1 : 0;
}
