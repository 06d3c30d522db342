"""Resume state that travels with what is published: who pulls it and adds one editor pays for that editor only.

    python -m editjudge.commands.seed            # published/resume into work/; `make pull` does it
    python -m editjudge.commands.seed --write    # work/ into published/resume; `make publish` does it

It is the measures and the judges' replies that work/ has, a Parquet file an item; no images. A record stays under the
fingerprint of all that it depends on, its code too: what does not hold any more is never found.
"""

import argparse
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core.errors import FileError
from editjudge.core.files import replacing, work
from editjudge.core.main import guarded
from editjudge.engine.resume import RecordCache

FOLDER = Path("published/resume")
STAGES = ("annotate", "judge")
FORM = pa.schema([("key", pa.string()), ("meta", pa.string())])


def files() -> list[Path]:
    """What the folder has, by stage and name."""
    return sorted(path for stage in STAGES for path in (FOLDER / stage).glob("*.parquet"))


def write() -> int:
    """Fills the folder, and takes out of it what work/ does not have; how many records it has then."""
    count, written = 0, set()
    for file in sorted(file for stage in STAGES for file in work(stage).glob("*.sqlite")):
        with RecordCache(file) as cache:
            rows = [{"key": key, "meta": json.dumps(meta)} for key, (meta, data) in cache.all() if data is None]
        if rows:
            out = FOLDER / file.parent.name / f"{file.stem}.parquet"
            with replacing(out) as temporary:
                pq.write_table(pa.Table.from_pylist(rows, FORM), temporary, compression="zstd", compression_level=19)
            count += len(rows)
            written.add(out)
    for file in set(files()) - written:
        file.unlink()
    return count


def read() -> int:
    """Puts the records of the folder into work/, where it does not have them; how many there are. FileError."""
    count = 0
    for file in files():
        try:
            rows = pq.read_table(file, schema=FORM).to_pylist()
            records = [(row["key"], dict(json.loads(row["meta"])), None) for row in rows]
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise FileError(f"{file}: no resume state: {' '.join(str(error).split())}") from error
        place = work(file.parent.name, f"{file.stem}.sqlite")
        with RecordCache(place) as cache:
            cache.add(records)
        count += len(records)
    return count


def seed(to_folder: bool) -> None:
    count = write() if to_folder else read()
    print(f"seed: {count} records are in {FOLDER if to_folder else work()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="from work/ into published/resume")
    guarded("seed", seed, parser.parse_args().write)


if __name__ == "__main__":
    main()
