#include "sidecar/qwp_damage.h"

#include "core/qwp_log.h"

void qwp_damage_log_recovered(const char *store, const struct qwp_seglog_recovery *recovered)
{
    if (recovered->damage_count > 0) {
        qwp_log(QWP_LOG_ERROR, "store was damaged; what could not be used is kept",
                "store=\"%s\" damage=\"%s\" files_set_aside=%u slot_set_aside=\"%s\"", store,
                recovered->damage, recovered->files_set_aside, recovered->slot_set_aside);
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
