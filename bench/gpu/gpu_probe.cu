/*
 * Checks on a real GPU what the design for CUDA streams relies on. Needs nothing of hoop:
 *
 *     nvcc -std=c++17 -O2 -arch=native gpu_probe.cu -o gpu_probe -lcuda && ./gpu_probe
 *
 * Two processes share the device and a page of host memory that both have registered with it.
 *
 *     words        a stream can wait for a word that a stream of the other process writes
 *     one queue    the same with CUDA_DEVICE_MAX_CONNECTIONS=1; and whether a second stream of a
 *                  process runs while its first one waits for a word that the host writes
 *     graph        a wait, a kernel and a write can be captured once and replayed
 *     ipc, vmm     a process can map memory of the other one, and a kernel can write it
 *
 * Prints a line for each: yes or no, and microseconds where they matter. Exit code: 0 if all say
 * yes (the second stream aside, since nothing depends on it), 1 if not, 77 without a GPU. A probe
 * that hangs is ended after a minute.
 */
#include "gpu_pair.cuh"

#define ROUNDS 1000
#define BYTES ((size_t)2 << 20)

static int failures;

/* Prints a result on which nothing depends. */
static void tell(const char *what, bool yes, double us)
{
    if (role == 0) {
        printf("%-44s %-4s", what, yes ? "yes" : "no");
        printf(us > 0 ? "%8.2f us\n" : "\n", us);
        fflush(stdout);
    }
}

static void say(const char *what, bool yes, double us)
{
    failures += !yes;
    tell(what, yes, us);
}

/* ---- Words in host memory ---- */

/* Ping-pong by words: both processes queue all rounds at once. Role 0 writes k to its word and
 * waits for k in the other's; role 1 waits first, and then writes. */
static void probe_words(const char *what)
{
    cudaStream_t stream;
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    word[role] = 0;
    meet();
    const double start = now_us();
    for (uint32_t k = 1; k <= ROUNDS; k++) {
        CUstreamBatchMemOpParams ops[2] = {};
        const int wait = role == 0 ? 1 : 0;
        ops[wait].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        ops[wait].waitValue.address = on_device(1 - role);
        ops[wait].waitValue.value = k;
        ops[wait].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
        ops[1 - wait].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        ops[1 - wait].writeValue.address = on_device(role);
        ops[1 - wait].writeValue.value = k;
        CU(cuStreamBatchMemOp((CUstream)stream, 2, ops, 0));
    }
    CU(cudaStreamSynchronize(stream));
    say(what, word[1 - role] == ROUNDS, (now_us() - start) / ROUNDS);
    CU(cudaStreamDestroy(stream));
}

