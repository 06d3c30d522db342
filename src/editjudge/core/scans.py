"""JPEGs that take minutes to decode. Apart from `core.images`, whose version is in the names of paid answers."""

MOST_SCANS = 100  # a progressive JPEG has about ten; each is a walk over all pixels


def slow(data: bytes) -> str | None:
    """Why an image would take too long to decode: a JPEG of more than MOST_SCANS scans; None: it would not."""
    scans = data.count(b"\xff\xda") if data.startswith(b"\xff\xd8") else 0
    return f"{scans} scans, more than the limit of {MOST_SCANS}" if scans > MOST_SCANS else None
