#include "sidecar/qwp_json.h"

#include <stdbool.h>
#include <string.h>

#include "core/wire/qwp_names.h"

void qwp_text_clean(char *text)
{
    const bool is_utf8 = qwp_utf8_valid(text, strlen(text));
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        const bool is_control = *at < 0x20 || *at == 0x7f;
        /* U+0080 to U+009f are two bytes, and terminals obey them. */
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) {
            at[0] = '?';
            at[1] = '?';
        } else if (is_control || (*at >= 0x80 && !is_utf8)) {
            *at = '?';
        }
    }
}

void qwp_json_text(FILE *out, const char *text)
{
    const bool is_utf8 = qwp_utf8_valid(text, strlen(text));
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            fputc('\\', out);
            fputc(*at, out);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", *at);
        } else {
            fputc(*at >= 0x80 && !is_utf8 ? '?' : *at, out);
        }
    }
    fputc('"', out);
}
