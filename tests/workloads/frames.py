#!/usr/bin/env python3
"""Frames of a camera that looks at one place, made up: each is stored as it is; what is lit well is still, the rest has a sensor's
noise, and something moves through both."""

import os
import random

from common import SEED, main

FRAMES = 80
WIDTH, HEIGHT, PIXEL = 640, 360, 3
# Share of the rows, from the top: a third of the blocks repeat. For the camera in OrderMergeDedup §5 it is 27%.
STILL = 0.37
MOVING_ROWS = 24
SYNCED = 10


def frames(job):
    numbers = random.Random(SEED)
    still = int(HEIGHT * STILL) * WIDTH * PIXEL
    scene = numbers.randbytes(still)
    size = WIDTH * HEIGHT * PIXEL
    for number in range(job.scaled(FRAMES, least=SYNCED)):
        frame = bytearray(scene + numbers.randbytes(size - still))
        at = number * WIDTH * PIXEL * 4 % (size - MOVING_ROWS * WIDTH * PIXEL)
        moving = numbers.randbytes(MOVING_ROWS * WIDTH * PIXEL)
        frame[at : at + len(moving)] = moving
        yield frame


def run(job):
    count = 0
    for count, frame in enumerate(frames(job), 1):
        with open(job.path(f"{count:06}.ppm"), "wb") as file:
            file.write(b"P6 %d %d 255\n" % (WIDTH, HEIGHT) + frame)
            if count % SYNCED == 0:
                file.flush()
                os.fsync(file.fileno())
    return count


main(run)
