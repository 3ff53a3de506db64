/* Which slots hold a block: `holders.h` for Python, and the lookup of a prompt in several tables.
 *
 * `mmroute.kv_events.holders` has the same in Python, which is the reference. Every function runs
 * under the interpreter's lock.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "holders.h"

enum { CHUNK = 32, KEY_BYTES = 8, SLOT_BYTES = 2, COUNT_BYTES = 4 };
enum { RECORD_BYTES = KEY_BYTES + SLOT_BYTES + COUNT_BYTES };

/* --- arguments ------------------------------------------------------------------------------ */

/* The low 64 bits of each hash, which is bytes or an integer; to be freed. */
static uint64_t *keys_of(PyObject *hashes, Py_ssize_t *count) {
    *count = PyTuple_Size(hashes);
    uint64_t *keys = *count < 0 ? NULL : PyMem_Malloc((size_t)(*count + 1) * sizeof *keys);
    if (!keys) return *count < 0 ? NULL : (uint64_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *hash = PyTuple_GetItem(hashes, i);
        if (PyBytes_Check(hash)) {
            char *data;
            Py_ssize_t size;
            (void)PyBytes_AsStringAndSize(hash, &data, &size);
            uint64_t key = 0;
            for (Py_ssize_t at = size < KEY_BYTES ? 0 : size - KEY_BYTES; at < size; at++)
                key = key << 8 | (unsigned char)data[at];
            keys[i] = key;
        } else {
            keys[i] = PyLong_AsUnsignedLongLongMask(hash);
            if (keys[i] == (uint64_t)-1 && PyErr_Occurred()) {
                PyMem_Free(keys);
                return NULL;
            }
        }
    }
    return keys;
}

static int is_slot(int slot) {
    if (slot >= 0 && slot < MAX_SLOTS) return 1;
    PyErr_Format(PyExc_ValueError, "slot %d is not below %d", slot, MAX_SLOTS);
    return 0;
}

/* Slots as two bytes each, in the machine's order. */
static Py_ssize_t read_slots(const Py_buffer *buffer, slot_set *set) {
    const Py_ssize_t count = buffer->len / SLOT_BYTES;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint16_t slot;
        memcpy(&slot, (const char *)buffer->buf + i * SLOT_BYTES, sizeof slot);
        if (!is_slot(slot)) return -1;
        set->words[slot >> 6] |= (uint64_t)1 << (slot & 63);
    }
    return count;
}

/* --- methods -------------------------------------------------------------------------------- */

/* --- methods -------------------------------------------------------------------------------- */

typedef int (*change)(table *, int slot, uint64_t hash, uint64_t key);

static PyObject *change_all(table *self, PyObject *args, change function) {
    int slot, failed = 0;
    PyObject *hashes;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "iO!", &slot, &PyTuple_Type, &hashes) || !is_slot(slot))
        return NULL;
    uint64_t *keys = keys_of(hashes, &count);
    if (!keys) return NULL;
    for (Py_ssize_t first = 0; first < count; first += CHUNK) {
        const Py_ssize_t size = count - first < CHUNK ? count - first : CHUNK;
        uint64_t mixes[CHUNK];
        for (Py_ssize_t i = 0; i < size; i++) {
            mixes[i] = mixed(keys[first + i]);
            const shard *s = shard_of(self, mixes[i]);
            prefetch(s->entries + home(s, mixes[i]));
        }
        for (Py_ssize_t i = 0; i < size; i++)
            failed |= function(self, slot, mixes[i], keys[first + i]);
    }
    PyMem_Free(keys);
    return failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static PyObject *table_store(table *self, PyObject *args) {
    return change_all(self, args, add_copy);
}

static PyObject *table_remove(table *self, PyObject *args) {
    return change_all(self, args, remove_copy);
}

