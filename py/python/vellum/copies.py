"""Objects as bytes, of which each load makes a copy that shares nothing. It needs cloudpickle."""

from __future__ import annotations

import io
from typing import Any

from cloudpickle import cloudpickle  # type: ignore[import-untyped, unused-ignore]

if not hasattr(cloudpickle, "Pickler"):
    raise ImportError("this cloudpickle is older: pip install -U cloudpickle")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    """Names no class that is pickled by value.

    By that name cloudpickle finds the class of an earlier load, or the caller's own, and sets its attributes anew: under runs that use it.
    Exceptions keep it, because the caller may catch them by their class.
    """

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and issubclass(obj, BaseException):
            return reduced
        if isinstance(reduced, tuple) and reduced[0] in (cloudpickle._make_skeleton_class, cloudpickle._make_skeleton_enum):
            make, (*of_class, _name, extra), *rest = reduced
            return make, (*of_class, None, extra), *rest
        return reduced


def dumps(what: object) -> bytes:
    """The bytes, for `pickle.loads`."""
    out = io.BytesIO()
    _Pickler(out).dump(what)
    return out.getvalue()
