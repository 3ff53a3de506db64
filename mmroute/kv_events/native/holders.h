/* The table: which slots hold a block, and how many copies each has.
 *
 * An open-addressing hash table of 16 bytes an entry, cut into shards that grow one by one: no
 * pause and no peak of memory grows with the whole. An entry has the low 64 bits of a block hash,
 * and its holders: one slot, or a pointer to a row of bits, one for each slot. A row has only the
 * words that are not zero, behind a word that says which these are.
 */

#ifndef MMROUTE_HOLDERS_H
#define MMROUTE_HOLDERS_H

#include <stdint.h>
#include <string.h>

enum { SHARD_BITS = 12, SHARDS = 1 << SHARD_BITS, WORDS = 64, MAX_SLOTS = 64 * WORDS };
enum { SMALLEST = 8 };

#if defined(__GNUC__)
#define popcount64(x) __builtin_popcountll(x)
#define lowest_bit(x) __builtin_ctzll(x)
#define prefetch(p) __builtin_prefetch(p)
#else
#include <intrin.h>
#define popcount64(x) ((int)__popcnt64(x))
static inline int lowest_bit(uint64_t x) {
    unsigned long at;
    _BitScanForward64(&at, x);
    return (int)at;
}
#define prefetch(p) ((void)(p))
#endif

typedef struct {
    uint64_t key, value; /* value 0: an empty entry */
} entry;

typedef struct {
    entry *entries;
    uint32_t capacity, used;
} shard;

typedef struct {
    uint64_t *pairs;
    uint32_t capacity, used;
} links;

typedef struct {
    uint64_t words[WORDS];
} slot_set;

typedef struct {
    PyObject_HEAD
    shard shards[SHARDS];
    shard *more; /* by slot: how many copies of a block it has beyond the first */
    int num_more;
    links *linked; /* the keys for which an engine's hashes stand; NULL without any */
    uint64_t row_bytes;
} table;

static inline uint64_t mixed(uint64_t key) { /* the finalizer of MurmurHash3 */
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdULL;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return key ^ key >> 33;
}

static inline shard *shard_of(table *self, uint64_t hash) {
    return self->shards + (hash >> (64 - SHARD_BITS));
}

static inline uint32_t home(const shard *s, uint64_t hash) {
    return (uint32_t)((hash & 0xffffffff) * s->capacity >> 32);
}

/* --- one shard ------------------------------------------------------------------------------ */

static entry *find(const shard *s, uint64_t hash, uint64_t key) {
    if (!s->used) return NULL;
    for (uint32_t at = home(s, hash); s->entries[at].value; at = at + 1 == s->capacity ? 0 : at + 1)
        if (s->entries[at].key == key) return s->entries + at;
    return NULL;
}

static void put(shard *s, uint64_t hash, uint64_t key, uint64_t value) {
    uint32_t at = home(s, hash);
    while (s->entries[at].value) at = at + 1 == s->capacity ? 0 : at + 1;
    s->entries[at] = (entry){key, value};
    s->used++;
}

/* At most three quarters are used, and at least a half after it grew. */
static int resize(shard *s, uint32_t capacity) {
    shard larger = {PyMem_Calloc(capacity, sizeof(entry)), capacity, 0};
    if (!larger.entries) return -1;
    for (uint32_t i = 0; i < s->capacity; i++)
        if (s->entries[i].value)
            put(&larger, mixed(s->entries[i].key), s->entries[i].key, s->entries[i].value);
    PyMem_Free(s->entries);
    *s = larger;
    return 0;
}

static int insert(shard *s, uint64_t hash, uint64_t key, uint64_t value) {
    if (s->used >= s->capacity / 4 * 3 &&
        resize(s, s->capacity < SMALLEST ? SMALLEST : s->capacity + (s->capacity / 8 + 1) * 4))
        return -1;
    put(s, hash, key, value);
    return 0;
}

static void shrink(shard *s) {
    if (!s->used) {
        PyMem_Free(s->entries);
        *s = (shard){0};
    } else if (s->used < s->capacity / 4 && s->capacity > SMALLEST) {
        (void)resize(s, s->used * 2 < SMALLEST ? SMALLEST : s->used * 2); /* else it stays large */
    }
}

