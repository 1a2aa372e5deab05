#include "sidecar/qwp_damage.h"

#include <inttypes.h>

#include "core/qwp_log.h"
#include "core/store/qwp_store_layout.h"

void qwp_damage_log_recovered(const char *store, const struct qwp_seglog_recovery *recovered)
{
    if (recovered->damage_count > 0) {
        qwp_log(QWP_LOG_ERROR, "store was damaged; what could not be used is kept",
                "store=\"%s\" damage=\"%s\" files_set_aside=%u slot_set_aside=\"%s\"", store,
                recovered->damage, recovered->files_set_aside, recovered->slot_set_aside);
    }
    if (recovered->lacks_symbols) {
        qwp_log(QWP_LOG_WARN, "store lacks symbols; its frames bring them",
                "store=\"%s\" file=" QWP_DICT_FILE_NAME " symbols=%u frames_waiting=%" PRIu64,
                store, recovered->symbols, recovered->frames_waiting);
    }
}

void qwp_damage_log_found(const char *store, const struct qwp_seglog_damage *damage)
{
    if (damage->is_settled) {
        qwp_log(QWP_LOG_ERROR, "store was damaged; what could not be used is kept",
                "store=\"%s\" damage=\"%s\" files_set_aside=%u slot_set_aside=\"\"", store,
                damage->text, damage->files_set_aside);
    } else {
        qwp_log(QWP_LOG_ERROR,
                "store is damaged; what lies behind is set aside once all before is sent",
                "store=\"%s\" damage=\"%s\"", store, damage->text);
    }
}
