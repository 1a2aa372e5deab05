#include "tests/ipc/ipc_fixture.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct qwp_error fixture_err;
int fixture_dir_fd = -1;
char fixture_dir[64];
const struct qwp_ring_limits no_limits = {
    .data_bytes_max = QWP_RING_DATA_BYTES_MAX,
    .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX,
};

void fixture_make_dir(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(fixture_dir, sizeof fixture_dir, "%s/qwp-test-XXXXXX", base);
    if (mkdtemp(fixture_dir) == NULL) {
        perror(fixture_dir);
        exit(1);
    }
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

void fixture_remove_dir(void)
{
    nftw(fixture_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void fixture_open(void)
{
    /* An instance of its own for each test. */
    char name[32];
    snprintf(name, sizeof name, "i%ld", (long)getpid());
    ASSERT_OK(qwp_rendezvous_open(fixture_dir, name, &fixture_dir_fd, &fixture_err));
}

TCase *fixture_case(Suite *suite, const char *name)
{
    TCase *test_case = tcase_create(name);
    tcase_add_unchecked_fixture(test_case, fixture_make_dir, fixture_remove_dir);
    tcase_add_checked_fixture(test_case, fixture_open, NULL);
    suite_add_tcase(suite, test_case);
    return test_case;
}

void pair_open(struct pair *pair)
{
    const struct qwp_ring_options options = {
        .name = "test",
        .data_bytes = QWP_RING_DATA_BYTES_MIN,
        .defs_bytes_max = 2 * QWP_RING_STEP,
        .unit_bytes_max = 8192,
    };
    ASSERT_OK(qwp_ring_create(&pair->tx, fixture_dir_fd, &options, &fixture_err));
    ASSERT_OK(
        qwp_ring_open(&pair->rx, fixture_dir_fd, pair->tx.file_name, &no_limits, &fixture_err));
}

void pair_close(struct pair *pair)
{
    qwp_ring_close_tx(&pair->tx);
    qwp_ring_close_rx(&pair->rx);
}

void put_record(struct qwp_ring_tx *tx, uint32_t bytes, unsigned char fill)
{
    unsigned char *at;
    ASSERT_RESULT(qwp_ring_reserve(tx, bytes, &at), QWP_OK);
    memset(at, fill, bytes);
    qwp_ring_commit(tx, bytes);
    qwp_ring_publish(tx, 1);
}

void sidecar_open(struct sidecar *sidecar, enum qwp_bell_mode mode, bool fence)
{
    const struct qwp_control_options options = {
        .bell_mode = mode,
        .bell_fence = fence,
        .producers_max = 4,
        .ring_bytes_max = QWP_RING_DATA_BYTES_MAX,
    };
    ASSERT_OK(qwp_control_create(&sidecar->control, fixture_dir_fd, &options, &fixture_err));
    ASSERT_OK(qwp_bell_rx_open(&sidecar->bell, fixture_dir_fd, &sidecar->control, &fixture_err));
}

void sidecar_park(struct sidecar *sidecar, bool lingering)
{
    const bool sure = qwp_bell_park(&sidecar->bell, lingering, false);
    (void)sure;
}

void sidecar_close(struct sidecar *sidecar)
{
    qwp_bell_rx_close(&sidecar->bell);
    qwp_control_close(&sidecar->control);
}

void names_add(void *owner, const char *file_name)
{
    struct names *names = owner;
    if (file_name == NULL) {
        names->overflows++;
        return;
    }
    names->count++;
    snprintf(names->last, sizeof names->last, "%s", file_name);
}