/* Later entries move up, so that none is behind a gap. */
static void erase(shard *s, entry *gone) {
    uint32_t hole = (uint32_t)(gone - s->entries), at = hole;
    s->used--;
    for (;;) {
        at = at + 1 == s->capacity ? 0 : at + 1;
        if (!s->entries[at].value) break;
        const uint32_t from = home(s, mixed(s->entries[at].key));
        if (hole < at ? hole < from && from <= at : hole < from || from <= at) continue;
        s->entries[hole] = s->entries[at];
        hole = at;
    }
    s->entries[hole].value = 0;
    shrink(s);
}

/* --- the holders of one entry --------------------------------------------------------------- */

static inline int is_one(uint64_t value) { return (int)(value & 1); }
static inline int only_slot(uint64_t value) { return (int)(value >> 1); }
static inline uint64_t one(int slot) { return (uint64_t)slot << 1 | 1; }
static inline uint64_t *row_of(uint64_t value) { return (uint64_t *)(uintptr_t)value; }
static inline size_t row_size(uint64_t summary) {
    return (size_t)(1 + popcount64(summary)) * sizeof(uint64_t);
}
static inline uint64_t *word_of(uint64_t *row, int word) {
    return row + 1 + popcount64(row[0] & (((uint64_t)1 << word) - 1));
}

static int holds(uint64_t value, int slot) {
    if (is_one(value)) return only_slot(value) == slot;
    uint64_t *row = row_of(value);
    return row[0] >> (slot >> 6) & 1 && *word_of(row, slot >> 6) >> (slot & 63) & 1;
}

/* As another row, or as the entry's only slot if it is one; 0 for none. */
static uint64_t from_set(table *self, const slot_set *set) {
    uint64_t summary = 0;
    int count = 0, slot = 0;
    for (int w = 0; w < WORDS; w++)
        if (set->words[w]) {
            summary |= (uint64_t)1 << w;
            count += popcount64(set->words[w]);
            slot = 64 * w + lowest_bit(set->words[w]);
        }
    if (!count) return 0;
    if (count == 1) return one(slot);
    uint64_t *row = PyMem_Malloc(row_size(summary));
    if (!row) return 0;
    self->row_bytes += row_size(summary);
    row[0] = summary;
    for (int w = 0, at = 1; w < WORDS; w++)
        if (set->words[w]) row[at++] = set->words[w];
    return (uint64_t)(uintptr_t)row;
}

static void add_to_set(slot_set *set, uint64_t value) {
    if (is_one(value)) {
        set->words[only_slot(value) >> 6] |= (uint64_t)1 << (only_slot(value) & 63);
        return;
    }
    const uint64_t *row = row_of(value);
    int at = 1;
    for (uint64_t summary = row[0]; summary; summary &= summary - 1)
        set->words[lowest_bit(summary)] |= row[at++];
}

static void free_row(table *self, uint64_t value) {
    if (is_one(value)) return;
    self->row_bytes -= row_size(row_of(value)[0]);
    PyMem_Free(row_of(value));
}

static int add_holder(table *self, entry *e, int slot) {
    const uint64_t bit = (uint64_t)1 << (slot & 63);
    if (!is_one(e->value) && row_of(e->value)[0] >> (slot >> 6) & 1) {
        *word_of(row_of(e->value), slot >> 6) |= bit;
        return 0;
    }
    slot_set set = {{0}};
    add_to_set(&set, e->value);
    set.words[slot >> 6] |= bit;
    const uint64_t value = from_set(self, &set);
    if (!value) return -1;
    free_row(self, e->value);
    e->value = value;
    return 0;
}

/* The holders that are not in a set; 0 for none. A failed allocation forgets all of them, which
 * credits nobody, and sets *failed. */
static uint64_t without(table *self, uint64_t value, const slot_set *gone, int *failed) {
    if (is_one(value))
        return gone->words[only_slot(value) >> 6] >> (only_slot(value) & 63) & 1 ? 0 : value;
    slot_set set = {{0}};
    uint64_t dropped = 0, left = 0;
    add_to_set(&set, value);
    for (int w = 0; w < WORDS; w++) {
        dropped |= set.words[w] & gone->words[w];
        left |= set.words[w] &= ~gone->words[w];
    }
    if (!dropped) return value;
    const uint64_t fewer = left ? from_set(self, &set) : 0;
    *failed |= left && !fewer;
    free_row(self, value);
    return fewer;
}

