/* The threads of threads.c for Python: pidgate.gateway.lane._lane. Its stub _lane.pyi documents it.

   No Python object is made or freed while a lane is locked: that may run any code, also this one. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LANES = MOST_THREADS + 1 };   /* one has no thread */
static Lane *LANES[MOST_LANES];   /* those that run; changed and read with the GIL */

/* ---- Cell --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Cell cell;
} CellObject;

static void lock(Lane *lane) { pthread_mutex_lock(&lane->lock); }
static void unlock(Lane *lane) { pthread_mutex_unlock(&lane->lock); }

static PyObject *cell_bump(CellObject *self, PyObject *Py_UNUSED(ignored)) {
    atomic_fetch_add_explicit(&self->cell.number, 1, memory_order_relaxed);
    for (int at = 0; at < MOST_LANES; at++)
        if (LANES[at]) {  /* an event that began before ends before this returns; later ones see the number */
            lock(LANES[at]);
            unlock(LANES[at]);
        }
    Py_RETURN_NONE;
}

static PyMethodDef CELL_METHODS[] = {{"bump", (PyCFunction)cell_bump, METH_NOARGS, NULL}, {0}};
static PyTypeObject CELL_TYPE = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pidgate.gateway.lane._lane.Cell",
    .tp_basicsize = sizeof(CellObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = CELL_METHODS,
};

/* ---- Apis --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Apis apis;
} ApisObject;

/* Apis(passing: list[(api_key, version, Passing)], guarded: list[int], needles: list[bytes]) */
static int apis_init(ApisObject *self, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *passing, *guarded, *needles;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyList_Type, &passing, &PyList_Type, &guarded, &PyList_Type, &needles))
        return -1;
    Apis *apis = &self->apis;
    memset(apis, 0, sizeof *apis);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(passing); at++) {
        int key, version, how;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(passing, at), "iii", &key, &version, &how))
            return -1;
        if (key >= 0 && key < MOST_API_KEYS && version >= 0 && version < MOST_API_VERSIONS)
            apis->passing[key][version] = (uint8_t)how;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(guarded); at++) {
        long key = PyLong_AsLong(PyList_GET_ITEM(guarded, at));
        if (key == -1 && PyErr_Occurred())
            return -1;
        if (key >= 0 && key < MOST_API_KEYS)
            apis->is_guarded[key] = 1;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(needles); at++) {
        char *needle;
        Py_ssize_t bytes;
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(needles, at), &needle, &bytes) < 0)
            return -1;
        if (apis->needles == MOST_NEEDLES || bytes > MOST_NEEDLE_BYTES) {
            PyErr_SetString(PyExc_ValueError, "too many needles, or one is too long");
            return -1;
        }
        memcpy(apis->needle[apis->needles], needle, (size_t)bytes);
        apis->needle_bytes[apis->needles++] = (uint16_t)bytes;
    }
    return 0;
}

static PyTypeObject APIS_TYPE = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pidgate.gateway.lane._lane.Apis",
    .tp_basicsize = sizeof(ApisObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)apis_init,
};

/* Append a new reference, which may be NULL; the list becomes NULL if that fails. */
static void append(PyObject **list, PyObject *item) {
    if (!item || PyList_Append(*list, item) < 0)
        Py_CLEAR(*list);
    Py_XDECREF(item);
}

/* ---- what leaves a lane, as Python objects ------------------------------------------------------------------------ */

typedef struct {
    Counts counts;
    uint64_t request_bytes, answer_bytes;
    int64_t in_frame_since_ms;
    int topics;
    struct {
        uint16_t name_bytes;
        uint8_t name[MOST_TOPIC_BYTES];
        uint64_t written[MOST_PARTITIONS / 64];
    } topic[MOST_TOPICS];
} Counted;

