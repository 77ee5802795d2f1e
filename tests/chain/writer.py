# Writes files until it fails: writer.py FOLDER LOG LIFE. A line in the log says that a file, and its name, are durable; "-" before a name
# says that it is about to be removed. A sync does not count if there is a file `killed` next to the log.
import hashlib, os, sys
root, log, life = sys.argv[1:]
done = open(log, "a", buffering=1)
for n in range(1_000_000):
    name = f"{life}-{n}"
    content = hashlib.sha256(name.encode()).digest() * (1 + n * 37 % 900)
    file = os.open(f"{root}/{name}", os.O_CREAT | os.O_WRONLY)
    os.write(file, content)
    os.fsync(file)
    os.close(file)
    folder = os.open(root, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    if os.path.exists(os.path.dirname(log) + "/killed"):
        continue
    done.write(name + "\n")
    if n % 5 == 4:  # one in five goes again, so that there are frees
        old = f"{life}-{n - 2}"
        done.write("-" + old + "\n")
        os.unlink(f"{root}/{old}")