/* --- copies beyond the first ---------------------------------------------------------------- */

static int one_more(table *self, int slot, uint64_t hash, uint64_t key) {
    if (slot >= self->num_more) {
        shard *more = PyMem_Realloc(self->more, (size_t)(slot + 1) * sizeof(shard));
        if (!more) return -1;
        memset(more + self->num_more, 0, (size_t)(slot + 1 - self->num_more) * sizeof(shard));
        self->more = more;
        self->num_more = slot + 1;
    }
    entry *e = find(self->more + slot, hash, key);
    if (!e) return insert(self->more + slot, hash, key, 1);
    if (e->value < UINT32_MAX) e->value++;
    return 0;
}

static uint64_t num_copies(const table *self, int slot, uint64_t key) {
    const entry *e = slot < self->num_more ? find(self->more + slot, mixed(key), key) : NULL;
    return 1 + (e ? e->value : 0);
}

/* Whether there was one to take away. */
static int one_less(table *self, int slot, uint64_t hash, uint64_t key) {
    if (slot >= self->num_more) return 0;
    entry *e = find(self->more + slot, hash, key);
    if (!e) return 0;
    if (e->value > 1) e->value--;
    else erase(self->more + slot, e);
    return 1;
}

static void free_more(table *self, int slot) {
    if (slot >= self->num_more) return;
    PyMem_Free(self->more[slot].entries);
    self->more[slot] = (shard){0};
}

/* --- the whole ------------------------------------------------------------------------------ */

static int add_copy(table *self, int slot, uint64_t hash, uint64_t key) {
    shard *s = shard_of(self, hash);
    entry *e = find(s, hash, key);
    if (!e) return insert(s, hash, key, one(slot));
    if (holds(e->value, slot)) return one_more(self, slot, hash, key);
    return add_holder(self, e, slot);
}

static int remove_copy(table *self, int slot, uint64_t hash, uint64_t key) {
    shard *s = shard_of(self, hash);
    entry *e = find(s, hash, key);
    if (!e || !holds(e->value, slot) || one_less(self, slot, hash, key)) return 0;
    const uint64_t bit = (uint64_t)1 << (slot & 63);
    if (!is_one(e->value)) {
        uint64_t *word = word_of(row_of(e->value), slot >> 6);
        const uint64_t left = *word & ~bit;
        if (left & (left - 1)) { /* two or more: it stays this row */
            *word = left;
            return 0;
        }
    }
    slot_set gone = {{0}};
    int failed = 0;
    gone.words[slot >> 6] = bit;
    e->value = without(self, e->value, &gone, &failed);
    if (!e->value) erase(s, e);
    return -failed;
}

/* Makes one shard anew, without some slots. */
static int sweep_shard(table *self, shard *s, const slot_set *gone) {
    shard left = {PyMem_Calloc(s->capacity, sizeof(entry)), s->capacity, 0};
    if (!left.entries) return -1;
    int failed = 0;
    for (uint32_t i = 0; i < s->capacity; i++) {
        const entry e = s->entries[i];
        const uint64_t value = e.value ? without(self, e.value, gone, &failed) : 0;
        if (value) put(&left, mixed(e.key), e.key, value);
    }
    PyMem_Free(s->entries);
    *s = left;
    shrink(s);
    return -failed;
}

/* --- an engine's hashes, each linked to a key ------------------------------------------------ */

/* A link has 8 bytes: half of the hash's bits, and the number of the key: its shard, and the bits
 * that give its place there. With the shard of the link that is 44 bits of the hash. Where two
 * links or keys cannot be told apart, both are found: what is removed by mistake is credited to
 * nobody. A link whose key nobody holds is dropped when its shard is full. */

enum { NUMBER_BITS = 32 - SHARD_BITS, MOST_KEYS = 8 };

static inline uint32_t number_of(uint64_t hash) {
    return (uint32_t)(hash >> (64 - SHARD_BITS) << NUMBER_BITS) |
           (uint32_t)hash >> SHARD_BITS;
}

