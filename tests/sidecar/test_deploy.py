#!/usr/bin/env python3
"""Aim: the deployment files hold together, and what they deploy runs within their limits.
Method: manifests against their own promises (names, mounts, options, limits); the unit by systemd-analyze; the
packages built, put onto a copy of this system and off it again, unpacked, and run: the sidecar and a producer
in containers of their own (bubblewrap: read-only root, no capabilities, other users, other PID namespaces),
over TLS, with secrets as files.
Where the Python modules check_jsonschema and kubernetes_validate are, the manifests also against the published
schemas, which these bring along. What needs a tool that is not here is left out, and said."""
import argparse
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
DEPLOY = os.path.join(ROOT, "sidecar", "deploy")
sys.path.insert(0, os.path.join(HERE, "..", "sink"))
from deployed import install_and_remove, unit_allows_what_is_called  # noqa: E402
from sink_process import Sink  # noqa: E402

WAIT_S = 60


def run(*command, **options):
    out = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **options)
    assert out.returncode == 0, "%s: %s%s" % (" ".join(map(str, command)), out.stdout, out.stderr)
    return out.stdout


def read(name):
    with open(os.path.join(DEPLOY, name)) as file:
        return file.read()


def missing(tool, what):
    if shutil.which(tool):
        return False
    print("left out: %s (no %s)" % (what, tool))
    return True


def known_options(sidecar):
    return set(re.findall(r"--[a-z-]+", run(sidecar, "run", "--help")))


def check_arguments(sidecar, arguments, where):
    assert arguments[0] == "run", where
    unknown = {word for word in arguments if word.startswith("--")} - known_options(sidecar)
    assert not unknown, (where, unknown)


def check_conf(sidecar, conf, directory):
    """Every key is known and makes sense: only files and servers may be missing."""
    path = os.path.join(directory, "conf")
    with open(path, "w") as file:
        file.write(conf)
    out = subprocess.run([sidecar, "check", "--conf-file", path, "--rings", directory + "/rings", "--timeout", "1ms"],
                         capture_output=True, text=True, timeout=60)
    assert "unknown key" not in out.stdout + out.stderr, out.stdout + out.stderr
    return dict(pair.split("=", 1) for pair in re.sub(r"\s", "", conf).split("::", 1)[1].split(";") if pair)


def missing_module(name, what):
    if importlib.util.find_spec(name):
        return False
    print("left out: %s (no Python module %s)" % (what, name))
    return True


def check_schemas():
    """Each key is one that Compose and Kubernetes know; no schema is fetched."""
    if not missing_module("check_jsonschema", "compose.yaml against its schema"):
        run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
            os.path.join(DEPLOY, "compose.yaml"))
    if not missing_module("kubernetes_validate", "kubernetes.yaml against its schema"):
        import kubernetes_validate
        import yaml
        for document in yaml.safe_load_all(read("kubernetes.yaml")):
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def check_kubernetes(sidecar, directory):
    import yaml
    config, deployment = yaml.safe_load_all(read("kubernetes.yaml"))
    assert (config["kind"], deployment["kind"], deployment["apiVersion"]) == ("ConfigMap", "Deployment", "apps/v1")
    keys = check_conf(sidecar, config["data"]["qwp.conf"], directory)
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    [native], [app] = pod["initContainers"], pod["containers"]
    assert native["restartPolicy"] == "Always"
    check_arguments(sidecar, native["args"], "kubernetes.yaml")
    assert pod["terminationGracePeriodSeconds"] * 1000 > int(keys["close_flush_timeout_millis"])
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["rings"]["emptyDir"]["medium"] == "Memory"
    assert volumes["conf"]["configMap"]["name"] == config["metadata"]["name"]
    for container in (native, app):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]} and security["runAsUser"] > 0
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) <= set(volumes)
        assert {"name": "QWP_RINGS", "value": mounts["rings"]} in container["env"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["fsGroup"]
    mounts = {mount["name"]: mount["mountPath"] for mount in native["volumeMounts"]}
    assert native["args"][native["args"].index("--conf-file") + 1] == mounts["conf"] + "/qwp.conf"
    for key in ("token_file", "tls_roots"):
        assert os.path.dirname(keys[key]) == mounts["secrets"], key
    ports = {port["name"]: port["containerPort"] for port in native["ports"]}
    for probe in ("startupProbe", "livenessProbe"):
        assert native[probe]["httpGet"]["path"] == "/healthz" and native[probe]["httpGet"]["port"] in ports
    assert native["args"][native["args"].index("--metrics") + 1].endswith(":%d" % ports["metrics"])
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])


