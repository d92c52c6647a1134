/*
 * What a GPU's driver does where CUDA's documentation leaves it open, and what its calls cost: what
 * hoop's use of streams and of other processes' memory was chosen by. Needs nothing of hoop:
 *
 *     nvcc -std=c++17 -O2 -arch=native gpu_facts.cu -o gpu_facts -lcuda && ./gpu_facts
 *
 *     held      which calls return while another stream waits for a word of the host: all queues,
 *               and with CUDA_DEVICE_MAX_CONNECTIONS=1
 *     calls     what queueing takes
 *     bells     there and back between a stream and the host: by a host function, and by a word
 *               that the stream writes and a thread looks at
 *     pieces    the rate of copies to the host in pieces, with one of both behind each
 *     ipc       memory of cudaMalloc that another process has open: what opening and closing take,
 *               and what becomes of it when it is freed
 *
 * A line for each. Exit code: 0; 1 if a call fails that must not; 77 without a GPU.
 */
#include "gpu_pair.cuh"
#include <atomic>
#include <thread>

#define ROUNDS 1000
#define BYTES ((size_t)2 << 20)
#define LARGE ((size_t)256 << 20)
#define HELD_MOST_US 500e3

static const char *queues = "";

static void told(const char *what, const char *format, double number)
{
    if (role == 0) {
        printf("%s%-56s ", queues, what);
        printf(format, number);
        printf("\n");
        fflush(stdout);
    }
}

static cudaStream_t stream_made()
{
    cudaStream_t stream;
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* ---- Held ---- */

/* What the calls below work on. */
static struct {
    cudaStream_t held, other;
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

/* The host ends it after a while. */
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
    word[8] = 1;
    caller.join();
    CU(cudaStreamSynchronize(held.held));
    told(what, returns ? "returns, %.0f us" : "WAITS", returns ? end - start : 0);
}

static void facts_held()
{
    CUmemAllocationProp prop = held_prop();
    CU(cuMemGetAllocationGranularity(&held.granularity, &prop,
                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    held.held = stream_made();
    held.other = stream_made();
    held.plain = malloc(BYTES);
    CU(posix_memalign(&held.registered, 4096, BYTES));
    memset(held.registered, 1, BYTES);
    CU(cudaMalloc(&held.device, BYTES));
    CU(cudaHostAlloc(&held.pinned, BYTES, 0));
    CU(cudaEventCreateWithFlags(&held.event, cudaEventDisableTiming));
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

/* ---- Memory of cudaMalloc between processes ---- */

/* Role 1 opens what role 0 has sent. */
static void *opened(const void *memory, double *ret_us, int *ret_error)
{
    cudaIpcMemHandle_t handle;
    void *at = NULL;
    if (role == 0) {
        CU(cudaIpcGetMemHandle(&handle, (void *)memory));
        send_all(&handle, sizeof(handle), -1);
    } else {
        receive_all(&handle, sizeof(handle));
        const double start = now_us();
        *ret_error = (int)cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
        *ret_us = now_us() - start;
        (void)cudaGetLastError();
    }
    return at;
}

/* Role 1 has something to say, role 0 does: one of them prints. */
static void tells(const char *what, const char *format, double number)
{
    if (role == 1) {
        send_all(&number, sizeof(number), -1);
    } else {
        receive_all(&number, sizeof(number));
        told(what, format, number);
    }
}

static void closed(const char *what, void *at)
{
    double took = now_us();
    if (role == 1) {
        CU(cudaIpcCloseMemHandle(at));
        took = now_us() - took;
    }
    tells(what, "%.0f us", took);
}

static double free_mib()
{
    size_t unused, total;
    CU(cudaMemGetInfo(&unused, &total));
    return (double)unused / (1 << 20);
}

static void facts_open(const char *name, size_t bytes)
{
    char text[80];
    void *memory = NULL;
    double us = 0;
    int error = 0;
    if (role == 0) {
        CU(cudaMalloc(&memory, bytes));
    }
    void *at = opened(memory, &us, &error);
    snprintf(text, sizeof(text), "ipc: opening %s", name);
    tells(text, "%.0f us", error == 0 ? us : -error);
    CUdeviceptr base = 0;
    size_t range = 0;
    if (role == 1) {
        (void)cuMemGetAddressRange(&base, &range, (CUdeviceptr)at);
    }
    tells("ipc:   the range of what is open, bytes", "%.0f", (double)range);
    tells("ipc:   which begins before it, bytes", "%.0f", (double)((CUdeviceptr)at - base));
    meet();
    snprintf(text, sizeof(text), "ipc:   closing %s", name);
    closed(text, at);
    meet();
    if (role == 0) {
        CU(cudaFree(memory));
    }
}

/* Freed by its owner while it is open; then another one, which may lie where it did. */
static void facts_freed()
{
    void *first = NULL, *second = NULL;
    double us = 0, before = 0;
    int error = 0;
    if (role == 0) {
        CU(cudaMalloc(&first, LARGE));
    }
    void *at = opened(first, &us, &error);
    meet();
    if (role == 0) {
        before = free_mib();
        const double start = now_us();
        CU(cudaFree(first));
        told("ipc: cudaFree() of what another process has open", "%.0f us", now_us() - start);
        told("ipc:   MiB of 256 that are free at once", "%.0f", free_mib() - before);
        CU(cudaMalloc(&second, LARGE));
        told("ipc:   the next allocation has its address (1: yes)", "%.0f", second == first);
        meet();
    } else {
        meet();
    }
    void *again = opened(second, &us, &error);
    tells("ipc:   opening that: error", "%.0f", error);
    int writes = 0;
    if (role == 1) {
        fill<<<8, 256>>>((uint32_t *)at, 1024, 7);
        writes = (int)cudaDeviceSynchronize();
    }
    tells("ipc:   a kernel that writes what was freed: error", "%.0f", writes);
    uint32_t seen = 0;
    if (role == 0) {
        CU(cudaMemcpy(&seen, second, 4, cudaMemcpyDefault));
        told("ipc:   and the next allocation has that (1: yes)", "%.0f", seen == 7);
    }
    meet();
    closed("ipc:   closing what was freed", at);
    if (role == 0) {
        told("ipc:   MiB free then, of 256, but for the next", "%.0f", free_mib() - before + 256);
    }
    meet();
    if (role == 1 && again != NULL) {
        CU(cudaIpcCloseMemHandle(again));
    }
    meet();
    if (role == 0) {
        CU(cudaFree(second));
    }
}

static void facts_neighbours()
{
    void *one = NULL, *two = NULL;
    unsigned long long ids[2] = {};
    CUdeviceptr base = 0;
    size_t range = 0;
    double us = 0;
    int error = 0;
    if (role == 0) {
        CU(cudaMalloc(&one, 4096));
        CU(cudaMalloc(&two, 4096));
        CU(cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)one));
        CU(cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)two));
        CU(cuMemGetAddressRange(&base, &range, (CUdeviceptr)two));
        told("ipc: two of 4 KiB: bytes from one to the other", "%.0f",
             (double)((char *)two - (char *)one));
        told("ipc:   their numbers differ (1: yes)", "%.0f", ids[0] != ids[1]);
        told("ipc:   the range of the second, bytes", "%.0f", (double)range);
    }
    void *at[2];
    int second_error = 0;
    at[0] = opened(one, &us, &error);
    at[1] = opened(two, &us, &second_error);
    tells("ipc:   opening both: error of the second", "%.0f", second_error);
    tells("ipc:   where they are open: bytes apart", "%.0f",
          (double)((char *)at[1] - (char *)at[0]));
    size_t opened_range = 0;
    if (role == 1) {
        (void)cuMemGetAddressRange(&base, &opened_range, (CUdeviceptr)at[0]);
    }
    tells("ipc:   the range of the first one there, bytes", "%.0f", (double)opened_range);
    meet();
}

