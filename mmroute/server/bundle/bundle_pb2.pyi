from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ZipChunk(_message.Message):
    __slots__ = ("data", "sha256")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    sha256: str
    def __init__(self, data: _Optional[bytes] = ..., sha256: _Optional[str] = ...) -> None: ...

class TokenizerChunk(_message.Message):
    __slots__ = ("metadata", "file_chunk")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FILE_CHUNK_FIELD_NUMBER: _ClassVar[int]
    metadata: TokenizerMetadata
    file_chunk: TokenizerFileChunk
    def __init__(self, metadata: _Optional[_Union[TokenizerMetadata, _Mapping]] = ..., file_chunk: _Optional[_Union[TokenizerFileChunk, _Mapping]] = ...) -> None: ...

class TokenizerMetadata(_message.Message):
    __slots__ = ("model_identifier", "fingerprint", "files", "bundle_format")
    MODEL_IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    model_identifier: str
    fingerprint: str
    files: _containers.RepeatedCompositeFieldContainer[TokenizerFileDescriptor]
    bundle_format: str
    def __init__(self, model_identifier: _Optional[str] = ..., fingerprint: _Optional[str] = ..., files: _Optional[_Iterable[_Union[TokenizerFileDescriptor, _Mapping]]] = ..., bundle_format: _Optional[str] = ...) -> None: ...

class TokenizerFileDescriptor(_message.Message):
    __slots__ = ("file_name", "size")
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    size: int
    def __init__(self, file_name: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class TokenizerFileChunk(_message.Message):
    __slots__ = ("file_name", "data", "chunk_index", "is_last_chunk")
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHUNK_INDEX_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    data: bytes
    chunk_index: int
    is_last_chunk: bool
    def __init__(self, file_name: _Optional[str] = ..., data: _Optional[bytes] = ..., chunk_index: _Optional[int] = ..., is_last_chunk: _Optional[bool] = ...) -> None: ...
