#include "data/dataset.h"

#include <stdlib.h>

#include "data/formats.h"

/* The usual means and deviations: those of MNIST, also for the digits, and of CIFAR-10. */
static void dataset_normalize(struct dataset *dataset)
{
    static const double grey[2] = {0.1307, 0.3081};
    static const double colours[3][2] = {{0.4914, 0.2470}, {0.4822, 0.2435}, {0.4465, 0.2616}};
    for (int c = 0; c < dataset->shape.channels; c++) {
        const double *known = dataset->shape.channels == 1 ? grey : colours[c];
        for (int pixel = 0; pixel < 256; pixel++) {
            dataset->normal[c][pixel] = (float)((pixel / 255.0 - known[0]) / known[1]);
        }
    }
}

bool dataset_open(struct dataset *dataset, const char *folder, bool train, int most,
                  struct problem *problem)
{
    *dataset = (struct dataset){0};
    char digits[4096];
    if (folder == NULL) {
        if (!digits_folder(digits, sizeof(digits), problem)) {
            return false;
        }
        folder = digits;
    }
    if (!(cifar_present(folder) ? cifar_read(dataset, folder, train, problem)
                                : idx_read(dataset, folder, train, problem))) {
        return false;
    }
    if (most > 0 && most < dataset->count) {
        dataset->count = most;
    }
    dataset_normalize(dataset);
    return true;
}

void dataset_close(struct dataset *dataset)
{
    free(dataset->pixels);
    free(dataset->labels);
    *dataset = (struct dataset){0};
}