/* Move the connection's counts out. With the lock, or of a connection that has left. */
static void move_counts(Connection *connection, Counted *counted) {
    Core *core = &connection->core;
    counted->counts = core->counts;
    counted->request_bytes = connection->request_bytes;
    counted->answer_bytes = connection->answer_bytes;
    counted->in_frame_since_ms = connection->in_frame_since_ms;
    counted->topics = 0;
    memset(&core->counts, 0, sizeof core->counts);
    connection->request_bytes = connection->answer_bytes = 0;
    if (!core->grant || !counted->counts.produce_requests)
        return;
    for (int at = 0; at < core->grant->topics; at++) {
        Topic *topic = &core->grant->topic[at];
        uint64_t any = 0;
        for (int word = 0; word < MOST_PARTITIONS / 64; word++)
            any |= topic->written[word];
        if (!any)
            continue;
        counted->topic[counted->topics].name_bytes = topic->name_bytes;
        memcpy(counted->topic[counted->topics].name, topic->name, topic->name_bytes);
        memcpy(counted->topic[counted->topics++].written, topic->written, sizeof topic->written);
        memset(topic->written, 0, sizeof topic->written);
    }
}

static PyObject *counts_of(const Counted *counted) {
    PyObject *written = PyList_New(0);
    for (int at = 0; written && at < counted->topics; at++) {
        append(&written, Py_BuildValue(
            "(y#y#)", (const char *)counted->topic[at].name, (Py_ssize_t)counted->topic[at].name_bytes,
            (const char *)counted->topic[at].written, (Py_ssize_t)sizeof counted->topic[at].written));
    }
    if (!written)
        return NULL;
    const Counts *counts = &counted->counts;
    return Py_BuildValue(
        "(KKKKLKKKLN)", counts->produce_requests, counts->produce_bytes, counts->batches, counts->records,
        (long long)counts->last_produce_ms, counts->other_requests, counted->request_bytes, counted->answer_bytes,
        (long long)counted->in_frame_since_ms, written);
}

static PyObject *in_flight_of(const Core *core) {
    PyObject *in_flight = PyList_New(core->count);
    for (int at = 0; in_flight && at < core->count; at++) {
        const InFlight *one = &core->in_flight[(core->at + at) % MOST_IN_FLIGHT];
        PyObject *item = Py_BuildValue("(iiii)", (int32_t)one->correlation_id, one->api_key, one->version, one->passing);
        if (!item)
            Py_CLEAR(in_flight);
        else
            PyList_SET_ITEM(in_flight, at, item);
    }
    return in_flight;
}

static PyObject *under_way_of(const Core *core) {
    const Recognised *produce = &core->under_way;
    if (!core->request_left)
        Py_RETURN_NONE;
    const Topic *topic = &core->grant->topic[produce->topic[0]];
    return Py_BuildValue(
        "(iIKy#i)", (int32_t)produce->correlation_id, produce->request_bytes, produce->records,
        (const char *)topic->name, (Py_ssize_t)topic->name_bytes, produce->partition[0]);
}

static PyObject *walk_of(const Core *core) {
    const Walk *walk = &core->walk;
    if (!core->answer_left || !walk->unit)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "(iIIIK)", walk->unit, walk->topics, walk->partitions, walk->elements, core->answer_unread);
}

static PyObject *bytes_of(const uint8_t *bytes, size_t count) {
    return PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)count);
}

static PyObject *left_of(Connection *connection) {
    static Counted counted;  /* with the GIL */
    const Residue *requests = &connection->of_requests, *answers = &connection->of_answers;
    move_counts(connection, &counted);
    return Py_BuildValue(
        "(NNNNNNKNKNi)", counts_of(&counted), bytes_of(requests->rest, requests->rest_bytes),
        bytes_of(answers->rest, answers->rest_bytes), bytes_of(answers->unsent, answers->unsent_bytes),
        bytes_of(requests->unsent, requests->unsent_bytes), in_flight_of(&connection->core), connection->core.request_left, under_way_of(&connection->core),
        connection->core.answer_left, walk_of(&connection->core), (int)connection->why);
}

/* ---- Lane --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Lane *lane;
} LaneObject;

static int lane_init(LaneObject *self, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    int free = 0, has_thread = 1;
    if (!PyArg_ParseTuple(args, "|p", &has_thread))
        return -1;
    while (free < MOST_LANES && LANES[free])
        free++;
    if (self->lane || free == MOST_LANES) {
        PyErr_SetString(PyExc_RuntimeError, "too many lanes");
        return -1;
    }
    self->lane = lane_start(has_thread);
    if (!self->lane) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    LANES[free] = self->lane;
    return 0;
}

static int is_stopped(LaneObject *self) {
    if (!self->lane)
        PyErr_SetString(PyExc_RuntimeError, "the lane is stopped");
    return !self->lane;
}

typedef struct {
    PyObject *owner;   /* new references */
    PyObject *left;
} Leaver;

