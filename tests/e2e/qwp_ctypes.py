"""The producer library through ctypes, as far as the tests need it."""
import ctypes
import struct
from ctypes import byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int8
from ctypes import c_int16, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p

from qwp_chunks import Chunk

TYPES = {
    "boolean": 0x01, "byte": 0x02, "short": 0x03, "int": 0x04, "long": 0x05, "float": 0x06,
    "double": 0x07, "symbol": 0x09, "timestamp": 0x0a, "date": 0x0b, "uuid": 0x0c,
    "long256": 0x0d, "geohash": 0x0e, "varchar": 0x0f, "timestamp_ns": 0x10,
    "double_array": 0x11, "long_array": 0x12, "decimal64": 0x13, "decimal128": 0x14,
    "decimal256": 0x15, "char": 0x16, "binary": 0x17, "ipv4": 0x18,
}
OK = 0


class Column(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("parameter", c_uint8)]


class Options(ctypes.Structure):
    """struct qwp_producer_options; what lies behind `instance` stays zero."""
    _fields_ = [("dir", c_char_p), ("instance", c_char_p), ("name", c_char_p),
                ("rest", c_char * 256)]


class Error(ctypes.Structure):
    _fields_ = [("sys_errno", c_int), ("delivery", c_int), ("text", c_char * 512)]


class QwpError(Exception):
    pass


SCALARS = {
    "boolean": c_bool, "byte": c_int8, "short": c_int16, "int": c_int32, "long": c_int64,
    "float": c_float, "double": c_double, "char": c_uint16, "ipv4": c_uint32, "date": c_int64,
    "timestamp": c_int64, "timestamp_ns": c_int64, "geohash": c_uint64,
}


class Producer:
    def __init__(self, library, rings, name="test"):
        self.lib = ctypes.CDLL(library)
        for function in ("qwp_row_begin",):
            getattr(self.lib, function).restype = c_void_p
        self.lib.qwp_position_published.restype = c_uint64
        self.err = Error()
        self.handle = c_void_p()
        options = Options(dir=rings.encode(), name=name.encode())
        self.check(self.lib.qwp_producer_open(byref(self.handle), byref(options), byref(self.err)))

    def check(self, result):
        if result != OK:
            raise QwpError("%d: %s" % (result, self.err.text.decode()))

    def table(self, name, columns):
        """`columns`: (name, type name, parameter)."""
        table = c_void_p()
        array = (Column * len(columns))(*[Column(n.encode(), TYPES[t], p) for n, t, p in columns])
        self.check(self.lib.qwp_table_define(self.handle, name.encode(), array,
                                             c_size_t(len(columns)), byref(table),
                                             byref(self.err)))
        return Table(self, table, columns)

    def rows(self, rows):
        """`rows`: (table, and what its row() is given)."""
        for table, *row in rows:
            table.row(*row)

    def position_published(self):
        return self.lib.qwp_position_published(self.handle)

    def wait_acked(self, seconds=60):
        self.check(self.lib.qwp_wait_acked(self.handle, c_uint64(self.position_published()),
                                           c_int64(int(seconds * 1e9)), byref(self.err)))

    def unit_begin(self):
        self.check(self.lib.qwp_unit_begin(self.handle, byref(self.err)))

    def unit_publish(self):
        self.check(self.lib.qwp_unit_publish(self.handle, byref(self.err)))

    def close(self):
        self.lib.qwp_producer_close(self.handle)
        self.handle = c_void_p()


class Table:
    def __init__(self, producer, handle, columns):
        self.producer, self.handle, self.columns = producer, handle, columns

    def row(self, values, at=None):
        """`values`: by column, None is null and may be left out. `at`: ("ns"|"us", time) or None."""
        lib, err = self.producer.lib, self.producer.err
        row = c_void_p(lib.qwp_row_begin(self.handle))
        for index, (name, kind, _) in enumerate(self.columns):
            value = values.get(name)
            if value is not None:
                self.set(row, c_uint32(index), kind, value)
        if at is None:
            result = lib.qwp_row_at_now(row, byref(err))
        else:
            finish = lib.qwp_row_at_ns if at[0] == "ns" else lib.qwp_row_at_us
            result = finish(row, c_int64(at[1]), byref(err))
        self.producer.check(result)

    def chunk(self, rows, **options):
        """Rows as in row(), to be written at once (qwp_chunks.Chunk)."""
        return Chunk(self, rows, **options)

    def set(self, row, index, kind, value):
        lib = self.producer.lib
        if kind in SCALARS:
            getattr(lib, "qwp_row_" + kind)(row, index, SCALARS[kind](value))
        elif kind in ("symbol", "varchar", "binary"):
            data = value if isinstance(value, bytes) else value.encode()
            getattr(lib, "qwp_row_" + kind)(row, index, data, c_size_t(len(data)))
        elif kind == "uuid":
            lib.qwp_row_uuid(row, index, c_uint64(value >> 64), c_uint64(value & (1 << 64) - 1))
        elif kind == "long256":
            lib.qwp_row_long256(row, index, words(value, 4))
        elif kind.startswith("decimal"):
            count = int(kind[len("decimal"):]) // 64
            lib.qwp_row_decimal(row, index, words(value, count), c_size_t(count))
        else:
            self.set_array(row, index, kind, value)

    def set_array(self, row, index, kind, value):
        """`value`: nested lists of one shape."""
        shape, flat = [], value
        while isinstance(flat, list):
            shape.append(len(flat))
            flat = flat[0] if flat else None
        items = [value]
        for _ in shape:
            items = [x for item in items for x in item]
        element = c_double if kind == "double_array" else c_int64
        getattr(self.producer.lib, "qwp_row_" + kind)(
            row, index, (element * max(1, len(items)))(*items),
            (c_uint32 * len(shape))(*shape), c_size_t(len(shape)))


def words(value, count):
    """Two's complement, least significant word first."""
    raw = (value & (1 << 64 * count) - 1).to_bytes(8 * count, "little")
    return (c_uint64 * count)(*struct.unpack("<%dQ" % count, raw))


__all__ = ["Producer", "Table", "QwpError", "TYPES"]
