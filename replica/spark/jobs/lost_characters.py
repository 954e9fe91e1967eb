"""Which texts a character set cannot hold: outside of strict mode ALTER TABLE writes ? for their characters."""

import pyarrow as pa
import pyarrow.compute as pc

from protocol.charset import charset_by_name

from ...schemas.charset_names import ANY_CHARACTER, stores


def loses_characters(values: pa.Array, charset: str) -> bool:
    """Whether any of these texts has a character that the character set lacks; of unknown ones only ASCII is sure."""
    found = charset_by_name(charset)
    name = charset if found is None else found.name
    if name in ANY_CHARACTER or not pa.types.is_string(values.type):
        return False
    values = values.filter(pc.invert(pc.string_is_ascii(values))).drop_null()
    return not all(stores(name, text) for text in pc.unique(values).to_pylist())
