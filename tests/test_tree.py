#!/usr/bin/env python3
"""Aim: the source tree keeps its own rules. Method: read every file that git knows.

  * the top level holds only what it should
  * a quoted include names a file from the root, and points only left:
    core <- ipc, transport; core, ipc <- clients; core, ipc, transport <- sidecar; all <- tests, perf
  * liburing and OpenSSL stay out of what a producer links, Check out of everything but tests
  * a header has a guard made of its name
  * a .c file is listed in a CMakeLists.txt
  * no path of a machine, no file that is not text where text is expected

Run without arguments it also breaks each rule in a tree of its own, to see that it is noticed.
"""

import os
import re
import subprocess
import sys
import tempfile

TOP_LEVEL = {"CMakeLists.txt", "README.md", "core", "ipc", "transport", "sidecar", "clients",
             "tests", "perf"}
MAY_INCLUDE = {
    "core": {"core"},
    "ipc": {"core", "ipc"},
    "transport": {"core", "transport"},
    "clients": {"core", "ipc", "clients"},
    "sidecar": {"core", "ipc", "transport", "sidecar"},
    "tests": {"core", "ipc", "transport", "sidecar", "clients", "tests"},
    "perf": {"core", "ipc", "transport", "sidecar", "clients", "perf"},
}
SYSTEM_ONLY_IN = {
    "liburing.h": {"transport", "sidecar", "tests", "perf"},
    "openssl/": {"transport", "sidecar", "tests", "perf"},
    "check.h": {"tests"},
    "jemalloc/": {"sidecar", "perf"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# In pieces, so that this file does not hold what it looks for.
MACHINE_PATH = re.compile("/wo" + r"rk/|/ro" + r"ot/|\.lib" + "rary")


def tracked(root):
    out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, check=True).stdout
    names = [name for name in out.decode().split("\0") if name]
    return sorted(name for name in names if os.path.exists(os.path.join(root, name)))


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def check_include(name, number, kind, target, files):
    module = name.split("/")[0]
    where = f"{name}:{number}"
    if kind == "<":
        for prefix, allowed in SYSTEM_ONLY_IN.items():
            if target.startswith(prefix) and module not in allowed:
                yield f"{where}: <{target}> does not belong into {module}"
        return
    other = target.split("/")[0]
    if target not in files:
        yield f'{where}: "{target}" is no file as seen from the root'
    elif other not in MAY_INCLUDE.get(module, set()):
        yield f'{where}: "{target}": {module} may not use {other}'


def check_guard(name, lines):
    guard = os.path.basename(name).upper().replace(".", "_").replace("-", "_")
    code = [line.strip() for line in lines]
    guards = [line.split()[1] for line in code if re.match(r"#ifndef \w+$", line)]
    if not any(each.endswith(guard) and f"#define {each}" in code for each in guards):
        yield f"{name}: no include guard that ends with {guard}"


def expand(text):
    """The text of a CMakeLists.txt with its simple foreach loops written out."""
    loop = re.compile(r"foreach\((\w+)\s+([^)]*)\)(.*?)endforeach\(\)", re.S)

    def write_out(match):
        variable, values, body = match.groups()
        return "\n".join(body.replace("${%s}" % variable, value) for value in values.split())
    return loop.sub(write_out, text)


def is_listed(name, root):
    """In the CMakeLists.txt of its folder or of one above."""
    folder = os.path.dirname(name)
    while True:
        lists = os.path.join(root, folder, "CMakeLists.txt")
        relative = os.path.relpath(name, folder or ".")
        pattern = rf"(^|[\s(/]){re.escape(relative)}($|[\s)])"
        if os.path.exists(lists) and re.search(pattern, expand("\n".join(read_lines(lists)))):
            return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def check_source(name, lines, files, root):
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield from check_include(name, number, match[1], match[2], files)
    if name.endswith(".h"):
        yield from check_guard(name, lines)
    elif not is_listed(name, root):
        yield f"{name}: in no CMakeLists.txt"


def check_tree(root):
    files = tracked(root)
    for top in sorted({name.split("/")[0] for name in files}):
        if top not in TOP_LEVEL and not top.startswith("."):
            yield f"{top}: does not belong on the top level"
    for name in files:
        try:
            lines = read_lines(os.path.join(root, name))
        except UnicodeDecodeError:
            if not name.startswith("tests/") and not name.startswith("perf/"):
                yield f"{name}: is no text"
            continue
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line):
                yield f"{name}:{number}: path of a machine"
        if name.endswith((".c", ".h")):
            yield from check_source(name, lines, set(files), root)


def write(root, name, text):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def self_test():
    """Breaks every rule once; a rule that keeps quiet is a failure."""
    broken = {
        "misplaced/x.txt": ("", "misplaced: does not belong"),
        "core/a.c": ('#include "ipc/b.h"\n', "core may not use ipc"),
        "transport/a.c": ('#include "ipc/b.h"\n', "transport may not use ipc"),
        "clients/c/a.c": ('#include "transport/t.h"\n', "clients may not use transport"),
        "sidecar/a.c": ('#include "tests/t.h"\n', "sidecar may not use tests"),
        "core/rel.c": ('#include "rel.h"\n', "no file as seen from the root"),
        "ipc/a.c": ("#include <openssl/ssl.h>\n", "does not belong into ipc"),
        "perf/a.c": ("#include <check.h>\n", "does not belong into perf"),
        "core/bare.h": ("int x;\n", "no include guard that ends with BARE_H"),
        "core/lost.c": ("", "core/lost.c: in no CMakeLists.txt"),
        "sidecar/path.txt": ("/wo" + "rk/x\n", "path of a machine"),
    }
    good = {
        "ipc/b.h": "#ifndef B_H\n#define B_H\n#endif\n",
        "transport/t.h": "#ifndef T_H\n#define T_H\n#endif\n",
        "tests/t.h": "#ifndef T_H\n#define T_H\n#endif\n",
        "core/rel.h": "#ifndef REL_H\n#define REL_H\n#endif\n",
        "sidecar/good.c": '#include "ipc/b.h"\n#include "transport/t.h"\n#include <liburing.h>\n',
        "CMakeLists.txt": "core/a.c transport/a.c clients/c/a.c sidecar/a.c core/rel.c ipc/a.c "
                          "perf/a.c sidecar/good.c\n",
    }
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["git", "-C", root, "init", "-q"], check=True)
        for name, text in good.items():
            write(root, name, text)
        for name, (text, _) in broken.items():
            write(root, name, text)
        found = list(check_tree(root))
    for name, (_, words) in broken.items():
        if not any(words in line for line in found):
            yield f"self test: {name} broke a rule and nothing said '{words}'"
    if len(found) != len(broken):
        yield "self test: more was found than is broken:\n  " + "\n  ".join(found)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if subprocess.run(["git", "-C", root, "rev-parse"], capture_output=True).returncode != 0:
        print("skipped: not a git working copy")
        return 77
    problems = list(self_test()) + list(check_tree(root))
    print("\n".join(problems) if problems else "the tree keeps its rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
