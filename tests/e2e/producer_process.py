"""Producers through qwp_ctypes in a process of their own, as the user that producers are (stack.py).

    with ProducerProcess(become) as process:
        producer = process.producer(library, rings)     # as qwp_ctypes.Producer, and what it gives likewise

The process is forked, not a new interpreter: that user may not be allowed to run this one. What it makes stays there; here are
stand-ins, whose methods are called there, and whose errors are raised here."""
import os
import pickle
import socket

from qwp_chunks import Chunk
from qwp_ctypes import Producer, Table


class StandIn:
    def __init__(self, process, number):
        self._process, self._number = process, number

    def __getattr__(self, method):
        return lambda *arguments, **named: self._process.call(self, method, arguments, named)


class Pickler(pickle.Pickler):
    """`name(object)` gives what goes over the line instead of an object, or None."""

    def __init__(self, file, name):
        super().__init__(file)
        self.persistent_id = name


class Unpickler(pickle.Unpickler):
    def __init__(self, file, find):
        super().__init__(file)
        self.persistent_load = find


class Served:
    """The side of the child: the objects, by number; number 0 makes producers."""

    def __init__(self, line):
        self.line = line
        self.objects = [self]

    def producer(self, *arguments, **named):
        return Producer(*arguments, **named)

    def name(self, value):
        if not isinstance(value, (Producer, Table, Chunk)):
            return None
        self.objects.append(value)
        return len(self.objects) - 1

    def answer(self):
        target, method, arguments, named = Unpickler(self.line, self.objects.__getitem__).load()
        try:
            return True, getattr(target, method)(*arguments, **named)
        except Exception as error:  # raised where it was asked for
            return False, error

    def serve(self):
        while True:
            Pickler(self.line, self.name).dump(self.answer())
            self.line.flush()


def child(connection, become):
    """Never returns. Holds nothing open that the parent has: others wait for the ends of those."""
    try:
        kept = os.dup2(connection.fileno(), 3)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        become()
        with socket.socket(fileno=kept) as mine, mine.makefile("rwb") as line:
            Served(line).serve()
    except EOFError:
        os._exit(0)
    finally:
        os._exit(1)


class ProducerProcess:
    def __init__(self, become=lambda: None):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            child(theirs, become)
        theirs.close()
        self.line = ours.makefile("rwb")
        ours.close()
        self.producer = StandIn(self, 0).producer

    def name(self, value):
        return value._number if isinstance(value, StandIn) else None

    def call(self, *request):
        Pickler(self.line, self.name).dump(request)
        self.line.flush()
        good, value = Unpickler(self.line, lambda number: StandIn(self, number)).load()
        if not good:
            raise value
        return value

    def close(self):
        if self.pid:
            self.line.close()
            os.waitpid(self.pid, 0)
            self.pid = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
