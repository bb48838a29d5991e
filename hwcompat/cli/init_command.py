"""Commands that set up a project or a shell: init, completion."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import rich_click as click
from click.shell_completion import get_completion_class
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hwcompat.hardware.command_line import listed, note
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.errors import OutputError, UsageError
from hwcompat.hardware.files import PROJECT_FILE, write_whole
from hwcompat.hardware.target import Target

_TEMPLATES = Path(__file__).with_name("init")
_WORKFLOWS = {"github": Path(".github", "workflows", "hwcompat.yml"), "gitlab": Path(".gitlab", "hwcompat.yml")}
_CPU_INDEX = " --extra-index-url https://download.pytorch.org/whl/cpu"
_MOST_MODELS = 20
_HIDDEN_FOLDERS = {"node_modules", "site-packages", "__pycache__", "hwcompat-out"}


@click.command("init", short_help="Write a project file and a CI workflow for this repository.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    callback=listed,
    default=("cpu",),
    show_default=True,
    help="Target. Repeatable.",
)
@click.option("--model", "models", multiple=True, help="Model of the project. Repeatable; default: those found here.")
@click.option(
    "--ci", type=click.Choice(("github", "gitlab", "none")), help="Workflow. Default: detected from the repository."
)
@click.option(
    "--install",
    metavar="REQUIREMENT",
    help="What the workflow installs with pip, such as a wheel or git+https://…. Default: hwcompat[EXTRAS].",
)
@click.option("--devcontainer", is_flag=True, help="Write .devcontainer/devcontainer.json too.")
@click.option("--force", is_flag=True, help="Overwrite files that exist, which are kept otherwise.")
def init_command(
    models: Sequence[str],
    devices: Sequence[str],
    ci: str | None,
    install: str | None,
    devcontainer: bool,
    force: bool,
) -> int:
    """Write hwcompat.toml and a workflow for GitHub or GitLab, from what this folder contains.

    Models are folders with a config.json and ONNX files, unless --model names them. The workflow has a job for each
    target, on a runner with the label gpu if the target needs a device, and a report for each build of torch.

    \b
    Examples:
      hwcompat init
      hwcompat init --model bert --device cpu --device openvino
    """
    names = tuple(models) or tuple(_models_here(Path()))
    if not names:
        raise UsageError("no model was found in this folder", fix="Name one: hwcompat init --model bert")
    from hwcompat.generators.models.basic_classification import classify
    from hwcompat.hardware.backends.factory import resolve_target

    for name in models:
        classify(name)  # refuses an unknown one
    server = ci or _server_here(Path())
    targets = [resolve_target(name) for name in devices]
    values: dict[str, object] = {
        "models": names,
        "targets": targets,
        "install": shlex.quote(install or _requirement(targets, names)),
    }
    values |= _machines(targets)
    texts = {PROJECT_FILE: _render("hwcompat.toml.j2", values)}
    if devcontainer:
        texts[Path(".devcontainer", "devcontainer.json")] = _render("devcontainer.json.j2", values)
    if server in _WORKFLOWS:
        path = _WORKFLOWS[server]
        texts[path] = _render(f"{server}.yml.j2", {**values, "path": path.as_posix()})
    kept = [] if force else [path for path in texts if path.exists()]
    if len(kept) == len(texts):
        raise OutputError(f"{kept[0]} exists already", fix="Overwrite it: hwcompat init --force")
    if file := next((one for path in texts for one in path.parents if one.exists() and not one.is_dir()), None):
        raise OutputError(f"{file} is a file, and a folder of this name is needed", fix="Rename the file.")
    for path, text in texts.items():
        if path not in kept:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        click.echo(f"{'kept' if path in kept else 'wrote'} {path}")
    note(f"models: {', '.join(names)}", "run them: hwcompat run")
    return 0


def _requirement(targets: Sequence[Target], models: Sequence[str]) -> str:
    """Return the package with the extras that these need, such as `hwcompat[cpu,openvino]`."""
    from hwcompat.hardware.backends.factory import backend_class

    names = {backend_class(target.name).EXTRA for target in targets} - {""}
    if any(model.endswith(".onnx") for model in models):
        names.add("onnx")
    return f"{PROGRAM}[{','.join(['cpu', *sorted(names)])}]"


def _machines(targets: Sequence[Target]) -> dict[str, object]:
    """Return the values of templates about machines: a row for each target with its build of torch, runner and index
    of packages, and `builds`, the same without targets. A hosted runner has a processor only."""
    from hwcompat.hardware.backends.factory import class_of, known_targets

    kinds = {kind for name in known_targets() for kind in class_of(Target(name=name)).VENDOR_DEVICES}
    rows, builds = [], {}
    for target in targets:
        backend = class_of(target)
        of_vendor = backend.VENDOR and target.variant not in backend.VARIANTS_NEED
        device = of_vendor or target.variant.lower() in kinds or not (backend.is_shared(target) or backend.SIMULATED)
        build = target.name if backend.NEEDS_TORCH_BUILD else "device" if device else "host"
        index = "" if backend.NEEDS_TORCH_BUILD else _CPU_INDEX
        builds[build] = {
            "build": build,
            "runner": ["self-hosted", "gpu"] if device else "ubuntu-latest",
            "index": index,
        }
        rows.append({"target": str(target), **builds[build]})
    gpu = not all(row["index"] for row in rows)
    return {"rows": rows, "builds": builds.values(), "gpu": gpu, "index": "" if gpu else _CPU_INDEX}


def _render(name: str, values: Mapping[str, object]) -> str:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.get_template(name).render(values)


def _models_here(root: Path) -> Iterator[str]:
    """Return checkpoint folders and ONNX files below a folder, at most 20."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _HIDDEN_FOLDERS)
        place = Path(folder)
        if "config.json" in files:
            found.append(place)
        found += [place / name for name in sorted(files) if name.endswith(".onnx")]
        if len(found) > _MOST_MODELS:
            note(f"more than {_MOST_MODELS} models were found; the first {_MOST_MODELS} are written")
            break
    return (f"./{path.as_posix()}" for path in found[:_MOST_MODELS])


def _server_here(root: Path) -> str:
    """Return the server that the repository is on: by its remote, else by its workflow files; GitHub by default."""
    config = root / ".git" / "config"
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    on_gitlab = "gitlab" in text or ("github" not in text and (root / ".gitlab-ci.yml").is_file())
    return "gitlab" if on_gitlab else "github"


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion_command(shell: str) -> int:
    """Print the script that completes commands and options of hwcompat in SHELL.

    \b
    Examples:
      hwcompat completion bash > ~/.local/share/bash-completion/completions/hwcompat
      eval "$(hwcompat completion zsh)"
    """
    from .main_program import program

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(program, {}, PROGRAM, "_HWCOMPAT_COMPLETE").source())
    return 0
