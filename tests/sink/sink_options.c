#include "tests/sink/sink_options.h"

#include <getopt.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/qwp_wire.h"
#include "tests/sink/sink_buffer.h"

enum option_id {
    OPTION_LISTEN = 256,
    OPTION_PORT_FILE,
    OPTION_TLS_SELF_SIGNED,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_AUTH,
    OPTION_TOKEN,
    OPTION_NDJSON,
    OPTION_SUMMARY,
    OPTION_FILES,
    OPTION_VERIFY,
    OPTION_LATENCY,
    OPTION_MAX_BATCH,
    OPTION_DURABLE,
    OPTION_DURABLE_ON_PING,
    OPTION_FAULT,
    OPTION_FAULT_SEED,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"port-file", required_argument, NULL, OPTION_PORT_FILE},
    {"tls-self-signed", required_argument, NULL, OPTION_TLS_SELF_SIGNED},
    {"tls-cert", required_argument, NULL, OPTION_TLS_CERT},
    {"tls-key", required_argument, NULL, OPTION_TLS_KEY},
    {"auth", required_argument, NULL, OPTION_AUTH},
    {"token", required_argument, NULL, OPTION_TOKEN},
    {"ndjson", required_argument, NULL, OPTION_NDJSON},
    {"summary", required_argument, NULL, OPTION_SUMMARY},
    {"files", required_argument, NULL, OPTION_FILES},
    {"verify", required_argument, NULL, OPTION_VERIFY},
    {"latency", required_argument, NULL, OPTION_LATENCY},
    {"max-batch", required_argument, NULL, OPTION_MAX_BATCH},
    {"durable", no_argument, NULL, OPTION_DURABLE},
    {"durable-on-ping", no_argument, NULL, OPTION_DURABLE_ON_PING},
    {"fault", required_argument, NULL, OPTION_FAULT},
    {"fault-seed", required_argument, NULL, OPTION_FAULT_SEED},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

const char *sink_options_help(void)
{
    return "usage: qwp-sink --listen ADDR:PORT [options]\n"
           "\n"
           "Takes rows as a QuestDB server would (QWP over WebSocket, at /write/v4), checks\n"
           "everything, acknowledges, and counts, shows or verifies them.\n"
           "\n"
           "  --listen ADDR:PORT      where to listen; [::1]:PORT for IPv6; port 0: a free one\n"
           "  --port-file FILE        write the port there once listening\n"
           "  --tls-self-signed DIR   TLS with a certificate for localhost, 127.0.0.1 and ::1, "
           "made\n"
           "                          there unless there is one; clients trust DIR/ca.pem\n"
           "  --tls-cert FILE --tls-key FILE\n"
           "                          TLS with this certificate chain and key (PEM)\n"
           "  --auth USER:PASS        ask for Basic credentials\n"
           "  --token TOKEN           ask for a Bearer token (with --auth: either will do)\n"
           "  --ndjson FILE           every row as a JSON line, in order of commit; -: stdout\n"
           "  --files DIR             the same, a file TABLE.ndjson for each table\n"
           "  --verify COLUMN[,KEY]   COLUMN counts 0, 1, 2, ... in each table (for each text of\n"
           "                          the symbol column KEY): count lost, doubled, disordered "
           "rows,\n"
           "                          and of the doubled those repeated on one connection\n"
           "  --latency COLUMN        COLUMN holds the monotonic clock (ns) at which a row was\n"
           "                          published on this host: how long rows took, since the last\n"
           "                          summary\n"
           "  --summary FILE          write the summary there too at the end\n"
           "  --max-batch BYTES       largest message taken (2097138)\n"
           "  --durable               grant durable acknowledgements to those who ask\n"
           "  --durable-on-ping       the same, but give them only when a ping comes\n"
           "  --fault FAULT           misbehave, see below; may be repeated\n"
           "  --fault-seed N          what throws the dice of faults with a chance (1)\n"
           "\n"
           "Prints a summary (one JSON object in a line) for each line \"summary\" on stdin, and "
           "at\n"
           "SIGTERM or SIGINT before it ends. Without --ndjson, --files, --verify and --latency "
           "values\n"
           "are skipped, not looked at, which is several times faster.\n"
           "\n"
           "More lines on stdin, each answered with the faults in a line of JSON:\n"
           "  fault FAULT             add one\n"
           "  faults                  only show them, with how often each has happened\n"
           "  faults clear            forget all\n"
           "\n";
}

