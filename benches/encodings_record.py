"""A disk of nbdkit's Python plugin that writes down what is done to it, contents and all.

    nbdkit -f -U SOCKET python benches/encodings_record.py store=FILE size=BYTES log=FILE

The log is a sequence of records: kind (u8), offset (u64), length (u32), little-endian, and for a write its bytes.
Kinds: 0 write, 1 flush, 2 zeros (also for a discard).
"""

import io
import os
import struct

API_VERSION = 2
WRITE, FLUSH, ZERO = 0, 1, 2

options = {}
store = None
log = None


def config(key, value):
    options[key] = value


def get_ready():
    global store, log
    store = os.open(options["store"], os.O_RDWR | os.O_CREAT)
    os.ftruncate(store, int(options["size"]))
    log = io.open(options["log"], "wb")


def open(readonly):
    return 1


def get_size(handle):
    return int(options["size"])


def can_multi_conn(handle):
    return True


def pread(handle, buf, offset, flags):
    buf[:] = os.pread(store, len(buf), offset)


def note(kind, offset, length, data=b""):
    log.write(struct.pack("<BQI", kind, offset, length))
    log.write(data)


def pwrite(handle, buf, offset, flags):
    os.pwrite(store, buf, offset)
    note(WRITE, offset, len(buf), buf)


def flush(handle, flags):
    note(FLUSH, 0, 0)
    log.flush()


def zero(handle, count, offset, flags):
    note(ZERO, offset, count)
    done = 0
    empty = bytes(1 << 20)
    while done < count:
        part = min(len(empty), count - done)
        os.pwrite(store, empty[:part], offset + done)
        done += part


def trim(handle, count, offset, flags):
    zero(handle, count, offset, flags)
