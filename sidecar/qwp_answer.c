#include "sidecar/qwp_answer.h"

#include "core/wire/qwp_wire.h"

static const struct {
    uint8_t status;
    const char *name;
} answers[QWP_CONTROL_ANSWERS - 1] = {
    {QWP_STATUS_SCHEMA_MISMATCH, "SCHEMA_MISMATCH"}, {QWP_STATUS_PARSE_ERROR, "PARSE_ERROR"},
    {QWP_STATUS_INTERNAL_ERROR, "INTERNAL_ERROR"},   {QWP_STATUS_SECURITY_ERROR, "SECURITY_ERROR"},
    {QWP_STATUS_WRITE_ERROR, "WRITE_ERROR"},         {QWP_STATUS_NOT_WRITABLE, "NOT_WRITABLE"},
    {QWP_STATUS_DICTIONARY_GAP, "DICTIONARY_GAP"},
};

uint32_t qwp_answer_index(uint8_t status)
{
    uint32_t i = 0;
    while (i < QWP_CONTROL_ANSWERS - 1 && answers[i].status != status) {
        i++;
    }
    return i;
}

const char *qwp_answer_name(uint32_t index)
{
    return index < QWP_CONTROL_ANSWERS - 1 ? answers[index].name : "unknown";
}