static PyObject *table_link(table *self, PyObject *args) {
    int slot;
    PyObject *hashes, *linked;
    Py_ssize_t count, more = 0;
    if (!PyArg_ParseTuple(args, "iO!O!:link", &slot, &PyTuple_Type, &hashes, &PyTuple_Type,
                          &linked) || !is_slot(slot))
        return NULL;
    uint64_t *from = keys_of(hashes, &count), *to = from ? keys_of(linked, &more) : NULL;
    int failed = to && !self->linked && !(self->linked = PyMem_Calloc(SHARDS, sizeof(links)));
    if (more < count) count = more;
    for (Py_ssize_t first = 0; to && !failed && first < count; first += CHUNK) {
        const Py_ssize_t size = count - first < CHUNK ? count - first : CHUNK;
        uint64_t mixes[CHUNK];
        for (Py_ssize_t i = 0; i < size; i++) {
            const uint64_t hash = from[first + i] = mixed(from[first + i]);
            mixes[i] = mixed(to[first + i]);
            const shard *s = shard_of(self, mixes[i]);
            prefetch(s->entries + home(s, mixes[i]));
            prefetch(place_of(self->linked + (hash >> (64 - SHARD_BITS)), hash));
        }
        for (Py_ssize_t i = 0; i < size; i++) {
            failed |= add_copy(self, slot, mixes[i], to[first + i]);
            failed |= add_link(self, from[first + i], number_of(mixes[i]));
        }
    }
    PyMem_Free(from);
    PyMem_Free(to);
    if (!to) return NULL;
    return failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static PyObject *table_keys_of(table *self, PyObject *hashes) {
    Py_ssize_t count;
    PyObject *result = PyList_New(0);
    uint64_t *from = result && PyTuple_Check(hashes) ? keys_of(hashes, &count) : NULL;
    for (Py_ssize_t i = 0; from && i < count; i++) {
        uint64_t found[MOST_KEYS];
        for (int n = keys_of_hash(self, mixed(from[i]), found); result && n--;) {
            PyObject *key = PyLong_FromUnsignedLongLong(found[n]);
            if (!key || PyList_Append(result, key)) Py_CLEAR(result);
            Py_XDECREF(key);
        }
    }
    if (!from) Py_CLEAR(result);
    if (!from && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "hashes must be a tuple");
    PyMem_Free(from);
    PyObject *tuple = result ? PyList_AsTuple(result) : NULL;
    Py_XDECREF(result);
    return tuple;
}

static PyObject *table_sweep(table *self, PyObject *args) {
    int cursor;
    Py_ssize_t most;
    Py_buffer slots;
    if (!PyArg_ParseTuple(args, "iy*n:sweep", &cursor, &slots, &most)) return NULL;
    slot_set gone = {{0}};
    const Py_ssize_t count = read_slots(&slots, &gone);
    PyBuffer_Release(&slots);
    if (count < 0) return NULL;
    if (cursor <= 0) {
        cursor = 0;
        for (int slot = 0; slot < self->num_more; slot++)
            if (gone.words[slot >> 6] >> (slot & 63) & 1) free_more(self, slot);
    }
    for (; cursor < SHARDS && most > 0; cursor++) {
        shard *s = self->shards + cursor;
        most -= s->capacity;
        if (s->used && sweep_shard(self, s, &gone)) return PyErr_NoMemory();
    }
    return PyLong_FromLong(cursor < SHARDS ? cursor : 0);
}

static unsigned char *put_little_endian(unsigned char *at, uint64_t value, int width) {
    for (int i = 0; i < width; i++) at[i] = (unsigned char)(value >> 8 * i);
    return at + width;
}

static uint64_t get_little_endian(const unsigned char *at, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static unsigned char *put_record(unsigned char *at, const table *self, uint64_t key, int slot) {
    at = put_little_endian(at, key, KEY_BYTES);
    at = put_little_endian(at, (uint64_t)slot, SLOT_BYTES);
    return put_little_endian(at, num_copies(self, slot, key), COUNT_BYTES);
}

/* Writes one record for each block and slot of `live`, where `at` is not NULL. Returns how many. */
static size_t write_records(const table *self, const slot_set *live, unsigned char *at) {
    size_t count = 0;
    for (int n = 0; n < SHARDS; n++)
        for (uint32_t i = 0; i < self->shards[n].capacity; i++) {
            const entry *e = self->shards[n].entries + i;
            if (!e->value) continue;
            const int alone = is_one(e->value) ? only_slot(e->value) : -1;
            const uint64_t *row = alone < 0 ? row_of(e->value) : NULL;
            uint64_t summary = row ? row[0] : (uint64_t)1 << (alone >> 6);
            for (int next = 1; summary; summary &= summary - 1) {
                const int w = lowest_bit(summary);
                uint64_t word = row ? row[next++] : (uint64_t)1 << (alone & 63);
                for (word &= live->words[w]; word; word &= word - 1, count++)
                    if (at) at = put_record(at, self, e->key, 64 * w + lowest_bit(word));
            }
        }
    return count;
}

static PyObject *table_dump(table *self, PyObject *args) {
    Py_buffer slots;
    slot_set live = {{0}};
    if (!PyArg_ParseTuple(args, "y*:dump", &slots)) return NULL;
    const Py_ssize_t count = read_slots(&slots, &live);
    PyBuffer_Release(&slots);
    if (count < 0) return NULL;
    const Py_ssize_t size = (Py_ssize_t)write_records(self, &live, NULL) * RECORD_BYTES;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (bytes) (void)write_records(self, &live, (unsigned char *)PyBytes_AsString(bytes));
    return bytes;
}

/* Makes room for records at once. A dump is in the order of its table, and entries that come in
 * this order crowd into the beginning of a table that is still to grow. */
static int make_room(table *self, const unsigned char *at, const unsigned char *end) {
    uint32_t *counts = PyMem_Calloc(SHARDS, sizeof *counts);
    int failed = counts ? 0 : -1;
    for (uint64_t last = 0; !failed && at < end; at += RECORD_BYTES) {
        const uint64_t key = get_little_endian(at, KEY_BYTES);
        const shard *s = shard_of(self, mixed(key));
        counts[s - self->shards] += !counts[s - self->shards] || key != last;
        last = key;
    }
    for (int n = 0; !failed && n < SHARDS; n++) {
        shard *s = self->shards + n;
        if (counts[n]) failed = resize(s, s->used + counts[n] + counts[n] / 2 + SMALLEST);
    }
    PyMem_Free(counts);
    return failed;
}

static PyObject *table_load(table *self, PyObject *args) {
    Py_buffer records;
    if (!PyArg_ParseTuple(args, "y*:load", &records)) return NULL;
    const unsigned char *at = records.buf, *end = at + records.len;
    int malformed = records.len % RECORD_BYTES != 0;
    int failed = malformed ? 0 : make_room(self, at, end);
    for (; !failed && !malformed && at < end; at += RECORD_BYTES) {
        const uint64_t key = get_little_endian(at, KEY_BYTES);
        const int slot = (int)get_little_endian(at + KEY_BYTES, SLOT_BYTES);
        const uint64_t copies = get_little_endian(at + KEY_BYTES + SLOT_BYTES, COUNT_BYTES);
        malformed = slot >= MAX_SLOTS || !copies;
        if (!malformed) failed = add_copy(self, slot, mixed(key), key);
        if (!malformed && !failed && copies > 1) {
            failed = one_more(self, slot, mixed(key), key);
            if (!failed) find(self->more + slot, mixed(key), key)->value = copies - 1;
        }
    }
    PyBuffer_Release(&records);
    if (failed) return PyErr_NoMemory();
    if (!malformed) return Py_NewRef(Py_None);
    PyErr_SetString(PyExc_ValueError, "these bytes are no records of a table");
    return NULL;
}

static PyObject *table_num_blocks(table *self, PyObject *unused) {
    (void)unused;
    size_t blocks = 0;
    for (int n = 0; n < SHARDS; n++) blocks += self->shards[n].used;
    return PyLong_FromSize_t(blocks);
}

static PyObject *table_sizeof(table *self, PyObject *unused) {
    (void)unused;
    size_t bytes = sizeof *self + self->row_bytes + (size_t)self->num_more * sizeof(shard);
    for (int n = 0; n < SHARDS; n++) bytes += self->shards[n].capacity * sizeof(entry);
    for (int n = 0; n < self->num_more; n++) bytes += self->more[n].capacity * sizeof(entry);
    for (int n = 0; self->linked && n < SHARDS; n++)
        bytes += sizeof(links) + self->linked[n].capacity * sizeof(uint64_t);
    return PyLong_FromSize_t(bytes);
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args, (void)keywords;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0); /* zeros: an empty table */
}

static void table_dealloc(table *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"store", (PyCFunction)table_store, METH_VARARGS, NULL},
    {"remove", (PyCFunction)table_remove, METH_VARARGS, NULL},
    {"link", (PyCFunction)table_link, METH_VARARGS, NULL},
    {"keys_of", (PyCFunction)table_keys_of, METH_O, NULL},
    {"sweep", (PyCFunction)table_sweep, METH_VARARGS, NULL},
    {"dump", (PyCFunction)table_dump, METH_VARARGS, NULL},
    {"load", (PyCFunction)table_load, METH_VARARGS, NULL},
    {"num_blocks", (PyCFunction)table_num_blocks, METH_NOARGS, NULL},
    {"__sizeof__", (PyCFunction)table_sizeof, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_new, table_new},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {Py_tp_doc, "Which slots hold a block; see `mmroute.kv_events.holders.PythonTable`."},
    {0, NULL},
};

