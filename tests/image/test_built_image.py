"""The image, built by buildah on roots of Debian's packages and started from there: no engine, no registry.

Needs root, buildah and mmdebstrap, and is skipped with that reason elsewhere. Of Docker's default images nothing is
tried here: the workflow `packages` builds on them.
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.image import ROOT
from tests.support.release_tools import passes, tool
from tools.release.version import released_version
from tools.sandbox.gateway import GatewayProcess
from tools.sandbox.kafka import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LARGEST_BYTES = 150_000_000
OF_THIS_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""How pip reaches its index from here; a build elsewhere needs none of it."""


class Image:
    """The image and one container's root folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = ["--root", f"{folder}/store", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
        self.buildah = [tool("buildah"), *store]
        tool("mmdebstrap")
        env = {**os.environ, "BUILDAH": shlex.join(self.buildah)}
        subprocess.run([ROOT / "deploy/image/roots.sh"], env=env, check=True)
        volumes = [f"--volume={file}:{file}:ro" for file in OF_THIS_MACHINE if Path(file).exists()]
        images = [f"--build-arg={name.upper()}=localhost/pidgate-{name}" for name in ("build", "base")]
        passes(
            *self.buildah,
            "build",
            "--format",
            "docker",
            "--isolation",
            "chroot",
            *volumes,
            *images,
            "--tag",
            "pidgate",
            ROOT,
        )
        self.container = passes(*self.buildah, "from", "pidgate").strip()
        self.root = Path(passes(*self.buildah, "mount", self.container).strip())
        shown = json.loads(passes(*self.buildah, "inspect", "--type", "image", "pidgate"))
        self.config = shown["OCIv1"]["config"]

    def command(self, *words: str, config: Path | None = None) -> list[str]:
        """The command of a container: its user, its environment, a root that nobody can write to, its own /tmp.

        `config`: a file that is mounted where the image looks for it.
        """
        root = shlex.quote(str(self.root))
        mounts = [
            f"mount --bind {root} {root}",
            *([f"mkdir -p {root}/etc/pidgate", f"touch {root}/etc/pidgate/pidgate.yaml"] if config else []),
            f"mount -o remount,ro,bind {root}",
            f"mount --rbind /dev {root}/dev",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs tmpfs {root}/tmp",
            *([f"mount --bind {shlex.quote(str(config))} {root}/etc/pidgate/pidgate.yaml"] if config else []),
        ]
        environment = ["env", "-i", *self.config["Env"]]
        if not any(word.startswith("PATH=") for word in environment):
            environment.append("PATH=/usr/sbin:/usr/bin:/bin")
        enter = ["chroot", f"--userspec={self.config['User']}", str(self.root)]
        started = shlex.join([*enter, *self.config["Entrypoint"], *words])
        return [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            "; ".join([*mounts, f"exec {shlex.join(environment)} {started}"]),
        ]

    def close(self) -> None:
        passes(*self.buildah, "rm", "--all")
        passes(*self.buildah, "rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if os.geteuid() != 0:
        pytest.skip("DID NOT RUN: buildah and mmdebstrap need root here")
    built = Image(tmp_path_factory.mktemp("image"))
    yield built
    built.close()


def files_of(root: Path) -> list[Path]:
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]


def test_it_is_small_and_holds_no_compiler_no_shell_and_no_package_manager(image: Image) -> None:
    files = files_of(image.root)
    size = sum(file.lstat().st_size for file in files)
    print(f"the image has {size / 1e6:.0f} MB")

    assert size < LARGEST_BYTES
    programs = {file.name for file in files if file.stat(follow_symlinks=False).st_mode & 0o111}
    assert (
        programs
        & {
            "gcc",
            "cc",
            "clang",
            "ld",
            "as",
            "sh",
            "bash",
            "dash",
            "apt",
            "dpkg",
            "pip",
        }
        == set()
    )
    assert [file for file in files if file.lstat().st_mode & 0o6000] == []  # setuid, setgid


def test_it_does_not_run_as_root(image: Image) -> None:
    assert image.config["User"] == "10001:10001"
    said = subprocess.run(image.command("version"), capture_output=True, text=True, check=False)
    assert said.stdout == f"pidgate {released_version()} (hot path compiled, with lanes)\n", said.stderr


@pytest.mark.kafka
def test_a_gateway_serves_a_cluster_from_it_with_nothing_to_write_to(image: Image, tmp_path: Path) -> None:
    with Cluster() as cluster:
        gateway = GatewayProcess(cluster.bootstrap_servers())
        file = tmp_path / "pidgate.yaml"
        file.write_text(yaml.safe_dump(gateway.config))
        file.chmod(0o644)
        started = image.command(*image.config["Cmd"], config=file)
        with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as process:
            try:
                deadline_s = time.monotonic() + 60
                while gateway.status("/readyz") != 200:
                    assert process.poll() is None
                    assert time.monotonic() < deadline_s
                    time.sleep(0.2)
                owner = Path(f"/proc/{process.pid}/status").read_text()
            finally:
                process.terminate()
                _, log = process.communicate(timeout=60)
    assert "Uid:\t10001\t10001" in owner
    assert process.returncode == 0, log
    assert "gateway_starting" in log