/* Free a connection that has left; returns its owner and what is left of it. */
static Leaver release(Lane *lane, Connection *connection) {
    Leaver leaver = {connection->owner, left_of(connection)};
    PyObject *kept[CELLS + 1];
    for (int at = 0; at < CELLS; at++)
        kept[at] = connection->cells[at] ? (PyObject *)((char *)connection->cells[at] - offsetof(CellObject, cell)) : NULL;
    kept[CELLS] =
        connection->core.apis ? (PyObject *)((char *)connection->core.apis - offsetof(ApisObject, apis)) : NULL;
    lock(lane);
    lane_free_connection(lane, connection);
    unlock(lane);
    for (int at = 0; at <= CELLS; at++)
        Py_XDECREF(kept[at]);
    return leaver;
}

static void stop(LaneObject *self) {
    Lane *lane = self->lane;
    if (!lane)
        return;
    self->lane = NULL;
    for (int at = 0; at < MOST_LANES; at++)
        if (LANES[at] == lane)
            LANES[at] = NULL;
    for (uint32_t at = 0; at < lane->connection_count; at++) {
        Connection *connection = lane->connections[at];
        if (!connection->owner)
            continue;
        lock(lane);
        lane_leave(lane, connection, MORE);
        lane_unlist(lane, connection);
        unlock(lane);
        Leaver leaver = release(lane, connection);
        Py_XDECREF(leaver.owner);
        Py_XDECREF(leaver.left);
        PyErr_Clear();
    }
    lane_stop(lane);
}

static PyObject *lane_stop_method(LaneObject *self, PyObject *Py_UNUSED(ignored)) {
    stop(self);
    Py_RETURN_NONE;
}

static void lane_dealloc(LaneObject *self) {
    stop(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Grant *grant_of(PyObject *written) {
    const char *head, *same, *id;
    Py_ssize_t head_bytes, same_bytes, id_bytes;
    int version, acks, transactional;
    unsigned int most_streamed_bytes;
    unsigned long long leased_bytes;
    long long until_ms;
    PyObject *topics;
    if (!PyArg_ParseTuple(
            written, "y#y#y#iipLIKO!", &head, &head_bytes, &same, &same_bytes, &id, &id_bytes, &version, &acks,
            &transactional, &until_ms, &most_streamed_bytes, &leased_bytes, &PyList_Type, &topics))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(topics);
    if (head_bytes != 4 || id_bytes != 10 || same_bytes < 1 || same_bytes > MOST_SAME_BYTES || count > MOST_TOPICS) {
        PyErr_SetString(PyExc_ValueError, "a grant of a wrong size");
        return NULL;
    }
    Grant *grant = calloc(1, sizeof *grant + (size_t)count * sizeof grant->topic[0]);
    if (!grant)
        return (Grant *)PyErr_NoMemory();
    memcpy(grant->head, head, 4);
    memcpy(grant->same, same, (size_t)same_bytes);
    memcpy(grant->id, id, 10);
    grant->same_bytes = (uint16_t)same_bytes;
    grant->version = (int16_t)version;
    grant->acks = (int16_t)acks;
    grant->is_transactional = (uint8_t)transactional;
    grant->until_ms = until_ms;
    grant->most_streamed_bytes = most_streamed_bytes;
    grant->leased_bytes = leased_bytes;
    for (Py_ssize_t at = 0; at < count; at++) {
        const char *name, *allowed;
        Py_ssize_t name_bytes, allowed_bytes;
        Topic *topic = &grant->topic[grant->topics++];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(topics, at), "y#z#", &name, &name_bytes, &allowed, &allowed_bytes))
            goto failed;
        if (name_bytes > MOST_TOPIC_BYTES || (allowed && allowed_bytes != (Py_ssize_t)sizeof topic->allowed)) {
            PyErr_SetString(PyExc_ValueError, "a topic of a wrong size");
            goto failed;
        }
        memcpy(topic->name, name, (size_t)name_bytes);
        topic->name_bytes = (uint16_t)name_bytes;
        if (allowed)
            memcpy(topic->allowed, allowed, sizeof topic->allowed);
        else
            memset(topic->allowed, 0xff, sizeof topic->allowed);
    }
    return grant;
failed:
    free(grant);
    return NULL;
}

