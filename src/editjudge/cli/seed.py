"""`editjudge seed`: finished records that travel with what is published.

They are the measures and the judges' replies in work/, a Parquet file for each item; no images. A record has the
fingerprint of all it depends on, its code too, so an outdated one is never used.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core.errors import FileError
from editjudge.core.files import replacing, work
from editjudge.engine.resume import RecordCache

FOLDER = Path("published/resume")
STAGES = ("annotate", "judge")
FORM = pa.schema([("key", pa.string()), ("meta", pa.string())])


def files() -> list[Path]:
    """The folder's files, by stage and name."""
    return sorted(path for stage in STAGES for path in (FOLDER / stage).glob("*.parquet"))


def write_records() -> int:
    """Writes the records of work/ to the folder and removes all others; how many it has then."""
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


def read_records() -> int:
    """Adds the folder's records to work/; how many there are. FileError: a file that has none."""
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


def seed(*, write: bool = False) -> None:
    """Add the records of published/resume to work/: who pulls and adds one editor computes that editor only.

    `make pull` does it.

    Args:
        write: From work/ to published/resume instead; `make publish` does it.
    """
    count = write_records() if write else read_records()
    print(f"seed: {count} records are in {FOLDER if write else work()}")