def check_compose(sidecar, directory):
    import yaml
    compose = yaml.safe_load(read("compose.yaml"))
    service, app = compose["services"]["qwp-sidecar"], compose["services"]["app"]
    check_arguments(sidecar, service["command"], "compose.yaml")
    keys = check_conf(sidecar, service["environment"]["QDB_CLIENT_CONF"], directory)
    for key in ("token_file", "tls_roots"):
        name = os.path.basename(keys[key])
        assert keys[key] == "/run/secrets/" + name and name in service["secrets"] and name in compose["secrets"]
    for one in (service, app):
        assert one["read_only"] and one["cap_drop"] == ["ALL"] and "rings:/run/qwp" in one["volumes"]
        assert not one["user"].startswith("0") and "no-new-privileges:true" in one["security_opt"]
    group = re.search(r"gid=(\d+)", compose["volumes"]["rings"]["driver_opts"]["o"])[1]
    assert group in service["group_add"] and app["user"].endswith(":" + group)
    assert os.path.exists(os.path.join(DEPLOY, service["build"]["context"], service["build"]["dockerfile"]))


def check_dockerfile():
    text = read("Dockerfile")
    last = text[text.rindex("\nFROM "):]
    assert re.search(r"^USER (?!0|root)\d+:\d+$", last, re.M) and "HEALTHCHECK" in last
    for source in re.findall(r"COPY --from=build (?:--chown=\S+ )?(\S+)", last):
        assert source.startswith("/image/"), source
    for component in re.findall(r"--component (\S+)", text):
        assert component in ("daemon", "feed"), component


def check_unit(build, sidecar, directory):
    unit = read("qwp-sidecar.service")
    command = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
    check_arguments(sidecar, command[1:], "qwp-sidecar.service")
    for line in ("Type=notify", "WatchdogSec=60", "RuntimeDirectoryPreserve=yes", "NoNewPrivileges=yes"):
        assert line + "\n" in unit, line
    check_conf(sidecar, read("qwp.conf"), directory)
    if missing("systemd-analyze", "verifying the unit"):
        return
    path = os.path.join(directory, "qwp-sidecar.service")
    with open(path, "w") as file:
        file.write(unit.replace("/usr/bin/qwp-sidecar", sidecar))
    out = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60)
    said = [line for line in out.stderr.splitlines() if "qwp-sidecar" in line]
    assert not said, said
    out = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", path],
                         capture_output=True, text=True, timeout=60)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", out.stdout)
    print("systemd-analyze security: %s" % (level[1] if level else "does not say"))
    assert level is None or float(level[1]) < 2.0, out.stdout
    if not missing("strace", "what the unit's filter allows"):
        unit_allows_what_is_called(build, unit, directory)


def build_packages(build, directory):
    out = os.path.join(directory, "deb")
    run("cpack", "-G", "DEB", "-B", out, "--config", os.path.join(build, "CPackConfig.cmake"), cwd=build)
    found = {run("dpkg-deb", "-f", name, "Package").strip(): name for name in glob.glob(out + "/*.deb")}
    library = [name for name in found if re.fullmatch(r"libqwp\d+\.\d+", name)]
    assert sorted(found) == sorted(["libqwp-dev", "qwp-sidecar", *library]) and library, sorted(found)
    needs = run("dpkg-deb", "-f", found["qwp-sidecar"], "Depends")
    for package in ("libc6", "liburing2", "libjemalloc2", "libssl3", "ca-certificates"):
        assert package in needs, needs
    assert "libssl" not in run("dpkg-deb", "-f", found[library[0]], "Depends")
    if os.geteuid() == 0 and not missing("unshare", "installing the packages"):
        system = os.path.join(directory, "system")
        os.makedirs(system)
        install_and_remove(out, system)
    root = os.path.join(directory, "root")
    for name in found.values():
        run("dpkg-deb", "-x", name, root)
    control = os.path.join(directory, "control")
    run("dpkg-deb", "-e", found["qwp-sidecar"], control)
    for script in ("postinst", "prerm", "postrm"):
        run("sh", "-n", os.path.join(control, script))
        assert os.access(os.path.join(control, script), os.X_OK), script
    with open(os.path.join(control, "conffiles")) as file:
        for path in file.read().split():
            assert os.path.exists(root + path), path
    named = re.search(r"^Documentation=(.*)$", read("qwp-sidecar.service"), re.M)[1].split()
    for path in ("usr/bin/qwp-sidecar", "usr/bin/qwp-feed", "usr/lib/systemd/system/qwp-sidecar.service",
                 "usr/lib/tmpfiles.d/qwp-sidecar.conf", "usr/include/qwp.h",
                 *(uri.replace("file:///", "") for uri in named)):
        assert os.path.exists(os.path.join(root, path)), path
    for name in ("libqwp.so.*", "libqwp.a", "pkgconfig/qwp.pc"):
        assert glob.glob(root + "/usr/lib/**/" + name, recursive=True), name
    assert run(os.path.join(root, "usr/bin/qwp-sidecar"), "version").startswith("qwp-sidecar ")
    return root