static int read_in_flight(PyObject *in_flight, Core *core) {
    Py_ssize_t count = PyList_GET_SIZE(in_flight);
    if (count > MOST_IN_FLIGHT) {
        PyErr_SetString(PyExc_ValueError, "too many requests in flight");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        int correlation_id, api_key, version, passing;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(in_flight, at), "iiii", &correlation_id, &api_key, &version, &passing))
            return -1;
        core->in_flight[at] =
            (InFlight){(uint32_t)correlation_id, (uint8_t)api_key, (uint8_t)version, (uint8_t)passing};
    }
    core->count = (int)count;
    return 0;
}

static PyObject *lane_lend_method(LaneObject *self, PyObject *args) {
    PyObject *owner, *written, *in_flight;
    ApisObject *apis;
    CellObject *cells[CELLS];
    int client, broker;
    if (is_stopped(self) ||
        !PyArg_ParseTuple(
            args, "OiiOO!O!O!O!", &owner, &client, &broker, &written, &APIS_TYPE, &apis, &CELL_TYPE, &cells[0], &CELL_TYPE,
            &cells[1], &PyList_Type, &in_flight))
        return NULL;
    Core core = {.apis = &apis->apis};
    if (read_in_flight(in_flight, &core) < 0)
        return NULL;
    if (written != Py_None && !(core.grant = grant_of(written)))
        return NULL;
    Lane *lane = self->lane;
    lock(lane);
    Connection *connection = lane_new_connection(lane);
    if (!connection) {
        unlock(lane);
        free(core.grant);
        return PyErr_NoMemory();
    }
    connection->core = core;
    for (int at = 0; at < CELLS; at++) {
        connection->cells[at] = &cells[at]->cell;
        connection->seen[at] = atomic_load_explicit(&cells[at]->cell.number, memory_order_relaxed);
    }
    unsigned long long handle = (unsigned long long)connection->generation << 32 | connection->index;
    if (!lane_lend(lane, connection, client, broker)) {
        int error = errno;
        lane_free_connection(lane, connection);
        unlock(lane);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    connection->owner = owner;
    Py_INCREF(owner);
    Py_INCREF(apis);
    for (int at = 0; at < CELLS; at++)
        Py_INCREF(cells[at]);
    unlock(lane);
    return PyLong_FromUnsignedLongLong(handle);
}

static PyObject *lane_take_back(LaneObject *self, PyObject *written) {
    if (is_stopped(self))
        return NULL;
    unsigned long long handle = PyLong_AsUnsignedLongLong(written);
    if (handle == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    Lane *lane = self->lane;
    lock(lane);
    Connection *connection = lane_find(lane, (uint32_t)handle, (uint32_t)(handle >> 32));
    if (connection) {
        lane_leave(lane, connection, MORE);
        lane_unlist(lane, connection);
    }
    unlock(lane);
    if (!connection)
        Py_RETURN_NONE;
    Leaver leaver = release(lane, connection);
    Py_XDECREF(leaver.owner);
    return leaver.left;
}

static PyObject *lane_carry_method(LaneObject *self, PyObject *const *args, Py_ssize_t count) {
    if (is_stopped(self))
        return NULL;
    if (count != 3 || !PyBytes_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "carry(handle, is_request, data: bytes)");
        return NULL;
    }
    unsigned long long handle = PyLong_AsUnsignedLongLong(args[0]);
    if (handle == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(args[2]);
    size_t read = (size_t)PyBytes_GET_SIZE(args[2]), passed = read;
    Lane *lane = self->lane;
    lock(lane);
    Connection *connection = lane_find(lane, (uint32_t)handle, (uint32_t)(handle >> 32));
    bool is_lent = connection && connection->is_lent &&
                   lane_carry(lane, connection, args[1] == Py_True, &bytes, &passed);
    unlock(lane);
    if (!is_lent)
        Py_RETURN_NONE;
    if (passed == read && bytes == (const uint8_t *)PyBytes_AS_STRING(args[2])) {
        Py_INCREF(args[2]);
        return args[2];
    }
    return bytes_of(bytes, passed);
}

static PyObject *lane_take_left_method(LaneObject *self, PyObject *Py_UNUSED(ignored)) {
    if (is_stopped(self))
        return NULL;
    Lane *lane = self->lane;
    uint64_t told;
    if (read(lane->left_event, &told, sizeof told) < 0 && errno != EAGAIN)
        return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *found = PyList_New(0);
    while (found) {
        lock(lane);
        Connection *connection = lane_take_left(lane);
        if (connection)
            lane_unlist(lane, connection);
        unlock(lane);
        if (!connection)
            break;
        Leaver leaver = release(lane, connection);
        append(&found, leaver.left ? Py_BuildValue("(NN)", leaver.owner, leaver.left) : NULL);
    }
    return found;
}

static PyObject *lane_take_counts(LaneObject *self, PyObject *written) {
    static Counted counted;  /* with the GIL */
    long most = PyLong_AsLong(written);
    if (is_stopped(self) || (most == -1 && PyErr_Occurred()))
        return NULL;
    Lane *lane = self->lane;
    PyObject *found = PyList_New(0);
    while (found && most-- > 0) {
        PyObject *owner = NULL;
        lock(lane);
        Connection *connection = lane_take_counted(lane);
        if (connection) {
            move_counts(connection, &counted);
            owner = connection->owner;
            Py_INCREF(owner);
        }
        unlock(lane);
        if (!owner)
            break;
        PyObject *counts = counts_of(&counted);
        append(&found, counts ? Py_BuildValue("(NN)", owner, counts) : NULL);
    }
    return found;
}

static PyObject *lane_take_requests(LaneObject *self, PyObject *Py_UNUSED(ignored)) {
    uint32_t requests[MOST_API_KEYS];
    if (is_stopped(self))
        return NULL;
    lock(self->lane);
    memcpy(requests, self->lane->requests_by_api, sizeof requests);
    memset(self->lane->requests_by_api, 0, sizeof requests);
    unlock(self->lane);
    PyObject *found = PyList_New(0);
    for (int key = 0; found && key < MOST_API_KEYS; key++) {
        if (!requests[key])
            continue;
        append(&found, Py_BuildValue("(iI)", key, requests[key]));
    }
    return found;
}

static PyObject *lane_fileno(LaneObject *self, PyObject *Py_UNUSED(ignored)) {
    return is_stopped(self) ? NULL : PyLong_FromLong(self->lane->left_event);
}

static PyObject *lane_lent(LaneObject *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong(self->lane ? self->lane->lent_count : 0);
}

static PyMethodDef LANE_METHODS[] = {
    {"fileno", (PyCFunction)lane_fileno, METH_NOARGS, NULL},
    {"lend", (PyCFunction)lane_lend_method, METH_VARARGS, NULL},
    {"carry", (PyCFunction)(void (*)(void))lane_carry_method, METH_FASTCALL, NULL},
    {"take_back", (PyCFunction)lane_take_back, METH_O, NULL},
    {"take_left", (PyCFunction)lane_take_left_method, METH_NOARGS, NULL},
    {"take_counts", (PyCFunction)lane_take_counts, METH_O, NULL},
    {"take_requests", (PyCFunction)lane_take_requests, METH_NOARGS, NULL},
    {"stop", (PyCFunction)lane_stop_method, METH_NOARGS, NULL},
    {0}};
static PyGetSetDef LANE_ATTRIBUTES[] = {{"lent", (getter)lane_lent, NULL, NULL, NULL}, {0}};
static PyTypeObject LANE_TYPE = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pidgate.gateway.lane._lane.Lane",
    .tp_basicsize = sizeof(LaneObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)lane_init,
    .tp_dealloc = (destructor)lane_dealloc,
    .tp_methods = LANE_METHODS,
    .tp_getset = LANE_ATTRIBUTES,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "pidgate.gateway.lane._lane", .m_size = -1};

PyMODINIT_FUNC PyInit__lane(void) {
    PyObject *module = PyModule_Create(&MODULE);
    if (!module || PyType_Ready(&CELL_TYPE) < 0 || PyType_Ready(&APIS_TYPE) < 0 || PyType_Ready(&LANE_TYPE) < 0)
        return NULL;
    PyModule_AddObjectRef(module, "Cell", (PyObject *)&CELL_TYPE);
    PyModule_AddObjectRef(module, "Apis", (PyObject *)&APIS_TYPE);
    PyModule_AddObjectRef(module, "Lane", (PyObject *)&LANE_TYPE);
    return module;
}
