// The same in C++: the header's inline functions included.
#include <qwp.h>

#include <cstdio>
#include <cstring>

int main(int argc, char **argv)
{
    qwp_producer_options options{};
    options.dir = argc > 1 ? argv[1] : nullptr;
    qwp_producer *producer = nullptr;
    qwp_table *table = nullptr;
    const qwp_layout *layout = nullptr;
    qwp_error err{};
    const qwp_column columns[] = {{"s", QWP_SYMBOL, 0}, {"n", QWP_LONG, 0}};
    const uint32_t all[] = {0, 1};
    if (qwp_producer_open(&producer, &options, &err) != QWP_OK ||
        qwp_table_define(producer, "t", columns, 2, &table, &err) != QWP_OK ||
        qwp_layout_define(table, all, 2, QWP_AT_SERVER, &layout, &err) != QWP_OK) {
        std::fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    void *row = nullptr;
    if (qwp_row_reserve(producer, layout, 3, &row) != QWP_OK) {
        return 1;
    }
    qwp_reserved_symbol_text(row, qwp_layout_offset(layout, 0), 3);
    qwp_reserved_null(row, 1);
    std::memcpy(static_cast<char *>(row) + qwp_layout_var_offset(layout), "abc", 3);
    if (qwp_row_publish(producer) != QWP_OK) {
        return 1;
    }
    std::printf("%s %s %d\n", qwp_version(), qwp_result_name(QWP_OK),
                static_cast<int>(qwp_position_published(producer)));
    qwp_producer_close(producer);
    return 0;
}
