"""LevelDB with synced batches and little memory, so that it makes and merges tables all the while; the mode is its compression."""
try:
    import plyvel
except ImportError:
    plyvel = None


def here():
    if plyvel is None:
        sys.exit("Python has no module plyvel (Debian: python3-plyvel)")


def opened(folder, **options):
    # Without paranoid checks: with them it does not open after a cut within a batch whose last pages ext4 may have as zeros.
    return plyvel.DB(os.path.join(folder, "base"), **options)


def write(folder, mode, seed):
    small = {"write_buffer_size": 64 << 10, "max_file_size": 128 << 10, "block_size": 1024}
    compression = None if mode == "none" else mode
    base = opened(folder, create_if_missing=True, compression=compression, **small)
    base.put(b"last", b"0", sync=True)
    # LevelDB does not sync the name of the database itself.
    subprocess.run(["sync", "-f", folder], check=True)
    acknowledge(0)
    for n in transactions(folder):
        with base.write_batch(sync=True) as batch:
            for key, body in transaction(n, seed):
                batch.put(b"row %d" % key, body.encode())
            batch.put(b"last", b"%d" % n)
        acknowledge(n)
    base.close()


def check(folder, seed, last):
    try:
        base = opened(folder)
        found = dict(base.iterator(verify_checksums=True))
    except plyvel.Error as error:
        sys.exit(f"it does not open or read: {error}")
    there = int(found.pop(b"last", b"-1"))
    must_have(there, last)
    if found != {b"row %d" % key: body.encode() for key, body in rows(there, seed).items()}:
        sys.exit(f"the rows are not those of transaction {there}")
    base.close()


main(here, write, check)
