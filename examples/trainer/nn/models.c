/* The models of the trainer. The last layer has one output for each class. */
#include "nn/model.h"

#include <stddef.h>
#include <string.h>

const struct model models[] = {
    {
        .name = "mnist",
        .about = "the classic net for MNIST, 431,080 parameters",
        .input = {1, 28, 28},
        .layers =
            {
                {LAYER_CONV, "conv1", .out = 20, .kernel = 5}, /* 20 x 24 x 24 */
                {.kind = LAYER_POOL_RELU},                     /* 20 x 12 x 12 */
                {LAYER_CONV, "conv2", .out = 50, .kernel = 5}, /* 50 x 8 x 8 */
                {.kind = LAYER_POOL_RELU},                     /* 50 x 4 x 4 */
                {LAYER_FC, "fc1", .out = 500},
                {.kind = LAYER_RELU},
                {LAYER_FC, "fc2", .out = 10},
            },
    },
    {
        .name = "mnist-bn",
        .about = "two convolutions with batch normalization, 29,034 parameters",
        .input = {1, 28, 28},
        .layers =
            {
                {LAYER_CONV, "conv1", .out = 16, .kernel = 5, .padding = 2}, /* 16 x 28 x 28 */
                {LAYER_BATCH_NORM, .name = "bn1"},
                {.kind = LAYER_POOL_RELU},                                   /* 16 x 14 x 14 */
                {LAYER_CONV, "conv2", .out = 32, .kernel = 5, .padding = 2}, /* 32 x 14 x 14 */
                {LAYER_BATCH_NORM, .name = "bn2"},
                {.kind = LAYER_POOL_RELU}, /* 32 x 7 x 7 */
                {LAYER_FC, "fc", .out = 10},
            },
    },
    {
        .name = "cifar",
        .about = "two convolutions for 32 x 32 in colour, 4,275,594 parameters",
        .input = {3, 32, 32},
        .layers =
            {
                {LAYER_CONV, "conv1", .out = 64, .kernel = 3, .padding = 1},  /* 64 x 32 x 32 */
                {.kind = LAYER_POOL_RELU},                                    /* 64 x 16 x 16 */
                {LAYER_CONV, "conv2", .out = 128, .kernel = 3, .padding = 1}, /* 128 x 16 x 16 */
                {.kind = LAYER_POOL_RELU},                                    /* 128 x 8 x 8 */
                {LAYER_FC, "fc1", .out = 512},
                {.kind = LAYER_RELU},
                {LAYER_FC, "fc2", .out = 10},
            },
    },
    {
        .name = "linear",
        .about = "no hidden layer: what the others are compared with, 7,850 parameters",
        .input = {1, 28, 28},
        .layers = {{LAYER_FC, "fc", .out = 10}},
    },
    {.name = NULL},
};

const struct model *model_find(const char *name)
{
    for (const struct model *model = models; model->name != NULL; model++) {
        if (strcmp(model->name, name) == 0) {
            return model;
        }
    }
    return NULL;
}