static PyType_Spec table_spec = {
    "_holders.Table", sizeof(table), 0, Py_TPFLAGS_DEFAULT, table_slots,
};

/* --- looking up a prompt -------------------------------------------------------------------- */

typedef struct {
    table **tables;
    Py_ssize_t num_tables;
    slot_set matching;
    int num_words;
    uint32_t lengths[MAX_SLOTS];
} lookup;

/* Those that hold the block at `at` go on matching; of the others it was the first that failed. */
static int keep_holders(lookup *q, const slot_set *held, uint32_t at) {
    uint64_t any = 0;
    for (int w = 0; w < q->num_words; w++) {
        uint64_t dropped = q->matching.words[w] & ~held->words[w];
        any |= q->matching.words[w] &= held->words[w];
        for (; dropped; dropped &= dropped - 1) q->lengths[64 * w + lowest_bit(dropped)] = at;
    }
    return any != 0;
}

static void walk(lookup *q, const uint64_t *keys, Py_ssize_t count) {
    int matches = 1;
    for (Py_ssize_t first = 0; first < count && matches; first += CHUNK) {
        const Py_ssize_t size = count - first < CHUNK ? count - first : CHUNK;
        uint64_t mixes[CHUNK];
        slot_set held[CHUNK];
        for (Py_ssize_t i = 0; i < size; i++) {
            mixes[i] = mixed(keys[first + i]);
            memset(held[i].words, 0, (size_t)q->num_words * sizeof(uint64_t));
        }
        for (Py_ssize_t t = 0; t < q->num_tables; t++) {
            uint64_t values[CHUNK];
            for (Py_ssize_t i = 0; i < size; i++) {
                const shard *s = shard_of(q->tables[t], mixes[i]);
                prefetch(s->entries + home(s, mixes[i]));
            }
            for (Py_ssize_t i = 0; i < size; i++) {
                const entry *e = find(shard_of(q->tables[t], mixes[i]), mixes[i], keys[first + i]);
                values[i] = e ? e->value : 0;
                if (e && !is_one(e->value)) prefetch(row_of(e->value));
            }
            for (Py_ssize_t i = 0; i < size; i++)
                if (values[i]) add_to_set(held + i, values[i]);
        }
        for (Py_ssize_t i = 0; i < size && matches; i++)
            matches = keep_holders(q, held + i, (uint32_t)(first + i));
    }
    const slot_set none = {{0}};
    (void)keep_holders(q, &none, (uint32_t)count);
}

