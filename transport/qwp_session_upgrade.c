#include "transport/qwp_session_internal.h"

#include <openssl/crypto.h>
#include <string.h>

static enum qwp_down_cause cause_of_status(int status)
{
    switch (status) {
    case 401:
    case 403:
        return QWP_DOWN_AUTH;
    case 421:
        return QWP_DOWN_ROLE;
    default:
        return QWP_DOWN_HTTP;
    }
}

static void refuse_upgrade(struct qwp_session *s)
{
    const struct qwp_upgrade *u = &s->upgrade;
    s->down.http_status = u->status;
    qwp_session_note_down(s, cause_of_status(u->status), 0, "the server answered %d %s%s%s%s",
                          u->status, u->reason, u->role[0] != '\0' ? " (role " : "", u->role,
                          u->role[0] != '\0' ? ")" : "");
    qwp_session_end(s);
}

static size_t message_bytes_max(const struct qwp_upgrade *u)
{
    if (u->batch_max == 0) {
        return QWP_MESSAGE_BYTES_DEFAULT;
    }
    const uint64_t limit =
        u->batch_max < QWP_MESSAGE_BYTES_MAX ? u->batch_max : QWP_MESSAGE_BYTES_MAX;
    return (size_t)(limit - limit / 10);
}

void qwp_session_on_upgraded(struct qwp_session *s)
{
    const struct qwp_upgrade *u = &s->upgrade;
    memcpy(s->down.role, u->role, sizeof s->down.role);
    if (u->status != 101) {
        refuse_upgrade(s);
        return;
    }
    if (u->version != QWP_WIRE_VERSION) {
        qwp_session_note_down(s, QWP_DOWN_VERSION, 0,
                              "the server speaks QWP version %u, we speak %d", u->version,
                              QWP_WIRE_VERSION);
        qwp_session_end(s);
        return;
    }
    if (s->options->durable_ack && !u->durable_ack) {
        qwp_session_note_down(
            s, QWP_DOWN_DURABLE, 0,
            "durable acknowledgements were asked for and the server does not offer them");
        qwp_session_end(s);
        return;
    }
    s->state = STATE_UP;
    s->down.was_up = true;
    s->counters.connects++;
    const int64_t now_ns = session_now_ns(s);
    s->sent_ns = s->received_ns = s->quiet_since_ns = now_ns;
    s->was_due = true; /* the phase's timer moves to the first ping: nobody is woken for it */
    qwp_session_plan_timer(s, now_ns);
    s->options->callbacks->up(s->options->owner, message_bytes_max(u));
}

void qwp_session_begin_upgrade(struct qwp_session *s)
{
    s->state = STATE_UPGRADING;
    qwp_upgrade_init(&s->upgrade);
    const struct qwp_upgrade_request request = {
        .host = s->host,
        .port = s->port,
        .client_id = s->options->client_id,
        .authorization = s->options->authorization,
        .durable_ack = s->options->durable_ack,
    };
    char text[QWP_UPGRADE_REQUEST_MAX];
    size_t len;
    struct qwp_error err;
    if (qwp_upgrade_write(&s->upgrade, &request, text, &len, &err) != QWP_OK) {
        qwp_session_fail_now(s, QWP_DOWN_AUTH, err.text);
        return;
    }
    for (size_t off = 0; off < len && s->state == STATE_UPGRADING;) {
        const size_t n = len - off < QWP_TLS_PLAIN_MAX ? len - off : QWP_TLS_PLAIN_MAX;
        if (s->options->tls) {
            memcpy(s->staged, text + off, n);
            s->staged_len = n;
            (void)qwp_session_write_record(s);
        } else {
            memcpy(qwp_outbox_end(&s->outbox), text + off, n);
            qwp_outbox_appended(&s->outbox, n);
        }
        off += n;
    }
    OPENSSL_cleanse(text, len);
    qwp_session_want_soon(s);
}
