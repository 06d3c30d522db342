"""Settings of what is asked over HTTP, which are read without loading the client."""

import os
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from editjudge.core.params import ParamsError
from editjudge.core.settings import Positive, Real, Text

NO_KEY = "none"  # the name of the environment variable of an endpoint that wants no key


def key_from(variable: str, model: str) -> str | None:
    """The API key in an environment variable; None where none is wanted. ParamsError where it is wanted and not set."""
    if variable == NO_KEY:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ParamsError(f"no API key for {model}: set the environment variable {variable}")
    return key


def _check_url(base_url: str) -> str:
    wrong = ValueError("must be like http://127.0.0.1:8000/v1, without a key in it")
    try:
        url = urlsplit(base_url)
        _ = url.port
    except ValueError:  # brackets without an address, or a port above 65535
        raise wrong from None
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        raise wrong
    return base_url


Address: TypeAlias = Annotated[Text, AfterValidator(_check_url)]
Seconds: TypeAlias = Annotated[Real, Field(ge=0.001, le=86_400)]
Tries: TypeAlias = Annotated[Positive, Field(le=100)]
