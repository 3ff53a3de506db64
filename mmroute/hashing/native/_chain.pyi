from mmroute.token_ids import TokenIds

PICKLE: int
CBOR: int
RAW: int
SHA256: int
XXH3_128: int

def hash_words(data: bytes, size: int, seed: int, /) -> bytes: ...
def link_words(words: bytes, seed: int, /) -> bytes: ...
def content_keys(
    token_ids: bytes, size: int, extra: dict[int, int], parent: int | None, /
) -> tuple[int, ...]: ...
def unpack_ids(array: bytes, /) -> bytes | None: ...
def hash_chain(
    token_ids: TokenIds | bytes,
    block_size: int,
    parent: bytes,
    encoding: int,
    digest: int,
    head: bytes,
    opening: bytes,
    closing: bytes,
    ending: bytes,
    runs: tuple[tuple[int, int, bytes, bytes, int], ...],
    others: dict[int, bytes],
    /,
) -> tuple[bytes, ...] | None: ...