PyDoc_STRVAR(lookup_doc,
"longest(tables, hashes, slots, /)\n"
"--\n\n"
"How many leading blocks each slot holds in any of the tables.\n\n"
"Args:\n"
"    tables: a tuple of Table.\n"
"    hashes: a tuple of bytes or integers.\n"
"    slots: two bytes each, in the machine's order.\n\n"
"Returns:\n"
"    A list of the numbers, in the order of the slots.\n");

static PyObject *longest(PyObject *module, PyObject *args) {
    PyObject *tables, *hashes, *result = NULL;
    Py_buffer slots;
    Py_ssize_t count;
    uint64_t *keys = NULL;
    if (!PyArg_ParseTuple(args, "O!O!y*:longest", &PyTuple_Type, &tables, &PyTuple_Type, &hashes,
                          &slots))
        return NULL;
    PyObject *type = *(PyObject **)PyModule_GetState(module);
    lookup *q = PyMem_Calloc(1, sizeof *q);
    if (!q) {
        PyErr_NoMemory();
        goto done;
    }
    q->num_tables = PyTuple_Size(tables);
    q->tables = PyMem_Malloc((size_t)(q->num_tables + 1) * sizeof *q->tables);
    const Py_ssize_t num_slots = read_slots(&slots, &q->matching);
    if (!q->tables || num_slots < 0 || !(keys = keys_of(hashes, &count))) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t t = 0; t < q->num_tables; t++) {
        PyObject *item = PyTuple_GetItem(tables, t);
        if (!PyObject_TypeCheck(item, (PyTypeObject *)type)) {
            PyErr_SetString(PyExc_TypeError, "the tables must be of type Table");
            goto done;
        }
        q->tables[t] = (table *)item;
    }
    q->num_words = WORDS;
    while (q->num_words && !q->matching.words[q->num_words - 1]) q->num_words--;
    walk(q, keys, count);
    if (!(result = PyList_New(num_slots))) goto done;
    for (Py_ssize_t i = 0; i < num_slots; i++) {
        uint16_t slot;
        memcpy(&slot, (const char *)slots.buf + i * SLOT_BYTES, sizeof slot);
        PyObject *length = PyLong_FromUnsignedLong(q->lengths[slot]);
        if (!length || PyList_SetItem(result, i, length)) {
            Py_CLEAR(result);
            break;
        }
    }
done:
    PyBuffer_Release(&slots);
    PyMem_Free(keys);
    if (q) PyMem_Free(q->tables);
    PyMem_Free(q);
    return result;
}

static PyMethodDef methods[] = {
    {"longest", longest, METH_VARARGS, lookup_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
    PyObject *type = PyType_FromSpec(&table_spec);
    if (!type) return -1;
    *(PyObject **)PyModule_GetState(module) = type;
    Py_INCREF(type);
    if (PyModule_AddObject(module, "Table", type)) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    Py_VISIT(*(PyObject **)PyModule_GetState(module));
    return 0;
}

static int forget(PyObject *module) {
    Py_CLEAR(*(PyObject **)PyModule_GetState(module));
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_holders", "Which slots hold a block, compiled.",
    sizeof(PyObject *), methods, slots, traverse, forget, NULL,
};

PyMODINIT_FUNC PyInit__holders(void) { return PyModuleDef_Init(&definition); }
