#include "sidecar/qwp_identity.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/conf/qwp_option.h"

enum { WORD_BYTES = 64 };

/* All digits, and not the number that means "nobody" to system calls. */
static bool parse_number(const char *word, uint32_t *number)
{
    if (word[0] == '\0' || strspn(word, "0123456789") != strlen(word)) {
        return false;
    }
    errno = 0;
    const unsigned long long v = strtoull(word, NULL, 10);
    *number = (uint32_t)v;
    return errno == 0 && v < UINT32_MAX;
}

static enum qwp_result user_find(const char *word, uint32_t *uid, struct qwp_error *err)
{
    if (parse_number(word, uid)) {
        return QWP_OK;
    }
    const struct passwd *user = getpwnam(word);
    if (user == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "no user is called '%s' here; a number works always",
                        qwp_show(word).text);
    }
    *uid = (uint32_t)user->pw_uid;
    return QWP_OK;
}

enum qwp_result qwp_identity_users(const char *list, uint32_t uids[QWP_IDENTITY_USERS_MAX],
                                   uint32_t *count, struct qwp_error *err)
{
    *count = 0;
    for (const char *at = list; *at != '\0';) {
        const size_t len = strcspn(at, ",");
        char word[WORD_BYTES];
        if (len == 0 || len >= sizeof word || *count == QWP_IDENTITY_USERS_MAX) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "'%s': expected up to %d users, names or numbers, with commas between",
                            qwp_show(list).text, QWP_IDENTITY_USERS_MAX);
        }
        memcpy(word, at, len);
        word[len] = '\0';
        const enum qwp_result result = user_find(word, &uids[*count], err);
        if (result != QWP_OK) {
            return result;
        }
        (*count)++;
        at += len + (at[len] == ',' ? 1 : 0);
    }
    return QWP_OK;
}

enum qwp_result qwp_identity_group(const char *text, uint32_t *gid, struct qwp_error *err)
{
    if (parse_number(text, gid)) {
        return QWP_OK;
    }
    const struct group *group = getgrnam(text);
    if (group == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "no group is called '%s' here; a number works always",
                        qwp_show(text).text);
    }
    *gid = (uint32_t)group->gr_gid;
    return QWP_OK;
}