static enum qwp_result parse_max_batch(struct sink_options *options, const char *text,
                                       struct qwp_error *err)
{
    char *end;
    const unsigned long long bytes = strtoull(text, &end, 10);
    if (*end != '\0' || bytes < 1024 || bytes > QWP_MESSAGE_BYTES_MAX) {
        return qwp_fail(err, QWP_INVALID, 0, "--max-batch '%s': a number of bytes, 1024 to %d",
                        text, QWP_MESSAGE_BYTES_MAX);
    }
    options->policy.message_bytes_max = (size_t)bytes;
    return QWP_OK;
}

static enum qwp_result parse_auth(struct sink_options *options, const char *text,
                                  struct qwp_error *err)
{
    if (strchr(text, ':') == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "--auth is USER:PASS");
    }
    const size_t len = strlen(text);
    free(options->auth_basic);
    options->auth_basic = sink_realloc(NULL, 4 * (len + 2) / 3 + 4);
    EVP_EncodeBlock((unsigned char *)options->auth_basic, (const unsigned char *)text, (int)len);
    options->policy.auth_basic = options->auth_basic;
    return QWP_OK;
}

static enum qwp_result parse_one(struct sink_options *options, int id, struct qwp_error *err)
{
    switch (id) {
    case OPTION_LISTEN:
        options->listen = optarg;
        return QWP_OK;
    case OPTION_PORT_FILE:
        options->port_file = optarg;
        return QWP_OK;
    case OPTION_TLS_SELF_SIGNED:
        options->tls_dir = optarg;
        return QWP_OK;
    case OPTION_TLS_CERT:
        options->tls_cert = optarg;
        return QWP_OK;
    case OPTION_TLS_KEY:
        options->tls_key = optarg;
        return QWP_OK;
    case OPTION_AUTH:
        return parse_auth(options, optarg, err);
    case OPTION_TOKEN:
        options->policy.auth_bearer = optarg;
        return QWP_OK;
    case OPTION_NDJSON:
        options->store.ndjson_path = optarg;
        return QWP_OK;
    case OPTION_SUMMARY:
        options->summary_path = optarg;
        return QWP_OK;
    case OPTION_FILES:
        options->store.files_dir = optarg;
        return QWP_OK;
    case OPTION_VERIFY:
        options->store.verify = optarg;
        return QWP_OK;
    case OPTION_LATENCY:
        options->store.latency = optarg;
        return QWP_OK;
    case OPTION_MAX_BATCH:
        return parse_max_batch(options, optarg, err);
    case OPTION_DURABLE_ON_PING:
        options->policy.durable_on_ping = true;
        /* fall through */
    case OPTION_DURABLE:
        options->policy.durable = true;
        return QWP_OK;
    case OPTION_FAULT:
        return sink_faults_add(&options->faults, optarg, err);
    case OPTION_FAULT_SEED:
        sink_faults_seed(&options->faults, strtoull(optarg, NULL, 0));
        return QWP_OK;
    case OPTION_HELP:
        options->help = true;
        return QWP_OK;
    default:
        return qwp_fail(err, QWP_INVALID, 0, "see --help");
    }
}

static enum qwp_result judge(const struct sink_options *options, struct qwp_error *err)
{
    if (options->help) {
        return QWP_OK;
    }
    if (options->listen == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "--listen ADDR:PORT is missing");
    }
    if ((options->tls_cert == NULL) != (options->tls_key == NULL)) {
        return qwp_fail(err, QWP_INVALID, 0, "--tls-cert and --tls-key go together");
    }
    if (options->tls_cert != NULL && options->tls_dir != NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "--tls-cert or --tls-self-signed, not both");
    }
    return QWP_OK;
}

enum qwp_result sink_options_parse(struct sink_options *options, int argc, char **argv,
                                   struct qwp_error *err)
{
    *options = (struct sink_options){
        .policy = {.message_bytes_max = SINK_MESSAGE_BYTES_DEFAULT,
                   .deferred_bytes_max = (size_t)256 * 1024 * 1024,
                   .answer_every = SINK_ANSWER_EVERY,
                   .faults = &options->faults},
    };
    sink_faults_init(&options->faults);
    for (int id = getopt_long(argc, argv, "", long_options, NULL); id != -1;
         id = getopt_long(argc, argv, "", long_options, NULL)) {
        const enum qwp_result result = parse_one(options, id, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    if (optind < argc) {
        return qwp_fail(err, QWP_INVALID, 0, "what is '%s'? see --help", argv[optind]);
    }
    return judge(options, err);
}
