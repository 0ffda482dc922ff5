"""scripts/setup with a Python that only pretends to install: every way it can go, quickly."""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# All the programs it uses; a Python is none of them.
TOOLS = (
    *("bash", "cat", "chmod", "cp", "dirname", "env", "flock", "grep"),
    *("head", "id", "mkdir", "mv", "rm", "tail", "touch"),
)

# Makes an environment of itself, and writes down what pip is asked for.
PYTHON = f"""\
#!/bin/sh
case "$1 $2" in
    '-m venv')
        mkdir -p "$3/bin"
        cp "$0" "$3/bin/python"
        printf '#!%s\\n' "$3/bin/python" >"$3/bin/pip" ;;
    '-m pip')
        [ "$3" = install ] || exit 0
        printf '%s\\n' "$*" >>"$CALLS"
        printf '%s\\n' "$PIP_SAYS"
        [ -z "$PIP_SAYS" ] || exit 1
        touch "$(dirname "$0")/laps"
        chmod +x "$(dirname "$0")/laps" ;;
    *) exec {shlex.quote(sys.executable)} "$@" ;;
esac
"""


@dataclass
class Machine:
    """A machine with a checkout on it and, to begin with, one Python."""

    place: Path
    checkout: Path

    def program(self, name: str, body: str) -> Path:
        program = self.place / "bin" / name
        program.unlink(missing_ok=True)
        program.write_text(body)
        program.chmod(0o755)
        return program

    def setup(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        self.calls.write_text("")
        return subprocess.run(
            [self.checkout / "scripts" / "setup", *arguments],
            env={
                "PATH": str(self.place / "bin"),
                "CALLS": str(self.calls),
                "PIP_SAYS": "",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> Path:
        return self.place / "calls"

    @property
    def installed(self) -> list[str]:
        """The last word of every command given to pip."""
        return [line.split()[-1] for line in self.calls.read_text().splitlines()]


EVERYTHING = ["requirements/build.txt", "requirements/lock.txt", "."]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (tmp_path / "bin" / tool).symlink_to(found)
    checkout = tmp_path / "a checkout"
    for name in ["scripts/setup", "requirements/build.txt", "requirements/lock.txt"]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    machine = Machine(tmp_path, checkout)
    machine.program("python3.11", PYTHON)
    return machine


def test_the_first_time_installs_everything_and_the_second_nothing(machine: Machine) -> None:
    first = machine.setup()
    assert first.returncode == 0, first.stderr
    assert machine.installed == EVERYTHING

    second = machine.setup()
    assert second.stdout == "setup: .venv is up to date\n"
    assert machine.installed == []


def test_a_new_lock_is_installed_into_the_environment_that_is_there(machine: Machine) -> None:
    machine.setup()
    (machine.checkout / ".venv" / "kept").touch()
    with (machine.checkout / "requirements" / "lock.txt").open("a") as lock:
        lock.write("# another\n")
    machine.setup()
    assert machine.installed == EVERYTHING
    assert (machine.checkout / ".venv" / "kept").exists()


def test_an_environment_made_by_hand_is_adopted(machine: Machine) -> None:
    machine.setup()
    (machine.checkout / ".venv" / ".setup-done").unlink()
    (machine.checkout / ".venv" / "kept").touch()
    machine.setup()
    assert machine.installed == EVERYTHING
    assert (machine.checkout / ".venv" / "kept").exists()


def test_what_failed_is_taken_up_again(machine: Machine) -> None:
    machine.setup()
    (machine.checkout / "pyproject.toml").write_text("changed")
    assert machine.setup(PIP_SAYS="no").returncode == 1
    assert machine.setup().returncode == 0
    assert machine.installed == EVERYTHING


def test_the_environment_of_a_moved_checkout_is_replaced(machine: Machine) -> None:
    machine.setup()
    machine.checkout = machine.checkout.rename(machine.place / "moved")
    assert "replacing .venv" in machine.setup().stdout
    assert machine.installed == EVERYTHING


def test_an_environment_whose_python_is_gone_is_replaced(machine: Machine) -> None:
    machine.setup()
    (machine.checkout / ".venv" / "bin" / "python").unlink()
    assert "replacing .venv" in machine.setup().stdout
    assert machine.setup().stdout == "setup: .venv is up to date\n"


def test_python_can_be_chosen(machine: Machine) -> None:
    machine.program("python3.11", "#!/bin/sh\nexit 1\n")
    chosen = machine.program("my-python", PYTHON)
    assert machine.setup(PYTHON=str(chosen)).returncode == 0


def test_another_python_than_before_replaces_the_environment(machine: Machine) -> None:
    machine.setup()
    answer = 'case "$2" in *print*version_info*) echo 3.99; exit ;; esac\n'
    other = machine.program("other", PYTHON.replace("#!/bin/sh\n", "#!/bin/sh\n" + answer))
    assert "making .venv with Python 3.99" in machine.setup(PYTHON=str(other)).stdout


def test_without_a_new_enough_python_it_says_what_to_do(machine: Machine) -> None:
    machine.program("python3.11", "#!/bin/sh\nexit 1\n")
    run = machine.setup()
    assert run.returncode == 1
    assert run.stderr == (
        "setup: no Python 3.11 or newer: install one (Debian 12 or newer: apt install python3"
        " python3-venv), or name it: PYTHON=/path/to/python make setup\n"
    )


def test_a_chosen_python_that_is_too_old_is_named(machine: Machine) -> None:
    run = machine.setup(PYTHON="python2")
    assert run.returncode == 1
    assert "PYTHON=python2 is not a Python 3.11 or newer" in run.stderr


NO_VENV = PYTHON.replace("#!/bin/sh\n", '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\n')


def test_without_the_venv_module_a_user_is_told_the_package(machine: Machine) -> None:
    machine.program("python3.11", NO_VENV)
    machine.program("id", "#!/bin/sh\necho 1000\n")
    run = machine.setup()
    assert run.returncode == 1
    assert "apt install python3-venv" in run.stderr


def test_without_the_venv_module_root_gets_the_package(machine: Machine) -> None:
    machine.program("python3.11", NO_VENV)
    machine.program("id", "#!/bin/sh\necho 0\n")
    machine.program("apt-get", '#!/bin/sh\necho "$@"\n')
    assert machine.setup().returncode == 0
    log = (machine.checkout / "build" / "setup.log").read_text()
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"install -y --no-install-recommends python{minor}-venv" in log


@pytest.mark.parametrize(
    ("said", "explained"),
    [
        ("Retrying after NewConnectionError", "setup: no network: connect"),
        ("OSError: [Errno 28] No space left on device", "setup: the disk is full"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES", "setup: a package is not the one"),
        ("something new", "setup: pip failed, see build/setup.log"),
    ],
)
def test_a_failure_of_pip_is_shown_and_explained(
    machine: Machine, said: str, explained: str
) -> None:
    run = machine.setup(PIP_SAYS=said)
    assert run.returncode == 1
    shown, explanation = run.stderr.splitlines()
    assert shown == said
    assert explanation.startswith(explained)


def test_a_browser_that_is_there_is_left_alone(machine: Machine) -> None:
    machine.program("chromium", "")
    assert machine.setup("--browser").stdout == ""


def test_the_browser_is_for_root_to_install(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    run = machine.setup("--browser")
    assert run.returncode == 0
    assert run.stdout.endswith("browser tests are skipped: apt install chromium\n")


def test_a_browser_that_cannot_be_installed_is_no_failure(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 0\n")
    machine.program("apt-get", "#!/bin/sh\nexit 100\n")
    run = machine.setup("--browser")
    assert run.returncode == 0
    assert run.stdout.endswith("so the browser tests are skipped, see build/setup.log\n")


def test_an_unknown_option_is_an_error(machine: Machine) -> None:
    assert "--fast is not an option" in machine.setup("--fast").stderr
