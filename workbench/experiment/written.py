"""An experiment as a person takes it elsewhere: a command, TOML for `workbench sweep`, or Python for a notebook."""

from __future__ import annotations

from hashlib import sha256
from pprint import pformat

from kernels import fabric as fabrics
from kernels.schedule import Refusal
from workbench.experiment.experiment import Experiment
from workbench.experiment.question import command, space_text

FILE = "space_{digest}.toml"
"""The name of the file that the command of a space writes: it has a digest of what is in the file."""


def command_text(experiment: Experiment) -> str:
    """The command that measures *experiment*: `workbench run` for one block, or a file and `workbench sweep`."""
    if experiment.together and (line := command(experiment.to_json(), short=True)):
        return line
    again = " --fresh" if experiment.fresh else ""
    text = toml_text(experiment)
    file = FILE.format(digest=sha256(text.encode()).hexdigest()[:8])
    return f"cat > {file} <<'END'\n{text}END\nworkbench sweep {file}{again}"


def toml_text(experiment: Experiment) -> str:
    """*experiment* as `workbench sweep` reads it. Refusal where a file cannot say it: a link of more digits."""
    link = str(experiment.fabric)
    if fabrics.parse(link) != experiment.fabric:
        raise Refusal(f"The link {link} has more digits than a file says: {link} is another one. Accepted: a link "
                      "that is typed with up to six digits.")  # fmt: skip
    return space_text(experiment.to_json())


MEASURED = """\
from cluster.client import Cluster
from workbench import machines
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import run
from workbench.experiment.sources import FromCluster
from workbench.results.store import Store

experiment = Experiment.from_json(
{experiment}
)
with Store() as store, Cluster.connect() as cluster:  # the lab's cluster
    measuring = run(experiment, store, FromCluster(cluster), machines.machine(experiment.machine))
    for _ in measuring:
        pass
    table = store.frame(measuring.run)
table
"""
ESTIMATED = """\
from workbench import machines
from workbench.experiment.experiment import Experiment
from workbench.experiment.sources import predictions
from workbench.results.frames import frame

experiment = Experiment.from_json(
{experiment}
)
table = frame(predictions(experiment, machines.machine(experiment.machine)))
table
"""


def python_text(experiment: Experiment, *, measured: bool) -> str:
    """The cell of a notebook that measures *experiment* on the lab's cluster, or estimates it, as the frame `table`."""
    data = pformat(experiment.to_json(), width=100, indent=1, sort_dicts=False)
    indented = "\n".join(f"    {line}" for line in data.splitlines())
    return (MEASURED if measured else ESTIMATED).format(experiment=indented)
