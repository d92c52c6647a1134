/*
 * What a GPU's driver does where CUDA's documentation leaves it open, and what its calls cost: the
 * facts behind hoop's use of streams. Needs nothing of hoop:
 *
 *     nvcc -std=c++17 -O2 -arch=native gpu_facts.cu -o gpu_facts -lcuda && ./gpu_facts
 *
 *     held      which calls return while another stream waits for a word of the host: with all
 *               queues, and with CUDA_DEVICE_MAX_CONNECTIONS=1
 *     calls     how long it takes to queue work
 *     bells     round trips between a stream and the host: by a host function, and by a word that
 *               the stream writes and a thread polls
 *     pieces    the rate of copies to the host in pieces, with nothing, a host function or a word
 *               behind each
 *     turns     what it costs if two processes use one device: for kernels, and for copies of
 *               several sizes, made in several ways. (A small copy to the device waits like a
 *               kernel; one of two rows does not.)
 *
 * A line for each. Exit code: 0; 1 if a call fails that must not; 77 without a GPU.
 */
#include "gpu_pair.cuh"
#include <atomic>
#include <functional>
#include <thread>

#define ROUNDS 1000
#define BYTES ((size_t)2 << 20)
#define LARGE ((size_t)256 << 20)
#define HELD_MOST_US 500e3

/* ---- Held ---- */

/* What the calls below use. */
static struct {
    cudaStream_t held, other, third;
    void *device, *mapped, *pinned, *plain, *registered;
    cudaEvent_t event;
    CUdeviceptr at;
    CUmemGenericAllocationHandle handle;
    size_t granularity;
    cudaIpcMemHandle_t ipc;
} held;

__global__ void never_loaded_before(uint32_t *at)
{
    at[threadIdx.x] = threadIdx.x;
}

static void ring(void *arg)
{
    *(volatile uint32_t *)arg = 1;
}

static CUmemAllocationProp held_prop()
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static void held_map()
{
    CUmemAllocationProp prop = held_prop();
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cuMemCreate(&held.handle, held.granularity, &prop, 0));
    CU(cuMemAddressReserve(&held.at, held.granularity, 0, 0, 0));
    CU(cuMemMap(held.at, held.granularity, 0, held.handle, 0));
    CU(cuMemSetAccess(held.at, held.granularity, &access, 1));
}

static void held_unmap()
{
    CU(cuMemUnmap(held.at, held.granularity));
    CU(cuMemRelease(held.handle));
    CU(cuMemAddressFree(held.at, held.granularity));
}

static const struct {
    const char *what;
    void (*call)();
} held_calls[] = {
    {"a kernel on another stream, and its end",
     [] {
         fill<<<8, 256, 0, held.other>>>((uint32_t *)held.device, BYTES / 4, 1);
         CU(cudaStreamSynchronize(held.other));
     }},
    {"a host function on another stream",
     [] {
         word[9] = 0;
         CU(cudaLaunchHostFunc(held.other, ring, (void *)(word + 9)));
         while (word[9] == 0) {
         }
     }},
    {"an event on another stream",
     [] {
         CU(cudaEventRecord(held.event, held.other));
         CU(cudaEventSynchronize(held.event));
     }},
    {"a copy to pinned memory on another stream",
     [] {
         CU(cudaMemcpyAsync(held.pinned, held.device, BYTES, cudaMemcpyDefault, held.other));
         CU(cudaStreamSynchronize(held.other));
     }},
    {"a copy to other memory on another stream",
     [] {
         CU(cudaMemcpyAsync(held.plain, held.device, BYTES, cudaMemcpyDefault, held.other));
         CU(cudaStreamSynchronize(held.other));
     }},
    {"cudaMemcpy()", [] { CU(cudaMemcpy(held.plain, held.device, 64, cudaMemcpyDefault)); }},
    {"a kernel that is not loaded yet, and its end",
     [] {
         never_loaded_before<<<1, 32, 0, held.other>>>((uint32_t *)held.device);
         CU(cudaStreamSynchronize(held.other));
     }},
    {"cudaMalloc()", [] { CU(cudaMalloc(&held.mapped, LARGE)); }},
    {"cudaIpcGetMemHandle()", [] { CU(cudaIpcGetMemHandle(&held.ipc, held.mapped)); }},
    {"cudaFree()", [] { CU(cudaFree(held.mapped)); }},
    {"cudaMallocAsync() and cudaFreeAsync() on another stream",
     [] {
         CU(cudaMallocAsync(&held.mapped, BYTES, held.other));
         CU(cudaFreeAsync(held.mapped, held.other));
         CU(cudaStreamSynchronize(held.other));
     }},
    {"cudaHostAlloc()", [] { CU(cudaHostAlloc(&held.mapped, BYTES, 0)); }},
    {"cudaFreeHost()", [] { CU(cudaFreeHost(held.mapped)); }},
    {"cudaHostRegister()", [] { CU(cudaHostRegister(held.registered, BYTES, 0)); }},
    {"cudaHostUnregister()", [] { CU(cudaHostUnregister(held.registered)); }},
    {"cuMemCreate(), cuMemMap() and cuMemSetAccess()", held_map},
    {"cuMemUnmap() and cuMemRelease()", held_unmap},
    {"cudaStreamCreate() and cudaStreamDestroy()", [] { CU(cudaStreamDestroy(stream_made())); }},
};

