/* The chained hashes of vLLM's blocks: laid out, hashed and linked in one pass.
 *
 * What is hashed for a block is, in both encodings (see pickle_encoding.py and cbor_encoding.py):
 *
 *     head  parent  opening  the token IDs  closing  ending
 *
 * Pages, as some engines have them, are blocks of nothing but the parent and the token IDs as they
 * are in memory.
 * Dynamo's hashes are 64 bits wide, and have functions of their own below.
 *
 * Python writes everything but the parent, the token IDs and the offset in an ending; this file
 * writes those. It declines (None) what it does not write, and Python does all of it then.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include "xxhash.h"

#include "sha256.h"

enum { PICKLE, CBOR, RAW };
enum { SHA256, XXH3_128 };
enum { WIDEST_INTEGER = 9, FRAME_AT = 3, FRAME_END = 11, FRAME_LIMIT = 1 << 16, LARGEST_DIGEST = 32 };

typedef struct {
    const char *data;
    Py_ssize_t size;
} bytes_view;

/* What stands behind the token IDs of a block: before, and with has_offset also offset, after. */
typedef struct {
    bytes_view before, after;
    int64_t offset;
    int has_offset;
} ending;

typedef struct {
    const uint32_t *ids;
    Py_ssize_t num_blocks, block_size;
    int encoding, digest, digest_size;
    bytes_view head, opening, closing;
    const ending *endings;
    unsigned char *digests; /* num_blocks * digest_size */
} chain;

static unsigned char *put(unsigned char *at, bytes_view bytes) {
    memcpy(at, bytes.data, (size_t)bytes.size);
    return at + bytes.size;
}

static unsigned char *put_little_endian(unsigned char *at, uint64_t value, int width) {
    for (int i = 0; i < width; i++) at[i] = (unsigned char)(value >> 8 * i);
    return at + width;
}

static unsigned char *put_big_endian(unsigned char *at, uint64_t value, int width) {
    for (int i = 0; i < width; i++) at[i] = (unsigned char)(value >> 8 * (width - 1 - i));
    return at + width;
}

/* BININT1, BININT2 and BININT: -2^31 <= value < 2^31. */
static inline unsigned char *put_pickled(unsigned char *at, int64_t value) {
    if (value < 0 || value > 0xffff) {
        *at = 'J';
        return put_little_endian(at + 1, (uint64_t)value, 4);
    }
    if (value > 0xff) {
        *at = 'M';
        return put_little_endian(at + 1, (uint64_t)value, 2);
    }
    *at = 'K';
    return put_little_endian(at + 1, (uint64_t)value, 1);
}

/* Major types 0 and 1, in as few bytes as it takes: RFC 8949, section 4.2.1. */
static inline unsigned char *put_cbor(unsigned char *at, int64_t value) {
    const unsigned char kind = value < 0 ? 0x20 : 0x00;
    const uint64_t argument = (uint64_t)(value < 0 ? -1 - value : value);
    if (argument < 24) {
        *at = (unsigned char)(kind | argument);
        return at + 1;
    }
    const int power = argument <= 0xff ? 0 : argument <= 0xffff ? 1 : argument <= 0xffffffff ? 2 : 3;
    *at = (unsigned char)(kind | (24 + power));
    return put_big_endian(at + 1, argument, 1 << power);
}

static void hash_blocks(const chain *c, const unsigned char *parent, unsigned char *buffer) {
    for (Py_ssize_t block = 0; block < c->num_blocks; block++) {
        const uint32_t *ids = c->ids + block * c->block_size;
        const ending *end = c->endings + block;
        unsigned char *at = put(buffer, c->head);
        memcpy(at, parent, (size_t)c->digest_size);
        at = put(at + c->digest_size, c->opening);
        if (c->encoding == PICKLE)
            for (Py_ssize_t i = 0; i < c->block_size; i++) at = put_pickled(at, ids[i]);
        else if (c->encoding == CBOR)
            for (Py_ssize_t i = 0; i < c->block_size; i++) at = put_cbor(at, ids[i]);
        else
            for (Py_ssize_t i = 0; i < c->block_size; i++) at = put_little_endian(at, ids[i], 4);
        at = put(put(at, c->closing), end->before);
        if (end->has_offset) {
            at = c->encoding == PICKLE ? put_pickled(at, end->offset) : put_cbor(at, end->offset);
            at = put(at, end->after);
        }
        const size_t size = (size_t)(at - buffer);
        if (c->encoding == PICKLE) put_little_endian(buffer + FRAME_AT, size - FRAME_END, 8);
        unsigned char *digest = c->digests + block * c->digest_size;
        if (c->digest == SHA256) {
            sha256(buffer, size, digest);
        } else {
            XXH128_canonical_t canonical;
            XXH128_canonicalFromHash(&canonical, XXH3_128bits(buffer, size));
            memcpy(digest, canonical.digest, sizeof canonical.digest);
        }
        parent = digest;
    }
}