/* Does the second stream run while the first one waits? The host ends the wait after a second. */
static void probe_second_stream()
{
    cudaStream_t first, second;
    uint32_t *memory;
    CU(cudaMalloc(&memory, BYTES));
    CU(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CU(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    fill<<<8, 256>>>(memory, BYTES / 4,
                     0); /* CUDA loads it at its first launch, and waits for all streams */
    CU(cudaDeviceSynchronize());
    word[2 + role] = 0;
    CU(cuStreamWaitValue32((CUstream)first, on_device(2 + role), 1, CU_STREAM_WAIT_VALUE_GEQ));
    fill<<<8, 256, 0, first>>>(memory, BYTES / 4, 1);
    fill<<<8, 256, 0, second>>>(memory, BYTES / 4, 2);
    const double start = now_us();
    while (cudaStreamQuery(second) == cudaErrorNotReady && now_us() - start < 1e6) {
    }
    const bool goes_on = cudaStreamQuery(second) == cudaSuccess;
    const bool waits = cudaStreamQuery(first) == cudaErrorNotReady;
    word[2 + role] = 1;
    CU(cudaDeviceSynchronize());
    tell("one queue: a second stream goes on", goes_on, 0);
    say("one queue: the host's word ends the wait", waits, 0);
    CU(cudaFree(memory));
}

/* ---- Graphs ---- */

static void probe_graph()
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    uint32_t *memory;
    CU(cudaMalloc(&memory, BYTES));
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const int bell = 4 + 2 * role, done = bell + 1;
    CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    int captured =
        cuStreamWaitValue32((CUstream)stream, on_device(bell), 1, CU_STREAM_WAIT_VALUE_EQ);
    fill<<<8, 256, 0, stream>>>(memory, BYTES / 4, 1);
    captured |= cuStreamWriteValue32((CUstream)stream, on_device(done), 1, 0);
    const int ended = (int)cudaStreamEndCapture(stream, &graph);
    if (captured != 0 || ended != 0) {
        say("graph: words are captured", false, 0);
        return;
    }
    CU(cudaGraphInstantiate(&exec, graph, 0));
    const double start = now_us();
    for (int i = 0; i < ROUNDS; i++) {
        word[bell] = word[done] = 0;
        CU(cudaGraphLaunch(exec, stream));
        word[bell] = 1;
        while (word[done] == 0) {
        }
        CU(cudaStreamSynchronize(stream));
    }
    say("graph: words are captured and replayed", true, (now_us() - start) / ROUNDS);
}

/* ---- Memory of the other process ---- */

/* Role 1 has mapped role 0's memory, and writes it; then both read it. */
static void probe_mapped(const char *what, uint32_t *memory)
{
    uint32_t last = 0;
    if (role == 1) {
        fill<<<8, 256>>>(memory, BYTES / 4, 4711);
        CU(cudaDeviceSynchronize());
    }
    meet();
    CU(cudaMemcpy(&last, memory + BYTES / 4 - 1, 4, cudaMemcpyDeviceToHost));
    say(what, last == 4711, 0);
    meet();
}

static void probe_ipc()
{
    void *memory = NULL;
    cudaIpcMemHandle_t handle;
    if (role == 0) {
        CU(cudaMalloc(&memory, BYTES));
        CU(cudaIpcGetMemHandle(&handle, memory));
        send_all(&handle, sizeof(handle), -1);
    } else {
        receive_all(&handle, sizeof(handle));
        const double start = now_us();
        CU(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
        fprintf(stderr, "# ipc: mapped in %.0f us\n", now_us() - start);
    }
    probe_mapped("ipc: cudaMalloc memory is mapped", (uint32_t *)memory);
}

static void probe_vmm()
{
    CUmemAllocationProp prop = {};
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {};
    CUdeviceptr at;
    size_t granularity;
    uint64_t fd64 = 0;
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    const size_t bytes = (BYTES + granularity - 1) / granularity * granularity;
    if (role == 0) {
        int fd = -1;
        CU(cuMemCreate(&handle, bytes, &prop, 0));
        CU(cuMemExportToShareableHandle(&fd, handle, prop.requestedHandleTypes, 0));
        send_all(&fd64, sizeof(fd64), fd);
        close(fd);
    } else {
        const int fd = receive_all(&fd64, sizeof(fd64));
        CU(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                          prop.requestedHandleTypes));
        close(fd);
    }
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CU(cuMemMap(at, bytes, 0, handle, 0));
    CU(cuMemSetAccess(at, bytes, &access, 1));
    probe_mapped("vmm: memory is exported and mapped", (uint32_t *)at);
}

/* ---- The processes ---- */

static int probe(bool one_queue)
{
    CU(cudaSetDevice(0));
    CU(cudaHostRegister((void *)word, 4096, cudaHostRegisterMapped));
    if (one_queue) {
        probe_words("one queue: words between two processes");
        probe_second_stream();
        return failures != 0;
    }
    probe_words("words between two processes");
    probe_graph();
    probe_ipc();
    probe_vmm();
    return failures != 0;
}

int main()
{
    if (!pair_possible()) {
        return 77;
    }
    const int all = pair(probe, false);
    return (all | pair(probe, true)) != 0;
}
