# Compares the files of a directory with writer.py's log: reader.py FOLDER LOG.
import hashlib, sys
root, log = sys.argv[1:]
lines = [line.strip() for line in open(log)]
gone = {line[1:] for line in lines if line.startswith("-")}
bad = 0
names = [line for line in lines if not line.startswith("-") and line not in gone]
for name in names:
    n = int(name.split("-")[1])
    want = hashlib.sha256(name.encode()).digest() * (1 + n * 37 % 900)
    try:
        good = open(f"{root}/{name}", "rb").read() == want
    except OSError as error:
        good = False
        print(error)
    if not good:
        bad += 1
        print("lost or wrong:", name)
print(len(names), "files that were fsynced,", bad, "lost or wrong")
sys.exit(bad > 0)