/* Reads [(first, stop, before, after, offset), ...] and {block: before} into endings. */
static int read_endings(ending *endings, Py_ssize_t num_blocks, Py_ssize_t block_size,
                        bytes_view none, PyObject *runs, PyObject *others) {
    for (Py_ssize_t block = 0; block < num_blocks; block++) endings[block].before = none;
    for (Py_ssize_t i = 0, count = PyTuple_Size(runs); i < count; i++) {
        Py_ssize_t first, stop;
        long long offset;
        ending run = {.has_offset = 1};
        if (!PyArg_ParseTuple(PyTuple_GetItem(runs, i), "nny#y#L", &first, &stop, &run.before.data,
                              &run.before.size, &run.after.data, &run.after.size, &offset))
            return -1;
        if (first < 0 || stop > num_blocks) {
            PyErr_SetString(PyExc_ValueError, "a run is outside the blocks");
            return -1;
        }
        for (Py_ssize_t block = first; block < stop; block++) {
            run.offset = offset - (block - first) * block_size;
            endings[block] = run;
        }
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(others, &at, &key, &value);) {
        const Py_ssize_t block = PyLong_AsSsize_t(key);
        if (block == -1 && PyErr_Occurred()) return -1;
        if (block < 0 || block >= num_blocks) {
            PyErr_SetString(PyExc_ValueError, "an extra key is outside the blocks");
            return -1;
        }
        ending other = {.has_offset = 0};
        if (PyBytes_AsStringAndSize(value, (char **)&other.before.data, &other.before.size))
            return -1;
        endings[block] = other;
    }
    return 0;
}

/* The most bytes that a block takes. */
static Py_ssize_t capacity(const chain *c) {
    Py_ssize_t longest = 0;
    for (Py_ssize_t block = 0; block < c->num_blocks; block++) {
        const Py_ssize_t size = c->endings[block].before.size + c->endings[block].after.size;
        if (size > longest) longest = size;
    }
    return c->head.size + LARGEST_DIGEST + c->opening.size + (c->block_size + 1) * WIDEST_INTEGER +
           c->closing.size + longest;
}

/* Whether pickle writes it otherwise: larger integers, and more than one frame. */
static int declined(const chain *c, Py_ssize_t size) {
    if (c->encoding != PICKLE) return 0;
    if (size >= FRAME_LIMIT) return 1;
    uint32_t all = 0;
    for (Py_ssize_t i = 0; i < c->num_blocks * c->block_size; i++) all |= c->ids[i];
    if (all > INT32_MAX) return 1;
    for (Py_ssize_t block = 0; block < c->num_blocks; block++)
        if (c->endings[block].offset < INT32_MIN || c->endings[block].offset > INT32_MAX) return 1;
    return 0;
}

static PyObject *as_tuple(const unsigned char *digests, Py_ssize_t count, int size) {
    PyObject *result = PyTuple_New(count);
    for (Py_ssize_t i = 0; result && i < count; i++) {
        PyObject *digest = PyBytes_FromStringAndSize((const char *)digests + i * size, size);
        if (!digest || PyTuple_SetItem(result, i, digest)) Py_CLEAR(result);
    }
    return result;
}

PyDoc_STRVAR(hash_chain_doc,
"hash_chain(token_ids, block_size, parent, encoding, digest, head, opening, closing, ending, runs,\n"
"           others, /)\n"
"--\n\n"
"The hashes of consecutive blocks, each over its parent's; None if pickle would write\n"
"integers or frames that are not written here.\n\n"
"Args:\n"
"    token_ids: uint32, contiguous, a multiple of block_size.\n"
"    block_size: token IDs in a block.\n"
"    parent: the hash before the first block.\n"
"    encoding: PICKLE, CBOR or RAW.\n"
"    digest: SHA256 or XXH3_128.\n"
"    head: before the parent; of a pickle with room for the size of its frame.\n"
"    opening: between the parent and the token IDs.\n"
"    closing: behind the token IDs.\n"
"    ending: of a block without extra keys.\n"
"    runs: (first, stop, before, after, offset) of blocks whose endings differ in the offset.\n"
"    others: endings by block.\n");