/* Does a kernel on a third stream run? A separate thread launches it, since it may hang there until
 * the held stream goes on. */
static bool kernel_runs_beside()
{
    static std::atomic<bool> over;
    over = false;
    const double start = now_us();
    std::thread([] {
        CU(cudaSetDevice(0));
        fill<<<1, 32, 0, held.third>>>((uint32_t *)held.device, 32, 1);
        CU(cudaStreamSynchronize(held.third));
        over = true;
    }).detach();
    while (!over && now_us() - start < HELD_MOST_US) {
    }
    return over;
}

/* Makes the call while a stream is held; if the call does not return the host ends the hold. */
static void hold_during(const char *what, void (*call)())
{
    std::atomic<bool> over{false};
    word[8] = 0;
    CU(cuStreamWaitValue32((CUstream)held.held, on_device(8), 1, CU_STREAM_WAIT_VALUE_GEQ));
    const double start = now_us();
    std::atomic<double> end{0};
    std::thread caller([&] {
        CU(cudaSetDevice(0));
        call();
        end = now_us();
        over = true;
    });
    while (!over && now_us() - start < HELD_MOST_US) {
    }
    const bool returns = over;
    const bool meanwhile = !returns && kernel_runs_beside();
    word[8] = 1;
    caller.join();
    CU(cudaStreamSynchronize(held.held));
    told(what,
         returns     ? "returns, %.0f us"
         : meanwhile ? "WAITS; kernels run meanwhile"
                     : "WAITS, and so do kernels",
         returns ? end - start : 0);
}

