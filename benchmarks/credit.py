"""Measure what stands between rewards and a loss, against other libraries and an elementwise add, in one run.

    python benchmarks/credit.py                                     # what is installed beside apportion[bench]
    python benchmarks/credit.py --verl-python VERL/bin/python       # and verl, from an environment of its own
    python benchmarks/credit.py --only A,D --rounds 9
    python benchmarks/credit.py --quick                             # does it run? Its figures mean nothing

    A  generalised advantages, dense          D  the whole of apportion(), time and memory
    B  the same with tool gaps                E  log-probabilities and entropy, time and memory
    C  the same, packed                       F  growth with rows, columns and segments

float32, two threads unless told otherwise, one seed. Every function is checked against a plain float64 loop before it
is timed, and timed in turns with what it is compared with. Prints Markdown; --write puts each section that ran into its
place in RESULTS.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from pathlib import Path

import torch
from credit_gae import dense_section, packing_section, tools_section
from credit_growth import growth_section
from credit_inputs import THREADS
from credit_logprobs import logprobs_section
from credit_whole import whole_section
from measure import BUSY, conditions, load_average
from peers import Peer

RESULTS = Path(__file__).parent / "RESULTS.md"
AGAINST_PEERS = {"A": dense_section, "B": tools_section, "C": packing_section}
ALONE = {"D": whole_section, "E": logprobs_section, "F": growth_section}


def started(pythons: dict[str, str]) -> list[Peer]:
    """The peers that are there; it is said which are not."""
    peers = [Peer(name, python) for name, python in pythons.items()]
    for peer in peers:
        if peer.version is None:
            peer.close()
            print(f"{peer.name} is not installed there: left out", file=sys.stderr)
    return [peer for peer in peers if peer.version is not None]


def written(page: str, letter: str, text: str) -> str:
    """The page with the text between the marks of this section, which stand in it."""
    begin, end = f"<!-- credit {letter} -->", f"<!-- end of credit {letter} -->"
    found, count = re.subn(f"(?s){begin}.*{end}", lambda _: f"{begin}\n\n{text}\n{end}", page)
    if count != 1:
        raise SystemExit(f"{RESULTS.name} needs `{begin}` and `{end}`, once")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="A,B,C,D,E,F", help="sections, such as A,D")
    parser.add_argument("--rounds", type=int, default=5, help="what takes seconds is measured in three at most")
    parser.add_argument("--threads", type=int, default=THREADS, help="one is steadier where others are at work")
    parser.add_argument("--verl-python", metavar="PATH", help="interpreter of an environment with verl")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--write", action="store_true", help="put the sections into RESULTS.md")
    options = parser.parse_args()
    letters = options.only.upper().split(",")
    if unknown := set(letters) - {*AGAINST_PEERS, *ALONE}:
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    if options.write and options.quick:
        parser.error("--quick measures nothing that is worth writing down")
    if options.write:
        for letter in letters:
            written(RESULTS.read_text(), letter, "")  # better now than after an hour
    load = load_average()
    if load > BUSY:
        print(f"The load average is {load:.1f}: others are at work, and figures will be too high", file=sys.stderr)
    torch.set_num_threads(options.threads)
    pythons = {"torchrl": sys.executable} | ({"verl": options.verl_python} if options.verl_python else {})
    peers = started(pythons) if AGAINST_PEERS.keys() & set(letters) else []
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers)
    sections = {letter: partial(section, peers) for letter, section in AGAINST_PEERS.items()} | ALONE
    for letter in letters:
        section = sections[letter](options.rounds, options.quick)
        section.notes += "\n\n" + conditions(options.rounds, load, versions if letter in AGAINST_PEERS else "")
        print(section.markdown(), flush=True)
        if options.write:
            RESULTS.write_text(written(RESULTS.read_text(), letter, section.markdown()))
    for peer in peers:
        peer.close()


if __name__ == "__main__":
    main()