def container(root, uid, binds):
    """Nothing of the host but its libraries, nothing to write but the volumes."""
    command = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--uid", str(uid),
               "--gid", str(uid), "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--clearenv",
               "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "bin"):
        path = os.path.join("/", name)
        command += ["--symlink", "usr/" + name, path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    command += ["--ro-bind", "/etc/ssl", "/etc/ssl", "--ro-bind-try", "/etc/hosts", "/etc/hosts"]
    command += ["--ro-bind", os.path.join(root, "usr/bin"), "/opt"]
    for source, target, kind in binds:
        command += [kind, source, target]
    return command + ["--setenv", "QWP_RINGS", "/run/qwp", "--remount-ro", "/"]


def run_contained(build, root, directory):
    if missing("bwrap", "running in containers"):
        return
    probe = subprocess.run(container(root, 1, []) + ["/opt/qwp-sidecar", "version"], capture_output=True, text=True)
    if probe.returncode != 0:
        print("left out: running in containers (%s)" % probe.stderr.strip())
        return
    rings = tempfile.mkdtemp(prefix="qwp-deploy-", dir="/dev/shm")
    secrets = os.path.join(directory, "secrets")
    os.makedirs(secrets)
    store = os.path.join(directory, "store")
    os.makedirs(store)
    started = []
    try:
        with Sink(os.path.join(build, "bin", "qwp-sink"), os.path.join(directory, "sink"),
                  "--tls-self-signed", os.path.join(directory, "tls"), "--token", "s3cret") as sink:
            shutil.copy(os.path.join(directory, "tls", "ca.pem"), secrets)
            with open(os.path.join(secrets, "token"), "w") as file:
                file.write("s3cret\n")
            with open(os.path.join(secrets, "qwp.conf"), "w") as file:
                file.write("wss::addr=localhost:%d;token_file=/run/secrets/token;tls_roots=/run/secrets/ca.pem;"
                           "sf_dir=/var/lib/qwp/store;" % sink.port)
            volume = (rings, "/run/qwp", "--bind")
            sidecar = container(root, 10001, [volume, (secrets, "/run/secrets", "--ro-bind"),
                                              (store, "/var/lib/qwp", "--bind")])
            app = container(root, 20001, [volume])
            log = open(os.path.join(directory, "log"), "w+")
            started.append(subprocess.Popen(sidecar + ["/opt/qwp-sidecar", "run", "--conf-file",
                                                       "/run/secrets/qwp.conf", "--metrics", "off"], stderr=log))
            lines = "".join("heartbeats,host=h%d ok=%di\n" % (i % 7, i) for i in range(5000))
            fed = subprocess.run(app + ["/opt/qwp-feed", "--format", "ilp", "--no-progress", "--json", "-"],
                                 input=lines, capture_output=True, text=True, timeout=WAIT_S)
            with open(log.name) as file:
                said = file.read()
            assert fed.returncode == 0, fed.stderr + said
            assert json.loads(fed.stdout)["rows_acked"] == 5000 and sink.summary()["rows"] == 5000
            status = subprocess.run(app + ["/opt/qwp-sidecar", "status", "--json"], capture_output=True, text=True)
            assert status.returncode == 0 and json.loads(status.stdout)["connection"] == "up", status
            assert "s3cret" not in said
            written = subprocess.run(app + ["/bin/sh", "-c", "echo x >/x"], capture_output=True, text=True)
            assert written.returncode != 0, "the root is not read-only"
            print("contained: 5000 rows over TLS, no capabilities, read-only root")
    finally:
        for process in started:
            process.kill()
            process.wait()
        shutil.rmtree(rings, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    build = os.path.abspath(parser.parse_args().build)
    sidecar = os.path.join(build, "bin", "qwp-sidecar")
    directory = tempfile.mkdtemp(prefix="qwp-deploy-")
    started = time.monotonic()
    try:
        check_dockerfile()
        check_unit(build, sidecar, directory)
        try:
            import yaml  # noqa: F401
            check_kubernetes(sidecar, directory)
            check_compose(sidecar, directory)
            check_schemas()
        except ImportError:
            print("left out: the manifests (no python3-yaml)")
        if not missing("cpack", "packages") and not missing("dpkg-shlibdeps", "packages"):
            root = build_packages(build, directory)
            run_contained(build, root, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("%.0f s" % (time.monotonic() - started))


if __name__ == "__main__":
    main()
