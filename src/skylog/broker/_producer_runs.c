/* The compiled form of `take_run` in producer_runs.py, which explains it. Both must return the same for all input.

   It reads bytes and makes bytes. It keeps nothing, and changes nothing that it is given. Every position is checked
   against the end of its frame before it is read, and the frame against the end of the received bytes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MAX_RUN = 32, HEADER_BYTES = 61, CRC_START = 21, TAIL_BYTES = 3, MAX_VARINT_BYTES = 4, FLEXIBLE_FROM = 9 };

struct request {
    const uint8_t *batch, *correlation_id;
    Py_ssize_t batch_bytes, stop;
    int32_t records;
};

static uint64_t number(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *at++;
    return value;
}

static void put(uint8_t *at, int bytes, uint64_t value) {
    while (bytes--) at[bytes] = (uint8_t)value, value >>= 8;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *at, Py_ssize_t bytes) {
    uint64_t crc = 0xFFFFFFFF, word;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; bytes; at++, bytes--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return (uint32_t)crc ^ 0xFFFFFFFF;
}

/* Whether a batch can be stored as it is, and is of no idempotent producer. */
static int is_plain(struct request *it) {
    const uint8_t *batch = it->batch;
    int64_t last = (int32_t)number(batch + 23, 4), records = (int32_t)number(batch + 57, 4);
    unsigned attributes = (unsigned)number(batch + 21, 2);
    if ((int64_t)(int32_t)number(batch + 8, 4) + 12 != it->batch_bytes || batch[16] != 2 || attributes > 4) return 0;
    if (last < 0 || records != last + 1 || (int64_t)number(batch + 43, 8) >= 0) return 0;
    if (attributes == 0 && records * 7 > it->batch_bytes - HEADER_BYTES) return 0;
    it->records = (int32_t)records;
    return crc32c(batch + CRC_START, it->batch_bytes - CRC_START) == (uint32_t)number(batch + 17, 4);
}

/* Whether a complete request with this version and key begins at `position`, with one plain batch in it. */
static int read_request(const uint8_t *data, Py_ssize_t position, Py_ssize_t end, int version, const uint8_t *key,
                        Py_ssize_t key_bytes, Py_ssize_t max_bytes, struct request *it) {
    Py_ssize_t at = position + 12 + key_bytes, batch_end;
    if (end - position < 16 + key_bytes) return 0;
    int32_t length = (int32_t)number(data + position, 4);
    if (length < 12 + key_bytes || length > end - position - 4) return 0;
    if ((int32_t)number(data + position + 4, 4) != version || memcmp(data + position + 12, key, key_bytes)) return 0;
    it->stop = batch_end = position + 4 + length;
    it->correlation_id = data + position + 8;
    int64_t size = 0;
    if (version >= FLEXIBLE_FROM) {
        for (int index = 0;; index++) {
            if (index == MAX_VARINT_BYTES || at == it->stop) return 0;
            size |= (int64_t)(data[at] & 0x7F) << 7 * index;
            if (data[at++] < 0x80) break;
        }
        size -= 1;
        batch_end -= TAIL_BYTES;
        if (batch_end < at || number(data + batch_end, TAIL_BYTES)) return 0;
    } else {
        size = (int32_t)number(data + at, 4);
        at += 4;
    }
    if (size != batch_end - at || size < HEADER_BYTES || size > max_bytes) return 0;
    it->batch = data + at;
    it->batch_bytes = size;
    return is_plain(it);
}

static PyObject *take_run(PyObject *module, PyObject *args) {
    Py_buffer view;
    const uint8_t *key, *form;
    Py_ssize_t position, end, key_bytes, form_bytes, offset_at, max_bytes, total = 0;
    long long offset, start_offset;
    int version, epoch, count = 0;
    struct request found[MAX_RUN];
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nniy#y#nLiLn", &view, &position, &end, &version, &key, &key_bytes, &form,
                          &form_bytes, &offset_at, &offset, &epoch, &start_offset, &max_bytes)) return NULL;
    PyObject *rows = NULL, *batches = NULL, *answers = NULL, *taken = NULL;
    if (position < 0 || end > view.len || offset_at < 8 || offset_at > form_bytes - 24) {
        PyErr_SetString(PyExc_ValueError, "positions are outside of the bytes");
        goto done;
    }
    while (count < MAX_RUN &&
           read_request(view.buf, position, end, version, key, key_bytes, max_bytes, found + count)) {
        position = found[count].stop;
        total += found[count++].batch_bytes;
    }
    if (!count) {
        taken = Py_NewRef(Py_None);
        goto done;
    }
    rows = PyList_New(count);
    batches = PyBytes_FromStringAndSize(NULL, total);
    answers = PyBytes_FromStringAndSize(NULL, count * form_bytes);
    if (!rows || !batches || !answers) goto done;
    uint8_t *batch = (uint8_t *)PyBytes_AS_STRING(batches), *answer = (uint8_t *)PyBytes_AS_STRING(answers);
    for (int index = 0; index < count; index++) {
        struct request *it = found + index;
        memcpy(batch, it->batch, it->batch_bytes);
        put(batch, 8, offset);
        put(batch + 12, 4, (uint32_t)epoch);
        memcpy(answer, form, form_bytes);
        memcpy(answer + 4, it->correlation_id, 4);
        put(answer + offset_at, 8, offset);
        put(answer + offset_at + 16, 8, start_offset);
        PyObject *row = Py_BuildValue("nLL", it->batch_bytes, offset, (long long)(int64_t)number(batch + 35, 8));
        if (!row) goto done;
        PyList_SET_ITEM(rows, index, row);
        batch += it->batch_bytes, answer += form_bytes, offset += it->records;
    }
    taken = Py_BuildValue("n[O]nOLO", position, batches, total, rows, offset, answers);
done:
    Py_XDECREF(rows), Py_XDECREF(batches), Py_XDECREF(answers);
    PyBuffer_Release(&view);
    return taken;
}

static PyMethodDef methods[] = {{"take_run", take_run, METH_VARARGS, "See producer_runs.py."}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_producer_runs", NULL, 0, methods, 0, 0, 0, 0};

PyMODINIT_FUNC PyInit__producer_runs(void) {
    if (!__builtin_cpu_supports("sse4.2")) {
        PyErr_SetString(PyExc_ImportError, "this processor has no SSE 4.2");
        return NULL;
    }
    return PyModule_Create(&module);
}
