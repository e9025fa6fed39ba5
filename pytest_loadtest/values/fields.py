"""Types of the fields that results documents have, for dataclasses of packages that know no
documents.

``report`` reads and writes such a dataclass as it is: the names of its fields are the keys, the
text below a field is its description in ``results.schema.json``, and these types are checked when a
document is read. They only annotate: no code but that of ``report`` evaluates them.
"""

from typing import Annotated

from annotated_types import Ge

Number = int | float
"""A JSON number.

It stays an int or a float when it is read, so that it is written again as it was.
"""
Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]
