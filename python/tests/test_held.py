"""Tests of the API of hoop: what holds a buffer, and groups whose block raises or makes comms."""

import array
import contextlib
import mmap
import threading
import time
import unittest
import weakref

import hoop
import numpy as np


class Held(unittest.TestCase):
    def test_a_queued_operation_keeps_its_memory(self):
        comm, other = hoop.Comm.threads(2)
        for thing, change in ((bytearray(64), lambda it: it.clear()),
                              (array.array("f", [0.0] * 16), lambda it: it.append(1.0)),
                              (mmap.mmap(-1, 64), lambda it: it.close())):
            stream = hoop.Stream()
            comm.broadcast(thing, root=1, stream=stream)
            ticket = stream.record()
            with self.assertRaises(BufferError):
                change(thing)
            other.broadcast(thing[:] if type(thing) is array.array else bytearray(64), root=1)
            ticket.wait()
            change(thing)  # the wait has released it
            stream.close()
        for one in (comm, other):
            one.close()

    def test_a_stream_that_is_dropped_goes_on(self):
        # In a thread: a signal handler could not end a wait of the garbage collector.
        (comm, other), gone = hoop.Comm.threads(2), []
        stream, x = hoop.Stream(), np.ones(4)
        weakref.finalize(x, gone.append, True)
        comm.all_reduce(x, stream=stream)
        last = stream.record()
        dropped = threading.Thread(target=lambda held: held.clear(), args=([stream],), daemon=True)
        del stream, x
        dropped.start()
        dropped.join(20)
        self.assertEqual((dropped.is_alive(), gone), (False, []))
        y = np.ones(4)
        other.all_reduce(y)
        last.wait()
        until = time.monotonic() + 60
        while not gone and time.monotonic() < until:
            time.sleep(0.001)
        self.assertEqual((gone, y[0]), ([True], 2.0))
        for one in (comm, other):
            one.close()

    def test_a_blocking_operation_keeps_nothing(self):
        comm, thing = hoop.Comm.threads(1)[0], bytearray(64)
        comm.all_reduce(thing)
        with hoop.group():
            comm.all_reduce(thing)
            with self.assertRaises(BufferError):
                thing.clear()
        thing.clear()
        comm.close()

    def test_a_datatype_that_is_a_number(self):
        self.assertEqual(hoop.buffer(bytearray(8), 7)[1:3], (2, hoop.Datatype.FLOAT32))
        with self.assertRaisesRegex(ValueError, "7 elements of UINT8 cannot be used as FLOAT32"):
            hoop.buffer(bytearray(7), 7)


class Groups(unittest.TestCase):
    def test_no_comm_is_made_inside(self):
        comm, said = hoop.Comm.threads(1)[0], []
        calls = (lambda: comm.split(0), lambda: comm.shrink(), lambda: comm.grow(2), hoop.Comm,
                 lambda: hoop.Comm.threads(1), lambda: hoop.Comm.grown(bytes(128), size=2, rank=1))

        def attempt():
            with hoop.group():
                for call in calls:
                    try:
                        call()
                    except hoop.InvalidUsage as error:
                        said.append(f"{error.name} {error}")

        attempt()
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        self.assertEqual(len(said), 2 * len(calls))
        self.assertRegex(said[0], "HOOP_INVALID_USAGE a comm cannot be made inside of hoop.group")
        comm.barrier()
        comm.close()

    def test_a_block_that_raises_runs_nothing(self):
        for queued in (False, True):
            comm, other = hoop.Comm.threads(2)
            stream, x = hoop.Stream() if queued else None, np.ones(4)
            begun = time.monotonic()
            with self.assertRaises(KeyError), hoop.group():
                comm.all_reduce(x, stream=stream)
                raise KeyError
            with self.assertRaisesRegex(hoop.RemoteError, "rank 0 ran no call of a group"):
                other.all_reduce(np.ones(4))
            self.assertLess(time.monotonic() - begun, 20)
            self.assertEqual((x.tolist(), hoop._comm._open.depth), ([1.0] * 4, 0))
            for one in (stream, comm, other):
                if one is not None:
                    with contextlib.suppress(hoop.HoopError):  # the comm has failed
                        one.close()


if __name__ == "__main__":
    unittest.main()
