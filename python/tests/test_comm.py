"""Tests of the API of hoop: every operation over threads, errors, memory, and jobs of processes."""

import array
import contextlib
import copy
import ctypes
import gc
import json
import os
import pathlib
import pickle
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

import hoop
import numpy as np
from hoop._native import json_text, lib

HOOPRUN = os.environ.get("HOOPRUN", "hooprun")


def ranks(size, body):
    """Calls body(comm) on a thread for each rank of a new comm. Returns its results, by rank."""
    comms = hoop.Comm.threads(size)
    results, failures = [None] * size, []

    def run(comm):
        try:
            results[comm.rank] = body(comm)
        except BaseException as error:
            failures.append(error)
            comm.abort()

    threads = [threading.Thread(target=run, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    for comm in comms:
        comm.close()
    return results


class Collectives(unittest.TestCase):
    def test_every_collective(self):
        for n in (1, 2, 3):
            with self.subTest(ranks=n):
                ranks(n, lambda comm: self.collectives(comm, 5))
                ranks(n, lambda comm: self.collectives(comm, 0))
                ranks(n, lambda comm: self.collectives(comm, 200))

    def collectives(self, comm, count):
        n, r = comm.size, comm.rank
        mine = np.arange(count, dtype="f8") + 10 * r
        all_of = np.stack([np.arange(count, dtype="f8") + 10 * q for q in range(n)])
        same = np.testing.assert_array_equal
        same(comm.all_reduce(mine, np.empty(count)), all_of.sum(0))
        same(comm.all_reduce(mine.copy(), op=hoop.MAX), all_of.max(0))
        same(comm.all_gather(mine, np.empty((n, count))), all_of)
        same(comm.broadcast(mine.copy(), root=np.int64(n - 1)), all_of[n - 1])
        got = comm.reduce(mine, np.empty(count) if r == 0 else None)
        if r == 0:
            same(got, all_of.sum(0))
        same(comm.reduce_scatter(all_of, np.empty(count)), n * all_of[r])
        got = comm.gather(mine, np.empty((n, count)) if r == n - 1 else None, root=n - 1)
        if r == n - 1:
            same(got, all_of)
        same(comm.scatter(all_of if r == 0 else None, np.empty(count)), all_of[r])
        blocks = np.array([[100 * r + q] * count for q in range(n)], dtype="i4").reshape(n, count)
        same(comm.all_to_all(blocks, np.empty((n, count), "i4"))[:, :1].ravel(),
             [100 * q + r for q in range(n)][: n if count else 0])
        counts = np.full(n, count, "u1")  # whose sum may have more than 8 bits
        same(comm.all_to_all_v(np.tile(mine, n), counts, np.empty(n * count), counts), all_of.ravel())
        comm.barrier()
        around = np.empty(count)
        with hoop.group():
            comm.send(mine, np.arange(n)[(r + 1) % n])
            comm.recv(around, np.arange(n)[(r - 1) % n])
        same(around, all_of[(r - 1) % n])

    def test_gil_is_released(self):
        # If the GIL were held the second rank could never call.
        ranks(2, lambda comm: comm.barrier())


def raise_after(_result):
    raise KeyboardInterrupt


class Streams(unittest.TestCase):
    def test_queued_operations_run_in_order(self):
        def body(comm):
            stream, x = hoop.Stream(), np.full(1000, comm.rank + 1.0)
            comm.all_reduce(x, stream=stream)
            first = stream.record()
            comm.all_reduce(x, op=hoop.MAX, stream=stream)
            with hoop.group():
                comm.broadcast(x, root=1, stream=stream)
                comm.barrier(stream=stream)
            last = stream.record()
            last.wait()
            self.assertTrue(first.done() and last.done() and stream.idle())
            stream.synchronize()
            self.assertFalse(stream._held)
            stream.close()
            last.wait()  # tickets stay valid
            return x[0]

        self.assertEqual(ranks(2, body), [3.0, 3.0])

    def test_the_stream_keeps_buffers_alive(self):
        comm, other = hoop.Comm.threads(2)
        stream, gone = hoop.Stream(), []
        x = hoop.empty(1000)
        weakref.finalize(x.base if x.base is not None else x, gone.append, 1)
        comm.all_reduce(x, stream=stream)
        del x
        gc.collect()
        self.assertEqual((gone, stream.idle()), ([], False))
        other.all_reduce(np.ones(1000, "f4"))
        stream.synchronize()
        gc.collect()
        self.assertEqual(gone, [1])
        for one in (stream, comm, other):
            one.close()

    def test_a_signal_handler_frees_nothing_that_runs(self):
        # One that raises does so when a call of the library has returned.
        comm, other = hoop.Comm.threads(2)
        for name, grouped in (("hoop_all_reduce", False), ("hoop_group_end", True)):
            stream, gone, call = hoop.Stream(), [], getattr(lib, name)
            x = hoop.empty(1000)
            weakref.finalize(x.base if x.base is not None else x, gone.append, 1)
            with unittest.mock.patch.object(lib, name, lambda *given: raise_after(call(*given))):
                with self.assertRaises(KeyboardInterrupt), hoop.group() if grouped else contextlib.nullcontext():
                    comm.all_reduce(x, stream=stream)
            del x
            gc.collect()
            self.assertEqual((gone, stream.idle(), hoop._comm._open.depth), ([], False, 0))
            other.all_reduce(np.ones(1000, "f4"))
            stream.synchronize()
            gc.collect()
            self.assertEqual(gone, [1])
            stream.close()
        comm.close()
        other.close()

    def test_a_signal_handler_in_a_group(self):
        # Its block has raised, so nothing of it runs, and the stream does not hold its memory for ever.
        comm, other = hoop.Comm.threads(2)
        stream, gone, call = hoop.Stream(), [], lib.hoop_all_reduce
        x = hoop.empty(1000)
        weakref.finalize(x.base if x.base is not None else x, gone.append, 1)
        with unittest.mock.patch.object(lib, "hoop_all_reduce", lambda *given: raise_after(call(*given))):
            with self.assertRaises(KeyboardInterrupt), hoop.group():
                comm.all_reduce(x, stream=stream)
        del x
        gc.collect()
        self.assertEqual((gone, stream.idle(), hoop._comm._open.depth), ([], True, 0))
        with self.assertRaisesRegex(hoop.RemoteError, "rank 0 ran no call of a group"):
            other.all_reduce(np.ones(1000, "f4"))
        stream.synchronize()
        gc.collect()
        self.assertEqual(gone, [1])
        for one in (stream, comm, other):
            with contextlib.suppress(hoop.HoopError):  # it has failed
                one.close()

    def test_the_stream_keeps_a_comm_alive(self):
        comm, other = hoop.Comm.threads(2)
        stream, known = hoop.Stream(), weakref.ref(comm)
        comm.all_reduce(np.ones(4), stream=stream)
        late = threading.Timer(1, other.all_reduce, (np.ones(4),))
        late.start()
        del comm
        gc.collect()  # the finalizer does not wait for the other ranks
        self.assertIsNotNone(known())
        late.join()
        stream.synchronize()
        gc.collect()
        self.assertIsNone(known())
        for one in (stream, other):
            one.close()

    def test_a_group_holds_what_it_can(self):
        comm, first, second = hoop.Comm.threads(1)[0], hoop.Stream(), hoop.Stream()
        with unittest.mock.patch.object(first, "_queued", side_effect=MemoryError):
            with self.assertRaises(MemoryError), hoop.group():
                comm.all_reduce(np.ones(4), stream=first)
                comm.all_reduce(np.ones(4), stream=second)
        self.assertEqual((len(first._held), len(second._held)), (1, 1))
        second.synchronize()
        self.assertEqual((len(first._held), len(second._held)), (1, 0))
        for one in (first, second, comm):
            one.close()

    def test_threads_of_one_stream_free_nothing_that_runs(self):
        comm, other = hoop.Comm.threads(2)
        stream, gone = hoop.Stream(), []
        query = hoop._comm.lib.hoop_ticket_query

        def slow(ticket):  # so that both threads have queried before either goes on
            try:
                return query(ticket)
            finally:
                time.sleep(0.1)

        comm.all_reduce(np.ones(1000, "f4"), stream=stream)
        x = hoop.empty(1000)
        weakref.finalize(x.base if x.base is not None else x, gone.append, 1)
        comm.all_reduce(x, stream=stream)
        del x
        last = stream.record()
        other.all_reduce(np.ones(1000, "f4"))
        while query(stream._held[0].ticket) == hoop._native.IN_PROGRESS:
            time.sleep(0.001)
        with unittest.mock.patch.object(hoop._comm.lib, "hoop_ticket_query", slow):
            threads = [threading.Thread(target=stream._release) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        gc.collect()
        self.assertEqual((gone, last.done()), ([], False))
        other.all_reduce(np.ones(1000, "f4"))
        for one in (stream, comm, other):
            one.close()

    def test_a_ticket_that_completes_when_a_wait_ends(self):
        comm, other = hoop.Comm.threads(2)
        wait = lib.hoop_ticket_wait

        def slow(ticket, _ms):  # another thread has the GIL when the wait has timed out
            result = wait(ticket, 0)
            other.all_reduce(np.ones(4))
            while lib.hoop_ticket_query(ticket) == hoop._native.IN_PROGRESS:
                time.sleep(0.001)
            return result

        with contextlib.closing(hoop.Stream()) as stream:
            for timeout in (None, 0.01, 60):
                comm.all_reduce(np.ones(4), stream=stream)
                ticket = stream.record()
                with unittest.mock.patch.object(lib, "hoop_ticket_wait", slow):
                    self.assertEqual(hoop._native.wait_ticket(ticket._last, timeout), hoop._native.OK)
        comm.close()
        other.close()

    def test_a_ticket_waits_no_longer_than_it_is_told(self):
        comm, other = hoop.Comm.threads(2)
        stream, x = hoop.Stream(), np.ones(4)
        comm.all_reduce(x, stream=stream)
        ticket = stream.record()
        self.assertFalse(ticket.done())
        with self.assertRaises(hoop.TimedOut):
            ticket.wait(0.01)
        other.all_reduce(np.ones(4))
        readable = select.select([stream], [], [], 60)[0]  # its fileno() is for event loops
        self.assertEqual((readable, ticket.done(), x[0]), ([stream], True, 2.0))
        comm.close()
        other.close()

    def test_a_signal_is_heard_while_a_ticket_is_waited_for(self):
        class Rung(Exception):
            pass

        def ring(*_):
            raise Rung

        comm, other = hoop.Comm.threads(2)
        stream, x = hoop.Stream(), np.ones(4)
        comm.all_reduce(x, stream=stream)
        ticket = stream.record()
        before = signal.signal(signal.SIGALRM, ring)
        try:
            for wait in (ticket.wait, lambda: ticket.wait(60), stream.synchronize):
                begun = time.monotonic()
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with self.assertRaises(Rung):
                    wait()
                self.assertLess(time.monotonic() - begun, 5)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        other.all_reduce(np.ones(4))
        ticket.wait(60)  # the operation went on
        self.assertEqual(x[0], 2.0)
        for one in (stream, comm, other):
            one.close()

    def test_streams_wait_for_each_other(self):
        comm, other = hoop.Comm.threads(2)
        alone = hoop.Comm.threads(1)[0]
        first, second, x = hoop.Stream(), hoop.Stream(), np.ones(4)
        comm.all_reduce(x, stream=first)
        second.wait_for(first.record())
        alone.barrier(stream=second)
        behind = second.record()
        self.assertFalse(behind.done())
        other.all_reduce(np.ones(4))
        behind.wait(60)
        self.assertEqual(x[0], 2.0)
        for one in (comm, other, alone):
            one.close()

    def test_a_failure_is_told_by_the_ticket(self):
        comm, other = hoop.Comm.threads(2)
        stream = hoop.Stream()
        comm.all_reduce(np.ones(4), stream=stream)
        ticket = stream.record()
        other.abort()
        with self.assertRaisesRegex(hoop.HoopError, "rank 1"):
            ticket.wait(60)
        with self.assertRaisesRegex(hoop.HoopError, "rank 1"):
            stream.synchronize()
        with self.assertRaisesRegex(hoop.HoopError, "rank 1"):
            ticket.done()
        stream.record().wait()  # the failure is reported only once
        comm.abort()

    def test_a_failure_is_told_by_the_next_ticket(self):
        comm, other = hoop.Comm.threads(2)
        alone, stream = hoop.Comm.threads(1)[0], hoop.Stream()
        comm.all_reduce(np.ones(4), stream=stream)
        other.abort()
        with self.assertRaisesRegex(hoop.HoopError, "rank 1"):
            stream.synchronize()
        for _ in range(3):
            alone.barrier(stream=stream)
        with self.assertRaisesRegex(hoop.HoopError, "rank 1"):
            stream.record().wait()
        for one in (stream, alone):
            one.close()
        comm.abort()

    def test_what_is_no_stream_is_refused(self):
        comm, stream, x = hoop.Comm.threads(1)[0], hoop.Stream(), np.ones(1)
        for thing in (comm, 3, "x", stream.record()):
            with self.assertRaisesRegex(TypeError, "not a hoop.Stream"):
                comm.all_reduce(x, stream=thing)
        with self.assertRaisesRegex(TypeError, "not a hoop.Ticket"):
            stream.wait_for(comm)
        comm.all_reduce(x, stream=stream)
        for one in (stream, comm):
            one.close()

    def test_a_closed_stream_queues_nothing(self):
        comm, stream = hoop.Comm.threads(1)[0], hoop.Stream()
        stream.close()
        for call in (stream.record, stream.synchronize, stream.idle, stream.fileno,
                     lambda: comm.all_reduce(np.ones(1), stream=stream)):
            with self.assertRaisesRegex(ValueError, "stream is closed"):
                call()
        comm.close()


class Births(unittest.TestCase):
    def test_split(self):
        def body(comm):
            if comm.rank == 3:
                return comm.split(None)
            part = comm.split(comm.rank % 2, key=-comm.rank, name="part")
            x = np.full(3, float(comm.rank))
            part.all_reduce(x)
            place = part.rank, part.size, x[0]
            part.close()
            return place

        self.assertEqual(ranks(4, body), [(1, 2, 2.0), (0, 1, 1.0), (0, 2, 2.0), None])

    def test_shrink_takes_any_sequence(self):
        def body(comm):
            small = comm.shrink(np.array([0, 2])) if comm.rank == 1 else None
            return small and (small.close(), small.size)[1]

        self.assertEqual(ranks(3, body), [None, 1, None])

    def test_grow(self):
        token = threading.Event()
        made = []

        def new(rank):
            token.wait(60)
            return hoop.Comm.grown(made[0], size=4, rank=rank)

        def member(comm):
            if comm.rank == 1:
                made.append(comm.unique_id())
                token.set()
            return comm.grow(4, made[0] if comm.rank == 1 else None)

        def summed(comm):
            x = np.full(3, comm.rank + 1.0)
            comm.all_reduce(x)
            place = comm.rank, comm.size, x[0]
            comm.close()
            return place

        joined = [None, None]

        def join(i):
            joined[i] = summed(new(2 + i))

        threads = [threading.Thread(target=join, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        self.assertEqual(ranks(2, lambda comm: summed(member(comm))), [(0, 4, 10.0), (1, 4, 10.0)])
        for thread in threads:
            thread.join(60)
        self.assertEqual(joined, [(2, 4, 10.0), (3, 4, 10.0)])

    def test_grow_refuses(self):
        comm = hoop.Comm.threads(1)[0]
        with self.assertRaisesRegex(ValueError, "128 bytes, this one 5"):
            comm.grow(2, b"short")
        with self.assertRaises(hoop.InvalidArgument):
            comm.grow(0, comm.unique_id())
        comm.close()


class Ends(unittest.TestCase):
    def test_a_close_that_is_refused(self):
        comm = hoop.Comm.threads(1)[0]
        with hoop.group():
            comm.barrier()
            with self.assertRaisesRegex(hoop.InvalidUsage, "open group"):
                comm.close()
        comm.barrier()
        comm.close()

    def test_any_timeout(self):
        hoop.Comm(id=hoop.unique_id(), size=1, rank=0, op_timeout=float("inf")).close()
        for seconds, said in ((-3, -3000), (-1e-4, -1), (-1e300, -86400000)):
            with self.assertRaisesRegex(hoop.InvalidArgument, f"op_timeout_ms is {said},"):
                hoop.Comm(id=hoop.unique_id(), size=1, rank=0, op_timeout=seconds)
        self.assertEqual(hoop._native.config(op_timeout=1e-4).op_timeout_ms, 1)  # 0 would mean no limit

    def test_what_is_no_option(self):
        comm, stream = hoop.Comm.threads(1)[0], hoop.Stream()
        for value, kind in ((float("nan"), ValueError), ("5", TypeError), (object(), TypeError)):
            with self.assertRaisesRegex(kind, "op_timeout is .*expected a number of seconds"):
                hoop.Comm(op_timeout=value)
            with self.assertRaisesRegex(kind, "timeout is .*expected a number of seconds"):
                stream.record().wait(value)
        for call in (lambda **given: comm.split(0, **given), lambda **given: comm.grow(2, **given),
                     lambda **given: comm.shrink(**given),
                     lambda **given: hoop.Comm.grown(bytes(128), size=2, rank=1, **given)):
            with self.assertRaisesRegex(TypeError, "no option 'op_timout', expected one of init_timeout, op_timeout"):
                call(op_timout=3)
        comm.close()
        self.assertEqual(repr(stream), "<hoop.Stream>")
        stream.close()
        self.assertEqual(repr(stream), "<hoop.Stream, closed>")

    def test_a_block_that_raises_waits_for_nothing(self):
        comm, other = hoop.Comm.threads(2)
        stream, raised = hoop.Stream(), []

        def block():
            try:
                with comm:
                    comm.all_reduce(np.ones(4), stream=stream)
                    raise KeyError
            except KeyError:
                raised.append(1)

        thread = threading.Thread(target=block, daemon=True)
        thread.start()
        thread.join(20)
        self.assertEqual(raised, [1])
        with self.assertRaisesRegex(hoop.Aborted, "rank 0 aborted"):
            other.all_reduce(np.ones(4))
        with self.assertRaises(hoop.Aborted):
            stream.close()
        other.close()


class Buffers(unittest.TestCase):
    def test_kinds(self):
        def body(comm):
            a = array.array("f", [comm.rank + 1.0] * 3)
            comm.all_reduce(a)
            b = bytearray([1, 2, 3])
            comm.all_reduce(b)
            v = hoop.alloc(16)
            v[0] = 1
            comm.all_reduce(v)
            return list(a), bytes(b), v[0]

        self.assertEqual(ranks(2, body), [([3.0] * 3, bytes([2, 4, 6]), 2)] * 2)

    def test_dlpack(self):
        class Foreign:
            def __init__(self, values):
                self.values = values

            def __dlpack__(self):
                return self.values.__dlpack__()

            def __dlpack_device__(self):
                return self.values.__dlpack_device__()

        values = np.ones((2, 3), "f4")
        found = hoop.buffer(Foreign(values))
        self.assertEqual((found.count, found.datatype), (6, hoop.Datatype.FLOAT32))
        self.assertEqual(found.address, values.ctypes.data)
        self.assertEqual(hoop.buffer(Foreign(np.ones((2, 0, 3)))).count, 0)
        with self.assertRaisesRegex(TypeError, "not contiguous"):
            hoop.buffer(Foreign(np.ones((4, 4))[:, 1]))
        with self.assertRaisesRegex(TypeError, "of 16 bits and 1 lanes, .* it has int8"):
            hoop.buffer(Foreign(np.ones(2, "i2")))

    @unittest.skipIf(np.lib.NumpyVersion(np.__version__) < "2.1.0", "this numpy has DLPack 0")
    def test_dlpack_of_memory_that_is_not_to_be_written(self):
        class Foreign:
            def __init__(self, values, **options):
                self.values, self.options = values, options

            def __dlpack__(self, **asked):
                return self.values.__dlpack__(**asked, **self.options)

            def __dlpack_device__(self):
                return self.values.__dlpack_device__()

        fixed = np.ones((2, 3), "f4")
        fixed.setflags(write=False)
        comm, out = hoop.Comm.threads(1)[0], np.zeros((2, 3), "f4")
        for foreign in (Foreign(fixed), Foreign(np.ones((2, 3), "f4"), copy=True)):
            self.assertFalse(hoop.buffer(foreign).writable)
            comm.all_reduce(foreign, Foreign(out))  # it is accepted as an input
            np.testing.assert_array_equal(out, fixed)
            with self.assertRaisesRegex(TypeError, "Foreign is read-only"):
                comm.all_reduce(foreign)
            with self.assertRaisesRegex(TypeError, "Foreign is read-only"):
                comm.all_gather(out, foreign)
        self.assertTrue(hoop.buffer(Foreign(out)).writable)
        comm.close()

    def test_formats_of_other_sizes(self):
        with self.assertRaisesRegex(TypeError, "'l', of 4 bytes"):
            hoop._buffers._from_letter("l", 4, None)
        self.assertEqual(hoop.buffer((ctypes.c_long * 3)()).datatype, hoop.Datatype.INT64)

    def test_refusals(self):
        with self.assertRaisesRegex(TypeError, "not C-contiguous"):
            hoop.buffer(np.ones((4, 4))[:, 1])
        with self.assertRaisesRegex(TypeError, "no datatype"):
            hoop.buffer(np.ones(3, "c16"))
        with self.assertRaisesRegex(TypeError, "byte order"):
            hoop.buffer(np.ones(3, ">f4"))
        with self.assertRaisesRegex(TypeError, "MaskedArray .*its mask would be ignored"):
            hoop.buffer(np.ma.array([1.0, 2.0], mask=[False, True]))
        with self.assertRaisesRegex(TypeError, "not a buffer"):
            hoop.buffer([1, 2, 3])
        comm = hoop.Comm.threads(1)[0]
        with self.assertRaisesRegex(TypeError, "read-only"):
            comm.all_reduce(b"abcd")
        with self.assertRaisesRegex(ValueError, "5 FLOAT32 where 4 FLOAT32"):
            comm.all_reduce(np.ones(4, "f4"), np.ones(5, "f4"))
        with self.assertRaisesRegex(hoop.InvalidArgument, "root is 7, expected 0 to 0"):
            comm.broadcast(np.ones(1), root=7)
        # As a C int it would be 0.
        for call in (lambda: comm.broadcast(np.ones(1), root=2**32), lambda: comm.all_reduce(np.ones(1), op=2**32),
                     lambda: comm.send(np.ones(1), 2**40), lambda: comm.split(2**32),
                     lambda: comm.shrink([2**32]), lambda: hoop.Comm("tcp://127.0.0.1:1", size=2**32 + 1, rank=0)):
            with self.assertRaisesRegex(ValueError, "more than 32 bits"):
                call()
        for call in (lambda: comm.all_reduce(np.ones(1), op="sum"), lambda: comm.broadcast(np.ones(1), root="sum")):
            with self.assertRaisesRegex(TypeError, "'sum' is no whole number: expected .*hoop.SUM"):
                call()
        for color in (-1, -5):
            with self.assertRaisesRegex(ValueError, f"color is {color}, expected at least 0, or None"):
                comm.split(color)
        for size in (-1, 0, 2**40):
            with self.assertRaisesRegex(ValueError, f"a comm of {size} threads, expected 1 to 4096"):
                hoop.Comm.threads(size)
        with self.assertRaisesRegex(ValueError, "77 is not a valid Datatype"):
            hoop.buffer(bytearray(8), 77)
        # As a size_t it would be 8.
        for count in (2**64 + 8, 8 - 2**64):
            with self.assertRaisesRegex(ValueError, "is not a count"):
                comm.explain("all_reduce", count)
        # A C string would end at the NUL.
        for call in (lambda: hoop.Comm("file:///tmp/\0a", size=1, rank=0), lambda: hoop.Comm(name="a\0b")):
            with self.assertRaisesRegex(ValueError, "NUL"):
                call()
        with self.assertRaisesRegex(TypeError, "no str"):
            hoop.Comm(pathlib.Path("/tmp/a"), size=1, rank=0)
        for call in (copy.copy, pickle.dumps):
            for thing in (comm, stream := hoop.Stream(), stream.record()):
                with self.assertRaisesRegex(TypeError, "belongs to its process"):
                    call(thing)
        comm.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            comm.barrier()


class Memory(unittest.TestCase):
    def test_empty(self):
        a = hoop.empty((3, 4), "i8")
        self.assertEqual((a.shape, a.dtype, a.sum(), a.ctypes.data % 4096), ((3, 4), "i8", 0, 0))
        self.assertEqual(hoop.empty(0).size, 0)
        self.assertEqual(hoop.empty(np.int64(3)).shape, (3,))
        self.assertEqual(hoop.empty([np.int32(3), 0]).shape, (3, 0))
        for call in (lambda: hoop.empty(-1), lambda: hoop.empty((-2, -3)), lambda: hoop.alloc(-1)):
            with self.assertRaisesRegex(ValueError, "-[13]"):
                call()

    def test_freed_with_the_last_view(self):
        def regions():
            gc.collect()
            return json.loads(json_text(lib.hoop_info_json, None))["regions"]

        before = regions()
        view = hoop.empty(1000)[10:20]
        self.assertEqual(regions(), before + 1)
        del view
        self.assertEqual(regions(), before)


class Jobs(unittest.TestCase):
    def job(self, size, script, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("import hoop, numpy as np, os, signal, sys\n" + script)
            file.flush()
            return subprocess.run(
                [HOOPRUN, "-n", str(size), *options, sys.executable, file.name],
                capture_output=True, text=True, timeout=60,
            )

    def test_processes_share_memory(self):
        done = self.job(3, "with hoop.Comm() as c:\n"
                           "    g = hoop.empty(300_000); g[:] = c.rank + 1\n"
                           "    c.all_reduce(g)\n"
                           "    assert (g == 6).all()\n"
                           "    print('fine')\n")
        self.assertEqual((done.returncode, done.stdout.count("fine")), (0, 3), done.stderr)

    def test_a_death_is_named_within_a_second(self):
        # Without hooprun, which would itself end the other ranks.
        script = ("import hoop, numpy as np, os, signal, sys, time\n"
                  "c = hoop.Comm(sys.argv[1], size=2, rank=int(sys.argv[2])); x = np.ones(4)\n"
                  "c.all_reduce(x)\n"
                  "if c.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
                  "t = time.monotonic()\n"
                  "try: c.all_reduce(x)\n"
                  "except hoop.RemoteError as e: print(time.monotonic() - t, e)\n"
                  "assert c.failure.name == 'HOOP_REMOTE_ERROR'\n")
        with tempfile.TemporaryDirectory() as folder:
            jobs = [subprocess.Popen([sys.executable, "-c", script, f"file://{folder}/j", str(r)],
                                     stdout=subprocess.PIPE, text=True) for r in range(2)]
            said = jobs[0].communicate(timeout=60)[0]
            jobs[1].communicate(timeout=60)
        self.assertEqual([job.returncode for job in jobs], [0, -9])
        self.assertIn("rank 1", said)
        self.assertLess(float(said.split()[0]), 1.0)

    def test_ctrl_c_ends_what_waits_for_a_rank_that_never_comes(self):
        script = pathlib.Path(__file__).with_name("comm_interrupt.py")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, script, f"file://{folder}/job"],
                                  capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGINT, "fine\n"), done.stderr)
        self.assertIn("\nKeyboardInterrupt\n", done.stderr)

    def ends(self, what):
        script = pathlib.Path(__file__).with_name("comm_end.py")
        with tempfile.TemporaryDirectory() as folder:
            jobs = [subprocess.Popen([sys.executable, script, method, f"file://{folder}/{method}", what],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    for method in ("fork", "forkserver", "spawn")]
            said = [job.communicate(timeout=120)[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), "".join(said))

    def test_processes_of_multiprocessing_say_goodbye_and_linger(self):
        self.ends("apart")

    def test_processes_of_multiprocessing_end_with_a_daemon_inside(self):
        self.ends("inside")

    def test_processes_of_multiprocessing_end_after_their_threads(self):
        self.ends("working")

    def exits(self, size, script):
        """Runs the script in size processes, which must exit with 0. Returns the output of each."""
        with tempfile.TemporaryDirectory() as folder:
            jobs = [subprocess.Popen([sys.executable, "-c", "import hoop, sys, threading, time\n"
                                      "c = hoop.Comm(sys.argv[1], size=int(sys.argv[2]), rank=int(sys.argv[3]))\n"
                                      + script, f"file://{folder}/j", str(size), str(r)],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    for r in range(size)]
            said = [job.communicate(timeout=60) for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0] * size, said)
        return [out for out, _ in said]

    def test_an_exit_with_a_daemon_inside(self):
        said = self.exits(2, "def wait(): c.recv(bytearray(4), 1 - c.rank)\n"
                             "if c.rank == 0:\n"
                             "    threading.Thread(target=wait, daemon=True).start()\n"
                             "    time.sleep(0.3)\n"
                             "else:\n"
                             "    try: wait()\n"
                             "    except hoop.Aborted as error: print(error)\n")
        self.assertIn("rank 0 aborted the communicator", said[1])

    def test_an_exit_with_what_is_queued(self):
        said = self.exits(2, "def wait(): c.recv(bytearray(4), 1 - c.rank, stream=stream)\n"
                             "stream = hoop.Stream() if c.rank == 0 else None\n"
                             "try: wait()\n"
                             "except hoop.Aborted as error: print(error)\n")
        self.assertIn("rank 0 aborted the communicator", said[1])

    def test_an_exit_with_a_daemon_that_goes_on(self):
        for _ in range(3):
            self.exits(1, "def call():\n"
                          "    while True:\n"
                          "        try: c.barrier()\n"
                          "        except hoop.HoopError: pass\n"
                          "threading.Thread(target=call, daemon=True).start()\n"
                          "time.sleep(0.05)\n")

    def test_a_mismatch_names_both_sides(self):
        done = self.job(2, "c = hoop.Comm(); x = np.ones(4)\n"
                           "try: c.all_reduce(x) if c.rank else c.barrier()\n"
                           "except hoop.Mismatch as e: print('told:', e)\n")
        self.assertEqual(done.stdout.count("told:"), 2, done.stdout + done.stderr)
        self.assertIn("barrier", done.stdout)
        self.assertIn("all_reduce", done.stdout)
        self.assertNotIn("ffi", done.stdout)  # the C function from which ctypes makes both calls


class Table(unittest.TestCase):
    def test_every_function_has_its_types(self):
        # A function without declared types would take a handle for a 32-bit int.
        package = pathlib.Path(hoop.__file__).parent
        called = {name for path in package.rglob("*.py")
                  for name in re.findall(r"\blib\.(hoop_\w+)", path.read_text())}
        self.assertGreater(len(called), 40)
        self.assertEqual([name for name in called if getattr(lib, name).argtypes is None], [])


    def test_no_class_of_ours_is_a_thread(self):
        # Python 3.13 introduced Thread._handle, which collided with an attribute of a class of hoop's.
        classes = [value for name, module in list(sys.modules.items()) if name.split(".")[0] == "hoop"
                   for value in vars(module).values() if isinstance(value, type)]
        self.assertIn(hoop.Comm, classes)
        self.assertEqual([one for one in classes if issubclass(one, threading.Thread)], [])


class Info(unittest.TestCase):
    def test_module(self):
        done = subprocess.run([sys.executable, "-m", "hoop.info"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"hoop {hoop.__version__}, library {hoop.__version__}", done.stdout)

    def test_options(self):
        def said(*options):
            return subprocess.run([sys.executable, "-m", "hoop.info", *options], capture_output=True, text=True)

        self.assertEqual(said("--prefix").stdout, f"{pathlib.Path(hoop.__file__).resolve().parent}\n")
        self.assertEqual(said("--version").stdout, f"hoop {hoop.__version__}\n")
        self.assertIn("--prefix", said("--help").stdout)
        wrong = said("--foo")
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertIn("unrecognized arguments: --foo", wrong.stderr)
        piped = subprocess.run(f"{sys.executable} -u -m hoop.info | :", shell=True, capture_output=True, text=True)
        self.assertEqual(piped.stderr, "")

    def test_a_library_that_is_another(self):
        done = subprocess.run([sys.executable, "-c", "import hoop"], capture_output=True, text=True,
                              env={**os.environ, "LIBHOOP": "libm.so.6"})
        self.assertIn("ImportError: libm.so.6 is not libhoop", done.stderr)

    def test_a_unique_id_is_not_shown(self):
        token = hoop.unique_id()
        self.assertEqual((len(token), repr(token), str(token)), (128,) + ("<hoop.UniqueId>",) * 2)
        comm = hoop.Comm(id=token, size=1, rank=0)
        self.assertEqual((comm.rank, comm.size), (0, 1))
        comm.close()


if __name__ == "__main__":
    unittest.main()
