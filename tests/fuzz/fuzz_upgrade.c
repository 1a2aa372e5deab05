/* Aim: no upgrade answer makes the client read outside, loop or take what it should not, and where
 * its bytes are cut makes no difference. Input: one byte (the length of the pieces), the answer. */
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "transport/qwp_http_upgrade.h"

static enum qwp_result read_pieces(struct qwp_upgrade *u, const uint8_t *bytes, size_t size,
                                   size_t piece, size_t *left)
{
    static const unsigned char key[16] = "the sample nonce";
    qwp_upgrade_init_with_key(u, key);
    struct qwp_error err;
    enum qwp_result result = QWP_AGAIN;
    size_t off = 0;
    while (result == QWP_AGAIN && off < size) {
        const size_t n = size - off < piece ? size - off : piece;
        unsigned char *copy = malloc(n); /* so that a read beyond is seen */
        QWP_ASSERT(copy != NULL);
        memcpy(copy, bytes + off, n);
        const unsigned char *at = copy;
        result = qwp_upgrade_read(u, &at, copy + n, &err);
        off += (size_t)(at - copy);
        free(copy);
    }
    *left = size - off;
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct qwp_upgrade whole;
    static struct qwp_upgrade cut;
    if (size == 0) {
        return 0;
    }
    size_t whole_left;
    size_t cut_left;
    const enum qwp_result result = read_pieces(&whole, data + 1, size - 1, size, &whole_left);
    QWP_ASSERT(read_pieces(&cut, data + 1, size - 1, (size_t)data[0] + 1, &cut_left) == result);
    if (result == QWP_OK) {
        QWP_ASSERT(whole_left == cut_left);
        QWP_ASSERT(whole.status == cut.status && whole.version == cut.version &&
                   whole.batch_max == cut.batch_max && strcmp(whole.role, cut.role) == 0);
        QWP_ASSERT(memchr(whole.role, 0, sizeof whole.role) != NULL);
        QWP_ASSERT(memchr(whole.reason, 0, sizeof whole.reason) != NULL);
    }
    return 0;
}
