"""Which tinygrad `--tinygrad` names: what is fetched, what is kept, and what is refused with which line.

A tinygrad that is installed from its checkout (`pip install -e`) is the release only at the release's tag.
"""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from vmapdbg.install import trees
from vmapdbg.install.overlay import TINYGRAD_VERSION, find_editable, installed_folder
from vmapdbg.install.trees import TreeError, cache_entry, find_tree


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VMAPDBG_CACHE", str(tmp_path / "cache"))
    find_tree.cache_clear()
    return tmp_path / "cache"


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=master"]
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write_package(folder: Path, version: str, text: str = "") -> None:
    package = folder / "tinygrad"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(text, encoding="utf-8")
    (package / "tensor.py").write_text("", encoding="utf-8")
    (folder / "pyproject.toml").write_text(f'[project]\nname = "tinygrad"\nversion = "{version}"\n', encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Three commits: 0.11.0 with the tag old, 0.12.0, and 0.13.0 on master."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    for version in ("0.11.0", "0.12.0", "0.13.0"):
        write_package(folder, version, f"# {version}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"version {version}")
        if version == "0.11.0":
            git(folder, "tag", "old")
    return folder


def list_names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir()) if folder.exists() else []


def test_a_folder_is_taken_as_it_is(checkout: Path, cache: Path) -> None:
    tree = find_tree(str(checkout))
    assert (tree.folder, tree.version) == (checkout, "0.13.0")
    assert tree.commit == git(checkout, "rev-parse", "--short=12", "HEAD")
    assert not cache.exists()


def test_a_revision_is_extracted_and_the_checkout_stays_as_it_was(
    checkout: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "tinygrad" / "__init__.py").write_text("# not committed\n", encoding="utf-8")
    before = git(checkout, "status", "--porcelain")
    tree = find_tree(f"{checkout}@master~1")
    assert tree.version == "0.12.0"
    assert (tree.folder / "tinygrad" / "__init__.py").read_text(encoding="utf-8") == "# 0.12.0\n"
    assert tree.commit == git(checkout, "rev-parse", "master~1")
    assert git(checkout, "status", "--porcelain") == before
    assert list_names(cache / "commits") == [tree.commit]
    # a revision alone is one of the working directory
    monkeypatch.chdir(checkout)
    assert find_tree("@HEAD~1").version == "0.12.0"


def test_the_commits_between_two_are_in_order(checkout: Path) -> None:
    commits = trees.list_commits(trees.repository_of(checkout), "old", "master")
    described = [trees.describe_commit(checkout, commit).split(" ", 2)[2] for commit in commits]
    assert described == ["version 0.12.0", "version 0.13.0"]
    with pytest.raises(TreeError, match="master is not an ancestor of old"):
        trees.list_commits(checkout, "master", "old")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("", "has a version, a folder or FOLDER@REVISION for a name, not nothing"),
        ("nowhere", "there is no folder nowhere, and it is not a version of tinygrad such as 0.14.0"),
        ("nowhere@master", r"there is no folder nowhere \(in nowhere@master\)"),
        ("{checkout}@", "names no revision after the @"),
        ("{checkout}@nothing", "there is no revision nothing in .*checkout"),
        ("{checkout}@--help", "there is no revision --help in .*checkout"),
        ("{checkout}@old", "tinygrad 0.11.0 .* is too old: vmapdbg observes 0.12 and later"),
        ("{empty}", "empty is not a tinygrad: there is no tinygrad/__init__.py in it"),
        ("{empty}@master", "empty is in no git repository: it has no revisions"),
        ("{checkout}/tinygrad", "tinygrad is not a tinygrad: there is no tinygrad/__init__.py in it"),
        ("{file}", "file.py is not a tinygrad"),
        ("0.11.0", "tinygrad 0.11.0 .* is too old"),
    ],
)
def test_an_unknown_release_is_one_line(
    name: str, line: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(TreeError, match=line) as raised:
        find_tree(name.format(checkout=checkout, empty=tmp_path / "empty", file=tmp_path / "file.py"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["axis_letters = {}", "axis_colors = {}"])
def test_the_last_commits_before_the_oldest_release_are_observed(text: str, tmp_path: Path) -> None:
    write_package(tmp_path, "0.11.0")
    (tmp_path / "tinygrad" / "uop").mkdir()
    (tmp_path / "tinygrad" / "uop" / "ops.py").write_text(text, encoding="utf-8")
    if text.startswith("axis_letters"):
        assert find_tree(str(tmp_path)).version == "0.11.0"
    else:
        with pytest.raises(TreeError, match="too old"):
            find_tree(str(tmp_path))


def test_a_folder_called_like_a_version_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_package(tmp_path / "0.14.0", "0.13.0")
    assert trees.parse_name("0.14.0").path == Path("0.14.0")


def test_without_git_a_revision_is_one_line(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TreeError, match="revisions need git"):
        find_tree(f"{checkout}@master")


def test_only_a_package_next_to_a_repository_or_a_release_is_a_checkout(checkout: Path, tmp_path: Path) -> None:
    assert trees.is_checkout(checkout)
    write_package(tmp_path / "plain", "0.13.0")
    assert not trees.is_checkout(tmp_path / "plain")
    (tmp_path / "plain" / "tinygrad.egg-info").mkdir()
    assert trees.is_checkout(tmp_path / "plain")


# *** the cache


def fake_installer(folder: Path, code: str) -> list[str]:
    """A replacement for pip: runs `code` with the target as sys.argv[2]."""
    script = folder / "installer.py"
    script.write_text("import sys, pathlib\ntarget = pathlib.Path(sys.argv[2])\n" + code, encoding="utf-8")
    return [sys.executable, str(script)]


INSTALLS = """
(target / "tinygrad").mkdir()
(target / "tinygrad" / "__init__.py").write_text("")
(target / "tinygrad-0.14.0.dist-info").mkdir()
"""


def test_a_release_is_fetched_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
    monkeypatch.setattr(trees, "installer_command", lambda: fake_installer(tmp_path, INSTALLS + count))
    assert find_tree("0.14.0").folder == find_tree("0.14.0").folder == cache / "releases" / "0.14.0"
    assert (tmp_path / "count").read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        (
            "WARNING: Retrying\nERROR: No matching distribution found for tinygrad==9.0\n",
            "ERROR: No matching distribution found for tinygrad==9.0",
        ),
        ("", "it said nothing"),
    ],
)
def test_what_cannot_be_fetched_leaves_nothing_behind(
    stderr: str, line: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"(target / 'half').write_text('')\nsys.stderr.write({stderr!r})\nsys.exit(1)"
    monkeypatch.setattr(trees, "installer_command", lambda: fake_installer(tmp_path, code))
    with pytest.raises(TreeError, match=f"cannot fetch tinygrad 9.0: .*{line}"):
        find_tree("9.0")
    assert list_names(cache / "releases") == []


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("VMAPDBG_CACHE", str(tmp_path / "file"))
    with pytest.raises(TreeError, match=r"cannot write the cache .*file: .*VMAPDBG_CACHE"):
        cache_entry("commits", "abc", lambda folder: write_package(folder, "0.13.0"))


def fill(barrier: object) -> str:
    def make(folder: Path) -> None:
        barrier.wait()  # type: ignore[attr-defined]  # both are in the middle of it now
        write_package(folder, "0.13.0")

    return str(cache_entry("commits", "same", make))


def test_two_processes_may_fill_it_at_once(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(2) as pool:
        barrier = manager.Barrier(2)
        assert set(pool.map(fill, [barrier, barrier], chunksize=1)) == {str(cache / "commits" / "same")}
    assert list_names(cache / "commits") == ["same"]


# *** installed from its checkout


@pytest.fixture
def installed(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a space in its path, at the release's tag, installed in front of any other tinygrad."""
    git(checkout, "tag", f"v{TINYGRAD_VERSION}")
    folder = checkout.rename(tmp_path / "my checkout")
    info = tmp_path / "site" / f"tinygrad-{TINYGRAD_VERSION}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: tinygrad\nVersion: {TINYGRAD_VERSION}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    note = {"dir_info": {"editable": True}, "url": folder.as_uri()}
    (info / "direct_url.json").write_text(json.dumps(note), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return folder


def test_a_checkout_is_found_by_what_pip_noted(installed: Path) -> None:
    assert find_editable() == installed.resolve()
    assert installed_folder() == installed.resolve() / "tinygrad"
    # where the path has a folder of that name that is no package, or nothing
    (installed.parent / "overlay" / "tinygrad").mkdir(parents=True)
    found = trees.find_imported([str(installed.parent / "overlay")])
    assert found is not None
    assert found.folder == installed.resolve()


def is_release_now(folder: Path) -> bool:
    find_tree.cache_clear()
    return trees.is_release(find_tree(str(folder)))


def test_its_tag_decides(installed: Path) -> None:
    assert is_release_now(installed)
    (installed / "notes.txt").write_text("not part of git", encoding="utf-8")
    assert is_release_now(installed)
    # the release somewhere else is not the tinygrad that is imported
    git(installed, "clone", "-q", ".", str(installed.parent / "other"))
    assert not is_release_now(installed.parent / "other")
    (installed / "tinygrad" / "tensor.py").write_text("X = 2\n", encoding="utf-8")
    assert not is_release_now(installed)
    git(installed, "commit", "-qam", "later")
    assert not is_release_now(installed)


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"url": "file:///x", "dir_info": {}}', '{"url": "git+https://x", "dir_info": {"editable": true}}'],
)
def test_folders_that_are_not_checkouts(text: str, installed: Path) -> None:
    (note,) = (installed.parent / "site").glob("*/direct_url.json")
    note.write_text(text, encoding="utf-8")
    assert find_editable() is None


# *** what is in the cache is what was fetched


def write_index(folder: Path, digest: str = "") -> None:
    """Writes a package index with a wheel of tinygrad 9.9.0, and its hash, or another one."""
    wheel = folder / "tinygrad-9.9.0-py3-none-any.whl"
    about = "tinygrad-9.9.0.dist-info"
    text = "class Tensor: pass\n"
    # a wheel's list of its files has the size and the hash of each
    hashed = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    record = f"tinygrad/__init__.py,,\ntinygrad/tensor.py,sha256={hashed},{len(text)}\n"
    (folder / "tinygrad").mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tinygrad/__init__.py", "")
        packed.writestr("tinygrad/tensor.py", text)
        packed.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tinygrad\nVersion: 9.9.0\n")
        packed.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{about}/RECORD", record)
    digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="../{wheel.name}#sha256={digest}">{wheel.name}</a>'
    (folder / "tinygrad" / "index.html").write_text(link, encoding="utf-8")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_INDEX_URL", folder.as_uri())
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


def test_a_release_that_is_not_what_the_index_says_is_refused(index: Path, cache: Path) -> None:
    write_index(index, digest="0" * 64)
    with pytest.raises(TreeError, match=r"cannot fetch tinygrad 9\.9\.0"):
        find_tree("9.9.0")
    assert list_names(cache / "releases") == []


@pytest.mark.parametrize("damage", ["removed", "cut", "emptied"])
def test_a_release_that_was_changed_in_the_cache_is_refused(damage: str, index: Path, cache: Path) -> None:
    write_index(index)
    entry = find_tree("9.9.0").folder
    assert entry == cache / "releases" / "9.9.0"
    find_tree.cache_clear()
    assert find_tree("9.9.0").folder == entry
    find_tree.cache_clear()
    tensor = entry / "tinygrad" / "tensor.py"
    if damage == "removed":
        tensor.unlink()
    elif damage == "cut":
        tensor.write_text("class Ten", encoding="utf-8")
    else:
        shutil.rmtree(entry / "tinygrad")
    with pytest.raises(TreeError, match=r"tinygrad in .*9\.9\.0 has changed: tinygrad/\w+\.py is missing, or"):
        find_tree("9.9.0")


def test_a_commit_that_was_changed_in_the_cache_is_refused(checkout: Path) -> None:
    name = f"{checkout}@master"
    entry = find_tree(name).folder
    find_tree.cache_clear()
    assert find_tree(name).folder == entry
    find_tree.cache_clear()
    (entry / "tinygrad" / "tensor.py").write_text("more", encoding="utf-8")
    with pytest.raises(TreeError, match=r"has changed: tinygrad/tensor\.py is missing, or is not what was fetched"):
        find_tree(name)
