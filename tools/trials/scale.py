"""What ten million, a hundred million and a billion raw pairs take: bytes, hours, money.

    python -m tools.trials.scale [--nodes 8] [--cores 64] [--gpus 64] [--embed-rate PAIRS] [--gpu-hour 2.5] ...

Measured on this machine, on one core, in a minute: the float64 products of k-center, a choice of k-center on rows of
the same width (most rows are not looked at for most centres, so it does fewer products than the bound), and how fast
embeddings are read. Everything else is a flag. `--embed-rate`, pairs a second of one GPU, is an estimate until you give
a measured one: products of the embedder's weights at 40 % of an H100's peak in bfloat16.

Two ways to choose over several nodes, each a k-center by task:
- exact: each node has its block of rows; for each choice the nodes agree on the farthest row (a round of messages).
  The result is that of one machine, a 2-approximation of the smallest radius.
- two rounds (Malkomes et al., Fast Distributed k-Center Clustering with Outliers, NIPS 2015): each node chooses n of
  its own rows, then one node chooses n of these. No messages between; a 4-approximation. The second round is as large
  as the number of nodes times n, whatever the number of rows.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from editjudge.sources.selection.coreset import k_center_greedy, largest_products

TASKS = 18
ROWS, CHOSEN = 40_000, 200  # of the measured k-center
SIZES = (10**7, 10**8, 10**9)
IMAGE = 150_000  # bytes of a raw pair's image, JPEG at about 1 megapixel
ROUND = 1e-3  # seconds of a round of messages between nodes
H100, USED = 989e12, 0.4  # FLOP a second in bfloat16, and the share that large models reach
WEIGHTS, TOKENS = 2e9, 1_300  # of Qwen3-VL-Embedding-2B, and of an image of a megapixel with its text


def products_a_second(width: int) -> float:
    """Float64 operations a second of one core in the product that k-center is made of."""
    rng = np.random.default_rng(0)
    rows, centres = rng.standard_normal((4_096, width)).astype(np.float16), rng.standard_normal((512, width))
    largest_products(rows, centres)
    began = time.process_time()
    for _ in range(5):
        largest_products(rows, centres)
    return 5 * 2 * len(rows) * len(centres) * width / (time.process_time() - began)


def share_of_bound(width: int, rate: float) -> float:
    """How much of the bound, 2 N d n operations at `rate`, a choice really takes: seconds / seconds.

    The rows lie in clusters, 200 of them, as embeddings do; on rows without any structure it is nearer to 1."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((200, width))
    rows = (centres[rng.integers(0, 200, ROWS)] + 0.5 * rng.standard_normal((ROWS, width))).astype(np.float16)
    began = time.process_time()
    k_center_greedy(rows, CHOSEN)
    return (time.process_time() - began) * rate / (2 * ROWS * CHOSEN * width)


def bytes_a_second(width: int) -> float:
    """How fast one core reads a memory map of embeddings is read that is in the machine's cache of files."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.npy")
        np.save(file, np.ones((100_000, width), np.float16))
        began = time.process_time()
        np.load(file, mmap_mode="r").sum(dtype=np.float64)
        return file.stat().st_size / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2_048, help="entries of an embedding")
    parser.add_argument("--chosen", type=int, default=1_500, help="pairs that are kept, a task")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--cores", type=int, default=64, help="of a node")
    parser.add_argument("--gpus", type=int, default=64, help="of the cluster")
    parser.add_argument("--embed-rate", type=float, help="pairs a second of one GPU; else the estimate above")
    parser.add_argument("--gpu-hour", type=float, default=2.5, help="dollars")
    parser.add_argument("--core-hour", type=float, default=0.04, help="dollars")
    parser.add_argument("--gigabyte-month", type=float, default=0.023, help="dollars, of object storage")
    given = parser.parse_args()
    rate = products_a_second(given.width)
    share, reading = share_of_bound(given.width, rate), bytes_a_second(given.width)
    embed = given.embed_rate or USED * H100 / (2 * WEIGHTS * TOKENS)
    said = "given" if given.embed_rate else "estimated"
    print(
        f"one core: {rate / 1e9:.1f} GFLOP/s float64, reads {reading / 1e9:.1f} GB/s; k-center {share:.1f} x its bound"
    )
    print(
        f"one GPU: embeds {embed:.0f} pairs a second ({said}); {given.gpus} GPUs, {given.nodes} x {given.cores} cores"
    )
    print(f"{TASKS} tasks, {given.chosen} pairs kept of each\n")
    print(
        "| raw pairs | images | embeddings | a node's | embedding | k-center, exact | in two rounds | money | a month |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for count in SIZES:
        size, n = 2 * count * given.width, given.chosen
        node = rate * given.cores  # FLOP a second
        work = 2 * count * given.width * n  # of all tasks: each has its share of the rows
        rounds = TASKS * n * ROUND
        exact = max(share * work / (node * given.nodes), size / (reading * given.cores * given.nodes)) + rounds
        second = 2 * TASKS * given.nodes * n * n * given.width / node
        two = share * work / (node * given.nodes) + second
        hours = count / embed / given.gpus / 3600
        money = hours * given.gpus * given.gpu_hour + exact / 3600 * given.cores * given.nodes * given.core_hour
        month = (count * IMAGE + size) / 1e9 * given.gigabyte_month
        cells = [f"{count:,}", f"{count * IMAGE / 1e12:,.1f} TB", f"{size / 1e12:,.2f} TB"]
        cells += [f"{size / given.nodes / 1e9:,.0f} GB", f"{hours:,.1f} h", f"{exact / 3600:,.2f} h"]
        print("|", " | ".join([*cells, f"{two / 3600:,.2f} h", f"${money:,.0f}", f"${month:,.0f}"]), "|")


if __name__ == "__main__":
    main()