/* While the closer's own device works, and while one of its streams waits for a word. */
static void facts_busy_close()
{
    void *memory[2] = {};
    void *at[2];
    double us = 0;
    int error = 0;
    for (int i = 0; i < 2; i++) {
        if (role == 0) {
            CU(cudaMalloc(&memory[i], LARGE));
        }
        at[i] = opened(memory[i], &us, &error);
    }
    double took[2] = {};
    if (role == 1) {
        cudaStream_t stream = stream_made();
        for (int k = 0; k < 20; k++) {
            fill<<<1, 32, 0, stream>>>((uint32_t *)at[1], LARGE / 64, 1);
        }
        double start = now_us();
        CU(cudaIpcCloseMemHandle(at[0]));
        took[0] = now_us() - start;
        start = now_us();
        CU(cudaStreamSynchronize(stream));
        took[1] = now_us() - start;
    }
    tells("ipc: closing while kernels use other memory", "%.0f us", took[0]);
    tells("ipc:   which run for so long afterwards", "%.0f us", took[1]);
    std::atomic<bool> over{false};
    double waited = 0;
    if (role == 1) {
        cudaStream_t stream = stream_made();
        word[24] = 0;
        CU(cuStreamWaitValue32((CUstream)stream, on_device(24), 1, CU_STREAM_WAIT_VALUE_GEQ));
        const double start = now_us();
        std::thread closer([&] {
            CU(cudaSetDevice(0));
            CU(cudaIpcCloseMemHandle(at[1]));
            over = true;
        });
        while (!over && now_us() - start < HELD_MOST_US) {
        }
        waited = over ? now_us() - start : -1;
        word[24] = 1;
        closer.join();
    }
    tells("ipc: closing while a stream waits (-1: waits, too)", "%.0f us", waited);
    over = false;
    if (role == 0) {
        CU(cudaMalloc(&memory[0], LARGE));
    }
    cudaStream_t stream = stream_made();
    if (role == 1) {
        word[25] = 0;
        CU(cuStreamWaitValue32((CUstream)stream, on_device(25), 1, CU_STREAM_WAIT_VALUE_GEQ));
        std::thread ender([&] {
            const double start = now_us();
            while (!over && now_us() - start < HELD_MOST_US) {
            }
            word[25] = 1;
        });
        at[0] = opened(memory[0], &us, &error);
        over = true;
        ender.join();
    } else {
        (void)opened(memory[0], &us, &error);
    }
    tells("ipc: opening while a stream waits (500 ms: waits, too)", "%.0f us", us);
    meet();
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
        facts_neighbours();
        facts_open("2 MiB", BYTES);
        facts_open("1 GiB", (size_t)1 << 30);
        facts_freed();
        facts_busy_close();
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
