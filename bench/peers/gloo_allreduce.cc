/*
 * The measurement of all_reduce_perf with gloo::allreduce (its ring) over TCP loopback, for
 * comparison by compare.sh, which builds this if there is a libgloo. It forks its ranks itself.
 * Float sums, out of place and in place; rows have the columns of all_reduce_perf (but times with
 * three decimals); results are not checked.
 *
 *     gloo_allreduce -r ranks [-b bytes] [-n iterations] [-w warm-up]
 *
 * In C++, as Gloo is.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

struct setup {
    int ranks = 2;
    size_t bytes = 1 << 20;
    int iters = 20;
    int warmup = 5;
};

using context_t = std::shared_ptr<gloo::Context>;

static context_t connect(const setup &setup, int rank, const std::string &store_path)
{
    gloo::transport::tcp::attr attr;
    attr.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(store_path);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, setup.ranks);
    context->connectFullMesh(store, device);
    return context;
}

/* Seconds per operation, as this rank saw it. input nullptr: in place. */
static double measure(const setup &setup, const context_t &context, float *input, float *output)
{
    const size_t count = setup.bytes / sizeof(float);
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    if (input != nullptr) {
        options.setInput(input, count);
    }
    options.setOutput(output, count);
    void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    for (int i = 0; i < setup.warmup; i++) {
        gloo::allreduce(options);
    }
    gloo::BarrierOptions barrier(context);
    gloo::barrier(barrier);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < setup.iters; i++) {
        gloo::allreduce(options);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return took.count() / setup.iters;
}

static void run(const setup &setup, int rank, const std::string &store_path)
{
    auto context = connect(setup, rank, store_path);
    std::vector<float> input(setup.bytes / sizeof(float) + 1, 1.0f);
    std::vector<float> output(input.size(), 0.0f);
    const double apart = measure(setup, context, input.data(), output.data());
    std::fill(output.begin(), output.end(), 0.0f); /* zeros stay finite however often summed */
    const double in_place = measure(setup, context, nullptr, output.data());
    if (rank == 0) {
        const double scale = 2.0 * (setup.ranks - 1) / setup.ranks;
        std::printf("%12zu  %12zu  %8s  %6s  %6d", setup.bytes, setup.bytes / sizeof(float),
                    "float", "sum", -1);
        for (double seconds : {apart, in_place}) {
            const double alg = (double)setup.bytes / seconds / 1e9;
            std::printf("  %9.3f  %6.2f  %6.2f     N/A", seconds * 1e6, alg, alg * scale);
        }
        std::printf("\n");
    }
}

static bool read_options(int argc, char **argv, setup *ret)
{
    for (int letter; (letter = getopt(argc, argv, "r:b:n:w:")) != -1;) {
        if (letter == '?') {
            return false;
        }
        char *end;
        const long long value = std::strtoll(optarg, &end, 10);
        if (*end != '\0' || value < 1) {
            return false;
        }
        if (letter == 'b') {
            ret->bytes = (size_t)value;
        } else {
            (letter == 'r' ? ret->ranks : letter == 'n' ? ret->iters : ret->warmup) = (int)value;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    setup setup;
    char store_path[] = "/tmp/gloo_allreduce.XXXXXX";
    if (!read_options(argc, argv, &setup)) {
        std::fprintf(stderr, "usage: %s -r ranks [-b bytes] [-n iterations] [-w warm-up]\n",
                     argv[0]);
        return 255;
    }
    if (mkdtemp(store_path) == nullptr) {
        std::perror("gloo_allreduce: mkdtemp");
        return 1;
    }
    for (int rank = 0; rank < setup.ranks; rank++) {
        const pid_t pid = fork();
        if (pid == 0) {
            run(setup, rank, store_path);
            std::fflush(stdout);
            _exit(0);
        }
    }
    int failed = 0;
    for (int status; wait(&status) > 0;) {
        failed |= status;
    }
    const std::string clean = std::string("rm -rf ") + store_path;
    failed |= std::system(clean.c_str());
    return failed != 0;
}