static PyObject *hash_chain(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer ids;
    bytes_view parent, none;
    PyObject *runs, *others, *result = NULL;
    unsigned char *buffer = NULL;
    ending *endings = NULL;
    chain c = {0};
    if (!PyArg_ParseTuple(args, "y*ny#iiy#y#y#y#O!O!:hash_chain", &ids, &c.block_size, &parent.data,
                          &parent.size, &c.encoding, &c.digest, &c.head.data, &c.head.size,
                          &c.opening.data, &c.opening.size, &c.closing.data, &c.closing.size,
                          &none.data, &none.size, &PyTuple_Type, &runs, &PyDict_Type, &others))
        return NULL;
    const Py_ssize_t count = ids.len / (Py_ssize_t)sizeof(uint32_t);
    c.ids = ids.buf;
    c.digest_size = c.digest == SHA256 ? 32 : 16;
    if (c.block_size < 1 || c.block_size > FRAME_LIMIT || ids.len % (Py_ssize_t)sizeof(uint32_t) ||
        count % c.block_size || parent.size != c.digest_size ||
        (c.encoding != PICKLE && c.encoding != CBOR && c.encoding != RAW) ||
        (c.digest != XXH3_128 && c.digest != SHA256) ||
        (c.encoding == PICKLE && c.head.size < FRAME_END)) {
        PyErr_SetString(PyExc_ValueError, "these arguments do not describe blocks");
        goto done;
    }
    c.num_blocks = count / c.block_size;
    endings = PyMem_Calloc((size_t)c.num_blocks + 1, sizeof *endings);
    c.digests = PyMem_Malloc((size_t)(c.num_blocks * c.digest_size + 1));
    if (!endings || !c.digests) {
        PyErr_NoMemory();
        goto done;
    }
    if (read_endings(endings, c.num_blocks, c.block_size, none, runs, others)) goto done;
    c.endings = endings;
    const Py_ssize_t size = capacity(&c);
    if (declined(&c, size)) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    if (!(buffer = PyMem_Malloc((size_t)size))) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    hash_blocks(&c, (const unsigned char *)parent.data, buffer);
    Py_END_ALLOW_THREADS
    result = as_tuple(c.digests, c.num_blocks, c.digest_size);
done:
    PyMem_Free(buffer);
    PyMem_Free(endings);
    PyMem_Free(c.digests);
    PyBuffer_Release(&ids);
    return result;
}

PyDoc_STRVAR(hash_words_doc,
"hash_words(data, size, seed, /)\n"
"--\n\n"
"The XXH3 hash of each `size` bytes, 64 bits each, in the machine's order of bytes.\n");

static PyObject *hash_words(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    Py_ssize_t size;
    unsigned long long seed;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nK:hash_words", &data, &size, &seed)) return NULL;
    if (size < 1 || data.len % size) {
        PyErr_SetString(PyExc_ValueError, "these arguments do not describe blocks");
        goto done;
    }
    const Py_ssize_t count = data.len / size;
    if (count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(uint64_t)) {
        PyErr_NoMemory();
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint64_t));
    if (!result) goto done;
    char *at = PyBytes_AsString(result);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++, at += sizeof(uint64_t)) {
        const uint64_t hash =
            XXH3_64bits_withSeed((const char *)data.buf + i * size, (size_t)size, seed);
        memcpy(at, &hash, sizeof hash);
    }
    Py_END_ALLOW_THREADS
done:
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(link_words_doc,
"link_words(words, seed, /)\n"
"--\n\n"
"The first word; and the XXH3 hash of each other one behind the hash before it. All are 64 bits\n"
"wide, in the machine's order of bytes.\n");

static PyObject *link_words(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer words;
    unsigned long long seed;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*K:link_words", &words, &seed)) return NULL;
    if (words.len % (Py_ssize_t)sizeof(uint64_t)) {
        PyErr_SetString(PyExc_ValueError, "these arguments do not describe blocks");
        goto done;
    }
    result = PyBytes_FromStringAndSize(words.buf, words.len);
    if (!result) goto done;
    char *at = PyBytes_AsString(result);
    uint64_t parent, word;
    if (words.len) memcpy(&parent, at, sizeof parent);
    for (Py_ssize_t i = sizeof word; i < words.len; i += sizeof word) {
        unsigned char both[2 * sizeof word];
        memcpy(&word, at + i, sizeof word);
        put_little_endian(put_little_endian(both, parent, sizeof parent), word, sizeof word);
        parent = XXH3_64bits_withSeed(both, sizeof both, seed);
        memcpy(at + i, &parent, sizeof parent);
    }
done:
    PyBuffer_Release(&words);
    return result;
}

PyDoc_STRVAR(unpack_ids_doc,
"unpack_ids(array, /)\n"
"--\n\n"
"The numbers of an array of msgpack, 32 bits each, in the machine's order of bytes; None if it is\n"
"anything else.\n");

