"""Rows as columnar chunks through the producer library: Arrow's layout, built by hand."""
import ctypes
import struct
from ctypes import POINTER, byref, c_int32, c_int64, c_size_t, c_uint32, c_void_p, cast

PACK = {"byte": "b", "short": "h", "int": "i", "long": "q", "float": "f", "double": "d", "char": "H",
        "ipv4": "I", "date": "q", "timestamp": "q", "timestamp_ns": "q", "geohash": "Q"}
BYTES = {"uuid": 16, "long256": 32, "decimal64": 8, "decimal128": 16, "decimal256": 32}
AT = {"ns": 1, "us": 2, None: 3}


class Column(ctypes.Structure):
    _fields_ = [("values", c_void_p), ("validity", c_void_p), ("offsets", POINTER(c_int32)),
                ("handles", POINTER(c_uint32)), ("handle_count", c_size_t)]


def bits(flags):
    out = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        out[i // 8] |= bool(flag) << i % 8
    return bytes(out)


def array_part(kind, value):
    shape, flat = [], value
    while isinstance(flat, list):
        shape.append(len(flat))
        flat = flat[0] if flat else None
    items = [value]
    for _ in shape:
        items = [x for item in items for x in item]
    return struct.pack("<B%di%d%s" % (len(shape), len(items), "d" if kind == "double_array" else "q"),
                       len(shape), *shape, *items)


def part(kind, value):
    if kind.endswith("_array"):
        return array_part(kind, value)
    return value if isinstance(value, bytes) else value.encode()


def raw(kind, value):
    """A value of fixed width; a null one as bytes that nobody may look at."""
    if kind in PACK:
        size = struct.calcsize(PACK[kind])
        return b"\xff" * size if value is None else struct.pack("<" + PACK[kind], value)
    size = BYTES[kind]
    return b"\xff" * size if value is None else (value & (1 << 8 * size) - 1).to_bytes(size, "little")


class Chunk:
    """Values of one table's columns as arrays; `ahead` rows of rubbish come before them."""

    def __init__(self, table, rows, ahead=0, dictionary=False, leave_validity_out=False):
        self.table, self.ahead, self.count = table, ahead, len(rows)
        self.kept = []  # what C looks at
        self.columns = (Column * len(table.columns))()
        for i, (name, kind, _) in enumerate(table.columns):
            values = [None] * ahead + [row.get(name) for row in rows]
            self.fill(self.columns[i], kind, values, dictionary,
                      leave_validity_out and None not in values[ahead:])

    def keep(self, data):
        buffer = ctypes.create_string_buffer(data, max(1, len(data)))
        self.kept.append(buffer)
        return cast(buffer, c_void_p)

    def fill(self, column, kind, values, dictionary, no_validity):
        if all(value is None for value in values):
            return  # a NULL column
        if not no_validity:
            column.validity = self.keep(bits([value is not None for value in values]))
        if kind == "boolean":
            column.values = self.keep(bits(values))
        elif kind == "symbol" and dictionary:
            self.fill_dictionary(column, values)
        elif kind in ("symbol", "varchar", "binary") or kind.endswith("_array"):
            parts = [b"\xff" if value is None else part(kind, value) for value in values]
            self.fill_parts(column, parts)
        else:
            column.values = self.keep(b"".join(raw(kind, value) for value in values))

    def fill_parts(self, column, parts):
        offsets = [0]
        for piece in parts:
            offsets.append(offsets[-1] + len(piece))
        array = (c_int32 * len(offsets))(*offsets)
        self.kept.append(array)
        column.offsets = cast(array, POINTER(c_int32))
        column.values = self.keep(b"".join(parts))

    def fill_dictionary(self, column, values):
        producer = self.table.producer
        texts = sorted({value for value in values if value is not None})
        handles = (c_uint32 * len(texts))()
        for i, text in enumerate(texts):
            handle = c_uint32()
            raw_text = text.encode()
            producer.check(producer.lib.qwp_symbol_intern(
                producer.handle, raw_text, c_size_t(len(raw_text)), byref(handle),
                byref(producer.err)))
            handles[i] = handle
        self.kept.append(handles)
        column.handles, column.handle_count = cast(handles, POINTER(c_uint32)), len(texts)
        column.values = self.keep(b"".join(
            struct.pack("<I", 0xFFFFFFFF if value is None else texts.index(value))
            for value in values))

    def offsets_fall(self):
        """Spoils the first column, which has texts."""
        self.columns[0].offsets[1] = 1 << 20

    def write(self, unit, times):
        """Publishes the rows; `times`: one each, or None with unit None. Gives how many went."""
        producer, lib = self.table.producer, self.table.producer.lib
        layout = c_void_p()
        indexes = (c_uint32 * len(self.table.columns))(*range(len(self.table.columns)))
        producer.check(lib.qwp_layout_define(self.table.handle, indexes, c_size_t(len(indexes)),
                                             AT[unit], byref(layout), byref(producer.err)))
        at = None
        if unit is not None:
            at = (c_int64 * (self.ahead + self.count))(*([-1] * self.ahead + list(times)))
        done = c_size_t()
        producer.check(lib.qwp_chunk_write(producer.handle, layout, self.columns, at,
                                           c_size_t(self.ahead), c_size_t(self.count), byref(done),
                                           byref(producer.err)))
        return done.value