/* The keys that have a number and are in the table, behind `count` others. */
static int keys_with(const table *self, uint32_t number, uint64_t *keys, int count) {
    const shard *s = self->shards + (number >> NUMBER_BITS);
    if (!s->used) return count;
    const uint32_t first = home(s, (uint64_t)number << SHARD_BITS & 0xffffffff);
    uint32_t at = first; /* or the next one: the lowest bits are not known */
    for (int step = 0; step < 2 || s->entries[at].value; step++) {
        const entry *e = s->entries + at;
        if (e->value && number_of(mixed(e->key)) == number && count < MOST_KEYS)
            keys[count++] = e->key;
        at = at + 1 == s->capacity ? 0 : at + 1;
        if (at == first) break;
    }
    return count;
}

static inline uint64_t *place_of(const links *l, uint64_t hash) {
    return l->pairs + ((hash & 0xffffffff) * l->capacity >> 32);
}

static int keys_of_hash(const table *self, uint64_t hash, uint64_t *keys) {
    const links *l = self->linked ? self->linked + (hash >> (64 - SHARD_BITS)) : NULL;
    if (!l || !l->used) return 0;
    int count = 0;
    uint32_t at = (uint32_t)(place_of(l, hash) - l->pairs);
    for (; l->pairs[at]; at = at + 1 == l->capacity ? 0 : at + 1)
        if (l->pairs[at] >> 32 == (hash & 0xffffffff))
            count = keys_with(self, (uint32_t)l->pairs[at], keys, count);
    return count;
}

static void put_link(links *l, uint64_t pair) {
    uint32_t at = (uint32_t)(place_of(l, pair >> 32) - l->pairs);
    for (; l->pairs[at]; at = at + 1 == l->capacity ? 0 : at + 1)
        if (l->pairs[at] == pair) return;
    l->pairs[at] = pair;
    l->used++;
}

/* Makes a shard of links anew: larger, or without those whose keys are gone where they may be
 * many, as a shard of keys has about as many. */
static int renew_links(const table *self, links *l) {
    uint64_t keys[MOST_KEYS];
    uint32_t alive = 0;
    const uint32_t usual = self->shards[l - self->linked].used;
    const int look = l->used > usual + usual / 4;
    for (uint32_t i = 0; i < l->capacity; i++) {
        if (look && l->pairs[i] && !keys_with(self, (uint32_t)l->pairs[i], keys, 0))
            l->pairs[i] = 0;
        alive += l->pairs[i] != 0;
    }
    const uint32_t capacity = alive + alive / 2 + SMALLEST;
    links renewed = {PyMem_Calloc(capacity, sizeof(uint64_t)), capacity, 0};
    if (!renewed.pairs) return -1;
    for (uint32_t i = 0; i < l->capacity; i++)
        if (l->pairs[i]) put_link(&renewed, l->pairs[i]);
    PyMem_Free(l->pairs);
    *l = renewed;
    return 0;
}

static int add_link(table *self, uint64_t hash, uint32_t number) {
    links *l = self->linked + (hash >> (64 - SHARD_BITS));
    if (l->used >= l->capacity / 8 * 7 && renew_links(self, l)) return -1;
    const uint64_t pair = (hash & 0xffffffff) << 32 | number;
    put_link(l, pair ? pair : 1);
    return 0;
}

static void clear_links(table *self) {
    for (int n = 0; self->linked && n < SHARDS; n++) PyMem_Free(self->linked[n].pairs);
    PyMem_Free(self->linked);
    self->linked = NULL;
}

static void clear(table *self) {
    for (int n = 0; n < SHARDS; n++) {
        for (uint32_t i = 0; i < self->shards[n].capacity; i++)
            if (self->shards[n].entries[i].value) free_row(self, self->shards[n].entries[i].value);
        PyMem_Free(self->shards[n].entries);
        self->shards[n] = (shard){0};
    }
    for (int slot = 0; slot < self->num_more; slot++) free_more(self, slot);
    PyMem_Free(self->more);
    self->more = NULL;
    self->num_more = 0;
    clear_links(self);
}

#endif
