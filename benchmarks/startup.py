"""Start-up: `triptych --help` and a bare interpreter, in turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def main() -> None:
    commands = {"python": ["-c", "pass"], "triptych --help": ["-m", "triptych", "--help"]}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(8):
        for name, args in commands.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - start)
    for name, each in taken.items():
        print(f"{name:>16}  {statistics.median(each[1:]):.3f} s")


if __name__ == "__main__":
    main()