static PyObject *unpack_ids(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer array;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*:unpack_ids", &array)) return NULL;
    /* Eight bytes can be read at every number, so no branch depends on its width. */
    unsigned char *copy = PyMem_Calloc((size_t)array.len + sizeof(uint64_t), 1), *at = copy;
    if (!copy) {
        PyBuffer_Release(&array);
        return PyErr_NoMemory();
    }
    memcpy(copy, array.buf, (size_t)array.len);
    const unsigned char *end = copy + array.len;
    Py_ssize_t count = -1;
    if (*at >> 4 == 9) count = *at++ & 15;
    else if (*at == 0xdc) count = at[1] << 8 | at[2], at += 3;
    else if (*at == 0xdd)
        count = (Py_ssize_t)at[1] << 24 | at[2] << 16 | at[3] << 8 | at[4], at += 5;
    if (count >= 0 && count <= end - at) { /* a number has a byte at least */
        result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
        char *to = result ? PyBytes_AsString(result) : NULL;
        for (; to && count && at < end; count--, to += sizeof(uint32_t)) {
            if (*at >= 0x80 && (*at < 0xcc || *at > 0xce)) break;
            const int width = (*at >= 0xcc) << ((*at - 0xcc) & 3);
            uint64_t all = 0;
            for (size_t i = 0; i < sizeof all; i++) all = all << 8 | at[i];
            const uint32_t number = all >> (56 - 8 * width) & 0xffffffff >> (32 - 8 * (width + !width));
            memcpy(to, &number, sizeof number);
            at += 1 + width;
        }
    }
    if (result && (count || at != end)) Py_CLEAR(result);
    PyMem_Free(copy);
    PyBuffer_Release(&array);
    return result || PyErr_Occurred() ? result : Py_NewRef(Py_None);
}

PyDoc_STRVAR(content_keys_doc,
"content_keys(token_ids, size, extra, parent, /)\n"
"--\n\n"
"The keys of blocks of `size` bytes; see `mmroute.hashing.content`.\n\n"
"Args:\n"
"    token_ids: whole blocks.\n"
"    size: the number of bytes in a block.\n"
"    extra: the digests of blocks with extra keys, by the block's number.\n"
"    parent: the key of the block before; None if there is none.\n");

static PyObject *content_keys(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer ids;
    Py_ssize_t size;
    PyObject *extra, *parent, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nO!O", &ids, &size, &PyDict_Type, &extra, &parent)) return NULL;
    uint64_t key = parent == Py_None ? 0 : PyLong_AsUnsignedLongLong(parent);
    if (PyErr_Occurred()) goto done;
    if (size < 1 || ids.len % size) {
        PyErr_SetString(PyExc_ValueError, "these arguments do not describe blocks");
        goto done;
    }
    const int has_extra = PyDict_Size(extra) > 0;
    result = PyTuple_New(ids.len / size);
    for (Py_ssize_t i = 0; result && i < ids.len / size; i++) {
        unsigned char both[2 * sizeof key];
        uint64_t word = XXH3_64bits_withSeed((const char *)ids.buf + i * size, (size_t)size, 0);
        PyObject *number = has_extra ? PyLong_FromSsize_t(i) : NULL;
        PyObject *digest = number ? PyDict_GetItemWithError(extra, number) : NULL;
        Py_XDECREF(number);
        if (digest) {
            const uint64_t other = PyLong_AsUnsignedLongLong(digest);
            put_little_endian(put_little_endian(both, word, sizeof word), other, sizeof other);
            word = XXH3_64bits_withSeed(both, sizeof both, 0);
        }
        if (i || parent != Py_None) {
            put_little_endian(put_little_endian(both, key, sizeof key), word, sizeof word);
            word = XXH3_64bits_withSeed(both, sizeof both, 0);
        }
        key = word;
        PyObject *made = PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(key);
        if (!made || PyTuple_SetItem(result, i, made)) Py_CLEAR(result);
    }
done:
    PyBuffer_Release(&ids);
    return result;
}

static PyMethodDef methods[] = {
    {"content_keys", content_keys, METH_VARARGS, content_keys_doc},
    {"hash_chain", hash_chain, METH_VARARGS, hash_chain_doc},
    {"hash_words", hash_words, METH_VARARGS, hash_words_doc},
    {"link_words", link_words, METH_VARARGS, link_words_doc},
    {"unpack_ids", unpack_ids, METH_VARARGS, unpack_ids_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
    sha256_choose();
    if (PyModule_AddIntConstant(module, "PICKLE", PICKLE) ||
        PyModule_AddIntConstant(module, "CBOR", CBOR) ||
        PyModule_AddIntConstant(module, "RAW", RAW) ||
        PyModule_AddIntConstant(module, "SHA256", SHA256) ||
        PyModule_AddIntConstant(module, "XXH3_128", XXH3_128))
        return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_chain", "Chained block hashes, compiled.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__chain(void) { return PyModuleDef_Init(&definition); }
