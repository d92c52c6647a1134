/* See perf_data.h. Work goes in blocks that fit the first-level cache. */
#include "perf/perf_data.h"

#include "perf/perf_rules.h"

enum number_kind { NUMBER_SIGNED, NUMBER_UNSIGNED, NUMBER_FLOAT };

struct number_format {
    enum number_kind kind;
    int mantissa; /* bits stored, for floating point types */
    int bias;     /* of the exponent */
};

static const struct number_format formats[HOOP_NUM_DATATYPES] = {
    [HOOP_INT8] = {NUMBER_SIGNED, 0, 0},       [HOOP_UINT8] = {NUMBER_UNSIGNED, 0, 0},
    [HOOP_INT32] = {NUMBER_SIGNED, 0, 0},      [HOOP_UINT32] = {NUMBER_UNSIGNED, 0, 0},
    [HOOP_INT64] = {NUMBER_SIGNED, 0, 0},      [HOOP_UINT64] = {NUMBER_UNSIGNED, 0, 0},
    [HOOP_FLOAT16] = {NUMBER_FLOAT, 10, 15},   [HOOP_FLOAT32] = {NUMBER_FLOAT, 23, 127},
    [HOOP_FLOAT64] = {NUMBER_FLOAT, 52, 1023}, [HOOP_BFLOAT16] = {NUMBER_FLOAT, 7, 127},
    [HOOP_FLOAT8E4M3] = {NUMBER_FLOAT, 3, 7},  [HOOP_FLOAT8E5M2] = {NUMBER_FLOAT, 2, 15},
};

static const size_t type_bytes[HOOP_NUM_DATATYPES] = {
#define TYPE_BYTES(name, value, bytes, text) [value] = (bytes),
    HOOP_DATATYPES(TYPE_BYTES)
#undef TYPE_BYTES
};

static const char *const type_names[HOOP_NUM_DATATYPES] = {
#define TYPE_NAME(name, value, bytes, text) [value] = (text),
    HOOP_DATATYPES(TYPE_NAME)
#undef TYPE_NAME
};

static const char *const op_names[PERF_NUM_OPS] = {
    [HOOP_SUM] = "sum", [HOOP_PROD] = "prod", [HOOP_MAX] = "max",
    [HOOP_MIN] = "min", [HOOP_AVG] = "avg",   [PERF_MULSUM] = "mulsum",
};

size_t perf_type_bytes(hoop_datatype_t type)
{
    return type_bytes[type];
}

const char *perf_type_name(hoop_datatype_t type)
{
    return type_names[type];
}

const char *perf_op_name(int op)
{
    return op_names[op];
}

int perf_mulsum_factor(int rank)
{
    return (int)rule_mulsum_factor(rank);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* Bits (sign included) that each rank's numbers may have so that their sum stays exact; 0: too many
 * ranks, so only those in the window have inputs other than zero. */
static int data_sum_width(const struct perf_case *data, int64_t *ret_window)
{
    int64_t budget = (int64_t)1 << (formats[data->type].mantissa + 1);
    if (data->op == PERF_MULSUM) {
        budget /= 2;
    }
    *ret_window = budget;
    int width = 0;
    while (((int64_t)1 << width) <= budget / data->nranks) {
        width++;
    }
    return width;
}

/*
 * A product with the rounded 1/n is at most two units away from the quotient. Narrow types are
 * averaged in fp32 and then rounded, where the difference can only tip a tie.
 */
unsigned perf_data_tolerance(const struct perf_case *data)
{
    bool power_of_two = (data->nranks & (data->nranks - 1)) == 0;
    if (data->op != HOOP_AVG || formats[data->type].kind != NUMBER_FLOAT || power_of_two) {
        return 0;
    }
    return perf_type_bytes(data->type) >= 4 ? 2 : 1;
}

static struct perf_rules data_rules_of_type(hoop_datatype_t type)
{
    const struct number_format *format = &formats[type];
    return (struct perf_rules){
        .bits = (int32_t)perf_type_bytes(type) * 8,
        .mantissa = format->mantissa,
        .bias = format->bias,
        .is_signed = format->kind != NUMBER_UNSIGNED,
    };
}

struct perf_rules perf_data_rules(const struct perf_case *data)
{
    struct perf_rules rules = data_rules_of_type(data->type);
    rules.base = rule_mix(data->repetition + 1);
    rules.nranks = data->nranks;
    rules.op = data->op;
    rules.tolerance = perf_data_tolerance(data);
    if (formats[data->type].kind != NUMBER_FLOAT) {
        rules.inputs = PERF_INPUTS_BITS;
        rules.odd = data->op == HOOP_PROD; /* products of even numbers would soon be zero */
    } else if (data->op == HOOP_PROD) {
        rules.inputs = PERF_INPUTS_FACTORS;
    } else if (data->op == HOOP_MIN || data->op == HOOP_MAX) {
        rules.inputs = PERF_INPUTS_NUMBERS;
        rules.width = rules.mantissa + 2;
    } else {
        rules.width = data_sum_width(data, &rules.window);
        rules.inputs = rules.width > 0 ? PERF_INPUTS_NUMBERS : PERF_INPUTS_WINDOW;
    }
    return rules;
}

/* ---- Elements -------------------------------------------------------------------------------- */

#define STORE_AS(ctype)                                                                            \
    do {                                                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            ctype element = (ctype)elements[i];                                                    \
            memcpy((char *)dst + i * sizeof element, &element, sizeof element);                    \
        }                                                                                          \
    } while (0)

static void data_store(const struct perf_rules *rules, const uint64_t *elements, size_t count,
                       void *dst)
{
    switch (rules->bits) {
    case 8:
        STORE_AS(uint8_t);
        break;
    case 16:
        STORE_AS(uint16_t);
        break;
    case 32:
        STORE_AS(uint32_t);
        break;
    default:
        STORE_AS(uint64_t);
        break;
    }
}

void perf_data_store(hoop_datatype_t type, int64_t value, void *dst)
{
    const struct perf_rules rules = data_rules_of_type(type);
    const uint64_t element = rule_element(&rules, value);
    data_store(&rules, &element, 1, dst);
}

void perf_data_make(const struct perf_span *span, void *dst)
{
    const struct perf_rules *rules = &span->rules;
    uint64_t elements[RULE_BLOCK];
    for (size_t done = 0; done < span->count;) {
        const size_t rest = span->count - done;
        const uint32_t n = rest < RULE_BLOCK ? (uint32_t)rest : RULE_BLOCK;
        if (span->rank == PERF_REDUCED) {
            rule_results(rules, span->first + done, n, elements);
        } else {
            rule_inputs(rules, span->rank, span->first + done, n, elements);
        }
        data_store(rules, elements, n, (char *)dst + done * (size_t)(rules->bits / 8));
        done += n;
    }
}

/* ---- Comparing ------------------------------------------------------------------------------- */

size_t perf_data_wrong(const struct perf_rules *rules, const void *got, const void *want,
                       size_t count)
{
    const size_t bytes = (size_t)(rules->bits / 8);
    if (memcmp(got, want, count * bytes) == 0) {
        return 0;
    }
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t a = 0, b = 0; /* little endian, as every machine that hoop runs on */
        memcpy(&a, (const char *)got + i * bytes, bytes);
        memcpy(&b, (const char *)want + i * bytes, bytes);
        wrong += rule_is_wrong(rules, a, b);
    }
    return wrong;
}
