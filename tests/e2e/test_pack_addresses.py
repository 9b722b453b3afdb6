"""`--pack`, `pack info` and `pack verify` with addresses, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tta_bench
from tests.conftest import Invoke, start_process
from tests.download_fixtures import serve
from tta_bench import records
from tta_bench.system.files import file_digest


def test_a_run_on_an_address_is_the_run_on_the_file(toy_pack: Path, invoke: Invoke, home: Path) -> None:
    digest = file_digest(toy_pack)
    with serve() as host:
        host.files["toy.safetensors"] = toy_pack.read_bytes()
        address = f"{host.url}/toy.safetensors#sha256={digest}"
        assert f"{digest}.safetensors: sound" in invoke("pack", "verify", address).out
        assert digest in invoke("pack", "info", address).out
        run = invoke("run", "--method", "clip", "--pack", address)
        assert run.code == 0, run.err
        assert "done before, nothing to do" in invoke("run", "--method", "clip", "--pack", str(toy_pack)).out
        assert tta_bench.run("clip", pack=address).n == 24
        assert len(host.asked) == 1
    (record,) = records.load_all(home / "runs")[0]
    assert record.protocol.parts["images"] == digest


def test_a_wrong_digest_is_one_line(toy_pack: Path, invoke: Invoke) -> None:
    with serve() as host:
        host.files["toy.safetensors"] = toy_pack.read_bytes()
        for command in (("pack", "info"), ("pack", "verify"), ("run", "--method", "clip", "--pack")):
            result = invoke(*command, f"{host.url}/toy.safetensors#sha256={'0' * 64}")
            assert result.code == 1
            assert "sha256 differs" in result.err.splitlines()[-1]
            assert "Traceback" not in result.err


@pytest.mark.slow
def test_the_hub_is_where_the_environment_says(toy_pack: Path, tmp_path: Path, home: Path) -> None:
    content, commit = toy_pack.read_bytes(), "b" * 40
    with serve() as host:
        host.files["datasets/lab/packs/resolve/main/toy.safetensors"] = content
        host.headers = {"X-Repo-Commit": commit, "ETag": f'"{file_digest(toy_pack)}"'}
        places = {"HF_ENDPOINT": host.url, "HF_HOME": str(tmp_path / "hf")}
        run = ("run", "--method", "clip", "--pack", "hf:lab/packs/toy.safetensors")
        online = start_process(*run, home=home, **places)
        assert "clip on toy with toyclip" in online.communicate()[0]
    offline = start_process(*run, home=home, **places, HF_HUB_OFFLINE="1")  # the server is gone, too
    assert "done before, nothing to do" in offline.communicate()[0]