static void facts_held()
{
    CUmemAllocationProp prop = held_prop();
    CU(cuMemGetAllocationGranularity(&held.granularity, &prop,
                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    held.held = stream_made();
    held.other = stream_made();
    held.third = stream_made();
    held.plain = malloc(BYTES);
    CU(posix_memalign(&held.registered, 4096, BYTES));
    memset(held.registered, 1, BYTES);
    CU(cudaMalloc(&held.device, BYTES));
    CU(cudaHostAlloc(&held.pinned, BYTES, 0));
    CU(cudaEventCreateWithFlags(&held.event, cudaEventDisableTiming));
    /* loads the kernel now, so that loading it does not wait later */
    fill<<<1, 32, 0, held.other>>>((uint32_t *)held.device, 32, 1);
    CU(cudaDeviceSynchronize());
    for (const auto &one : held_calls) {
        hold_during(one.what, one.call);
    }
}

/* ---- Calls and bells ---- */

static void timed(const char *what, cudaStream_t stream,
                  void (*call)(cudaStream_t stream, uint32_t k))
{
    double queued = 0;
    for (int turn = 0; turn < 2; turn++) { /* the first one warms up */
        CU(cudaStreamSynchronize(stream));
        const double start = now_us();
        for (uint32_t k = 1; k <= 200; k++) {
            call(stream, k);
        }
        queued = (now_us() - start) / 200;
        CU(cudaStreamSynchronize(stream));
    }
    told(what, "%.2f us", queued);
}

static void facts_calls()
{
    cudaStream_t stream = stream_made();
    timed("queueing a kernel", stream, [](cudaStream_t on, uint32_t) {
        fill<<<1, 32, 0, on>>>((uint32_t *)held.device, 32, 1);
    });
    timed("queueing a host function", stream,
          [](cudaStream_t on, uint32_t) { CU(cudaLaunchHostFunc(on, ring, (void *)(word + 10))); });
    timed("queueing a copy of 8 bytes", stream, [](cudaStream_t on, uint32_t) {
        CU(cudaMemcpyAsync(held.pinned, held.device, 8, cudaMemcpyDefault, on));
    });
    timed("queueing a wait for a word", stream, [](cudaStream_t on, uint32_t) {
        CU(cuStreamWaitValue32((CUstream)on, on_device(11), 0, CU_STREAM_WAIT_VALUE_GEQ));
    });
    timed("queueing a word to write", stream, [](cudaStream_t on, uint32_t k) {
        CU(cuStreamWriteValue32((CUstream)on, on_device(12), k, 0));
    });
    timed("cudaPointerGetAttributes()", stream, [](cudaStream_t, uint32_t) {
        struct cudaPointerAttributes about;
        CU(cudaPointerGetAttributes(&about, held.device));
    });
}

static void next(void *arg)
{
    volatile uint32_t *at = (volatile uint32_t *)arg;
    *at = *at + 1;
}

static void facts_bells()
{
    cudaStream_t stream = stream_made();
    word[16] = word[17] = 0;
    double start = now_us();
    for (uint32_t k = 1; k <= ROUNDS; k++) {
        CU(cudaLaunchHostFunc(stream, next, (void *)(word + 16)));
        CU(cuStreamWaitValue32((CUstream)stream, on_device(16), k, CU_STREAM_WAIT_VALUE_GEQ));
    }
    CU(cudaStreamSynchronize(stream));
    told("there and back by a host function", "%.2f us", (now_us() - start) / ROUNDS);
    std::thread looker([] {
        for (uint32_t k = 1; k <= ROUNDS; k++) {
            while (word[17] < k) {
            }
            word[18] = k;
        }
    });
    word[18] = 0;
    start = now_us();
    for (uint32_t k = 1; k <= ROUNDS; k++) {
        CU(cuStreamWriteValue32((CUstream)stream, on_device(17), k, 0));
        CU(cuStreamWaitValue32((CUstream)stream, on_device(18), k, CU_STREAM_WAIT_VALUE_GEQ));
    }
    CU(cudaStreamSynchronize(stream));
    looker.join();
    told("there and back by a word that a thread looks at", "%.2f us", (now_us() - start) / ROUNDS);
    start = now_us();
    for (int k = 0; k < ROUNDS; k++) {
        fill<<<1, 32, 0, stream>>>((uint32_t *)held.device, 32, 1);
        CU(cudaStreamSynchronize(stream));
    }
    told("a kernel, and waiting for the stream", "%.2f us", (now_us() - start) / ROUNDS);
}

static void facts_pieces()
{
    cudaStream_t stream = stream_made();
    void *device, *pinned;
    char text[80];
    CU(cudaMalloc(&device, LARGE));
    CU(cudaHostAlloc(&pinned, LARGE, 0));
    for (size_t piece = LARGE; piece >= ((size_t)512 << 10);
         piece = piece == LARGE ? (size_t)8 << 20 : piece / 2) {
        for (int bell = 0; bell < 3; bell++) {
            double best = 1e9;
            for (int turn = 0; turn < 4; turn++) {
                const double start = now_us();
                for (size_t at = 0; at < LARGE; at += piece) {
                    CU(cudaMemcpyAsync((char *)pinned + at, (char *)device + at, piece,
                                       cudaMemcpyDefault, stream));
                    if (bell == 1) {
                        CU(cudaLaunchHostFunc(stream, next, (void *)(word + 20)));
                    } else if (bell == 2) {
                        CU(cuStreamWriteValue32((CUstream)stream, on_device(21), 1, 0));
                    }
                }
                CU(cudaStreamSynchronize(stream));
                const double took = now_us() - start;
                best = turn > 0 && took < best ? took : best;
            }
            static const char *const behind[] = {"nothing", "a host function", "a word"};
            snprintf(text, sizeof(text), "to the host, pieces of %zu KiB, %s behind", piece >> 10,
                     behind[bell]);
            told(text, "%.1f GB/s", (double)LARGE / best / 1e3);
        }
    }
    CU(cudaFree(device));
    CU(cudaFreeHost(pinned));
}

/* ---- Two processes in turn ---- */

/* Waits until the other process has called it as often. */
static void lockstep()
{
    static uint32_t rounds;
    word[32 + role] = ++rounds;
    while (word[33 - role] < rounds) {
    }
}

/* Times a call of both processes at the same time, or of role 0 alone, until a word that is written
 * behind it on the stream arrives. */
static void turn(const char *what, bool both, cudaStream_t stream,
                 const std::function<void()> &call)
{
    double took = 0;
    for (int round = 0; round < 60; round++) {
        lockstep();
        if (!both && role == 1) {
            continue;
        }
        const double start = now_us();
        const uint32_t value = word[40 + role] + 1;
        call();
        CU(cuStreamWriteValue32((CUstream)stream, on_device(40 + role), value, 0));
        while (word[40 + role] != value) {
        }
        took += round >= 10 ? now_us() - start : 0;
    }
    char text[96];
    snprintf(text, sizeof(text), "%s%s", what, both ? ", by two processes" : "");
    told(text, "%.1f us", took / 50);
}

static void copy_batch(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    CUdeviceptr dst = (CUdeviceptr)to, src = (CUdeviceptr)from;
    CUmemcpyAttributes how = {};
    size_t first = 0;
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    how.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    CU(cuMemcpyBatchAsync(&dst, &src, &bytes, 1, &how, &first, 1, (CUstream)stream));
}

/* A copy of two rows that are contiguous. */
static void copy_rows(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    CU(cudaMemcpy2DAsync(to, bytes / 2, from, bytes / 2, bytes / 2, 2, cudaMemcpyDefault, stream));
}

static void facts_turns()
{
    cudaStream_t stream = stream_made();
    char text[96];
    void *device, *pinned;
    CU(cudaMalloc(&device, BYTES));
    CU(cudaHostAlloc(&pinned, BYTES, 0));
    for (bool both : {false, true}) {
        for (size_t bytes : {8, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 262144}) {
            snprintf(text, sizeof(text), "%zu bytes to the host", bytes);
            turn(text, both, stream,
                 [&] { CU(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDefault, stream)); });
            snprintf(text, sizeof(text), "%zu bytes to the device", bytes);
            turn(text, both, stream,
                 [&] { CU(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyDefault, stream)); });
            snprintf(text, sizeof(text), "%zu bytes to the device, in two rows", bytes);
            turn(text, both, stream, [&] { copy_rows(device, pinned, bytes, stream); });
            snprintf(text, sizeof(text), "%zu bytes to the host, beside kernels", bytes);
            turn(text, both, stream, [&] { copy_batch(pinned, device, bytes, stream); });
            snprintf(text, sizeof(text), "%zu bytes to the device, beside kernels", bytes);
            turn(text, both, stream, [&] { copy_batch(device, pinned, bytes, stream); });
        }
        turn("8 bytes to the device, as a word", both, stream,
             [&] { CU(cuStreamWriteValue64((CUstream)stream, (CUdeviceptr)device, 4711, 0)); });
        turn("a kernel", both, stream,
             [&] { fill<<<1, 32, 0, stream>>>((uint32_t *)device, 32, 1); });
        turn("two kernels", both, stream, [&] {
            fill<<<1, 32, 0, stream>>>((uint32_t *)device, 32, 1);
            fill<<<1, 32, 0, stream>>>((uint32_t *)device, 32, 1);
        });
        turn("nothing", both, stream, [] {});
        turn("a host function", both, stream,
             [&] { CU(cudaLaunchHostFunc(stream, next, (void *)(word + 48 + role))); });
    }
}

static int facts(bool one_queue)
{
    CU(cudaSetDevice(0));
    CU(cudaHostRegister((void *)word, 4096, cudaHostRegisterMapped));
    queues = one_queue ? "one queue: " : "";
    if (role == 0) {
        facts_held();
    }
    meet();
    if (!one_queue) {
        if (role == 0) {
            facts_calls();
            facts_bells();
            facts_pieces();
        }
        meet();
        facts_turns();
    }
    return 0;
}

int main()
{
    if (!pair_possible()) {
        return 77;
    }
    const int all = pair(facts, false);
    return (all | pair(facts, true)) != 0;
}
