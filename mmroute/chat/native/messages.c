/* How many messages of a chat are those of an earlier one; see same_messages.py. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { DEEPEST = 100 };

/* Whether two values are equal, of the same types, and have their keys in the same order.
 *
 * False for values that are no JSON, unless they are one object: a comparison of them could run any
 * code. With the types below no comparison runs Python code, so nothing changes meanwhile.
 */
static int is_same(PyObject *known, PyObject *value, int depth) {
    if (known == value) return 1;
    PyTypeObject *type = Py_TYPE(known);
    if (Py_TYPE(value) != type || depth > DEEPEST) return 0;
    if (type == &PyUnicode_Type || type == &PyLong_Type)
        return PyObject_RichCompareBool(known, value, Py_EQ);
    if (type == &PyDict_Type) {
        Py_ssize_t at = 0, other_at = 0;
        PyObject *key, *item, *other_key, *other_item;
        if (PyDict_Size(known) != PyDict_Size(value)) return 0;
        while (PyDict_Next(known, &at, &key, &item) &&
               PyDict_Next(value, &other_at, &other_key, &other_item)) {
            int same = is_same(key, other_key, depth + 1);
            if (same > 0) same = is_same(item, other_item, depth + 1);
            if (same <= 0) return same;
        }
        return 1;
    }
    if (type == &PyList_Type) {
        Py_ssize_t size = PyList_Size(known);
        if (PyList_Size(value) != size) return 0;
        for (Py_ssize_t i = 0; i < size; i++) {
            int same = is_same(PyList_GetItem(known, i), PyList_GetItem(value, i), depth + 1);
            if (same <= 0) return same;
        }
        return 1;
    }
    if (type == &PyFloat_Type) { /* bit by bit: -0.0 is equal to 0.0, and written otherwise */
        double number = PyFloat_AsDouble(known), other = PyFloat_AsDouble(value);
        return !memcmp(&number, &other, sizeof number);
    }
    return 0;
}

PyDoc_STRVAR(num_same_messages_doc, "The number of leading messages that two lists share.");

static PyObject *num_same_messages(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *known, *messages;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &known, &PyList_Type, &messages)) return NULL;
    Py_ssize_t most = PyList_Size(known), count = 0;
    if (PyList_Size(messages) < most) most = PyList_Size(messages);
    for (; count < most; count++) {
        int same = is_same(PyList_GetItem(known, count), PyList_GetItem(messages, count), 0);
        if (same < 0) return NULL;
        if (!same) break;
    }
    return PyLong_FromSsize_t(count);
}

static PyMethodDef methods[] = {
    {"num_same_messages", num_same_messages, METH_VARARGS, num_same_messages_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_messages", "Compares messages, compiled.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__messages(void) { return PyModuleDef_Init(&definition); }
