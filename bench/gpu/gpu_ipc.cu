/*
 * What CUDA's documentation does not say about memory of cudaMalloc() that another process has open
 * (cudaIpcOpenMemHandle): how long opening and closing take, what they wait for, and what happens
 * to the memory when it is freed. Needs nothing of hoop:
 *
 *     nvcc -std=c++17 -O2 -arch=native gpu_ipc.cu -o gpu_ipc -lcuda && ./gpu_ipc
 *
 * A line for each. Exit code: 0; 1 if a call fails that must not; 77 without a GPU.
 */
#include "gpu_pair.cuh"
#include <atomic>
#include <thread>

#define BYTES ((size_t)2 << 20)
#define LARGE ((size_t)256 << 20)
#define HELD_MOST_US 500e3

/* Role 0 sends the handle of memory, role 1 opens it. Returns its address there; NULL in role 0. */
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

/* Prints a number of role 1's, by role 0: only that one prints. */
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
    snprintf(text, sizeof(text), "opening %s", name);
    tells(text, "%.0f us", error == 0 ? us : -error);
    CUdeviceptr base = 0;
    size_t range = 0;
    if (role == 1) {
        (void)cuMemGetAddressRange(&base, &range, (CUdeviceptr)at);
    }
    tells("  the range of what is open, bytes", "%.0f", (double)range);
    tells("  which begins before it, bytes", "%.0f", (double)((CUdeviceptr)at - base));
    meet();
    snprintf(text, sizeof(text), "  closing %s", name);
    closed(text, at);
    meet();
    if (role == 0) {
        CU(cudaFree(memory));
    }
}

/* The owner frees memory that is open, and allocates again, maybe at the same address. */
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
        told("cudaFree() of what another process has open", "%.0f us", now_us() - start);
        told("  MiB of 256 that are free at once", "%.0f", free_mib() - before);
        CU(cudaMalloc(&second, LARGE));
        told("  the next allocation has its address (1: yes)", "%.0f", second == first);
        meet();
    } else {
        meet();
    }
    void *again = opened(second, &us, &error);
    tells("  opening that: error", "%.0f", error);
    int writes = 0;
    if (role == 1) {
        fill<<<8, 256>>>((uint32_t *)at, 1024, 7);
        writes = (int)cudaDeviceSynchronize();
    }
    tells("  a kernel that writes what was freed: error", "%.0f", writes);
    uint32_t seen = 0;
    if (role == 0) {
        CU(cudaMemcpy(&seen, second, 4, cudaMemcpyDefault));
        told("  and the next allocation has that (1: yes)", "%.0f", seen == 7);
    }
    meet();
    closed("  closing what was freed", at);
    if (role == 0) {
        told("  MiB free then, of 256, but for the next", "%.0f", free_mib() - before + 256);
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
        told("two of 4 KiB: bytes from one to the other", "%.0f",
             (double)((char *)two - (char *)one));
        told("  their numbers differ (1: yes)", "%.0f", ids[0] != ids[1]);
        told("  the range of the second, bytes", "%.0f", (double)range);
    }
    void *at[2];
    int second_error = 0;
    at[0] = opened(one, &us, &error);
    at[1] = opened(two, &us, &second_error);
    tells("  opening both: error of the second", "%.0f", second_error);
    tells("  where they are open: bytes apart", "%.0f", (double)((char *)at[1] - (char *)at[0]));
    size_t opened_range = 0;
    if (role == 1) {
        (void)cuMemGetAddressRange(&base, &opened_range, (CUdeviceptr)at[0]);
    }
    tells("  the range of the first one there, bytes", "%.0f", (double)opened_range);
    meet();
}

/* Closing while kernels of the same process run, and closing and opening while one of its streams
 * waits for a word. */
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
    tells("closing while kernels use other memory", "%.0f us", took[0]);
    tells("  which run for so long afterwards", "%.0f us", took[1]);
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
    tells("closing while a stream waits (-1: waits, too)", "%.0f us", waited);
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
    tells("opening while a stream waits (500 ms: waits, too)", "%.0f us", us);
    meet();
}

static int facts(bool)
{
    CU(cudaSetDevice(0));
    CU(cudaHostRegister((void *)word, 4096, cudaHostRegisterMapped));
    facts_neighbours();
    facts_open("2 MiB", BYTES);
    facts_open("1 GiB", (size_t)1 << 30);
    facts_freed();
    facts_busy_close();
    return 0;
}

int main()
{
    return pair_possible() ? pair(facts, false) != 0 : 77;
}
