/* The calls of libibverbs (see verbs.h), which is loaded at run time: so a build with its headers
 * runs on machines that have neither the library nor a device. */
#include "transports/rdma/verbs.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERBS_VENDOR_RXE 0xffffffu
#define VERBS_VENDOR_SIW 0x626d74u
#define VERBS_HOPS 255u
/* About 0.6 ms, and retry without limit. Receives are posted in time, so this is not needed; but a
 * peer whose packets are merely late in one of two queues must not count as dead. */
#define VERBS_RNR_TIMER 12u
#define VERBS_RNR_RETRIES 7u
#define VERBS_WORKS 4u

/* ---- The library ----------------------------------------------------------------------------- */

#define VERBS_SYMBOLS(X)                                                                           \
    X(ibv_ack_async_event)                                                                         \
    X(ibv_ack_cq_events)                                                                           \
    X(ibv_alloc_pd)                                                                                \
    X(ibv_close_device)                                                                            \
    X(ibv_create_comp_channel)                                                                     \
    X(ibv_create_cq)                                                                               \
    X(ibv_create_qp)                                                                               \
    X(ibv_dealloc_pd)                                                                              \
    X(ibv_dereg_mr)                                                                                \
    X(ibv_destroy_comp_channel)                                                                    \
    X(ibv_destroy_cq)                                                                              \
    X(ibv_destroy_qp)                                                                              \
    X(ibv_event_type_str)                                                                          \
    X(ibv_fork_init)                                                                               \
    X(ibv_free_device_list)                                                                        \
    X(ibv_get_async_event)                                                                         \
    X(ibv_get_cq_event)                                                                            \
    X(ibv_get_device_list)                                                                         \
    X(ibv_get_device_name)                                                                         \
    X(ibv_modify_qp)                                                                               \
    X(ibv_open_device)                                                                             \
    X(ibv_query_device)                                                                            \
    X(ibv_query_port)                                                                              \
    X(ibv_reg_mr)                                                                                  \
    X(ibv_wc_status_str)                                                                           \
    X(_ibv_query_gid_ex)

/* Macros in the header; here the functions are needed. */
#undef ibv_query_port
#undef ibv_reg_mr

/* NOLINTBEGIN(bugprone-macro-parentheses): `name` is one. */
static struct {
#define VERBS_POINTER(name) __typeof__(&(name)) name;
    VERBS_SYMBOLS(VERBS_POINTER)
} verbs;
/* NOLINTEND(bugprone-macro-parentheses) */

static pthread_once_t verbs_once = PTHREAD_ONCE_INIT;
static bool verbs_loaded;
static char verbs_why[256];

static bool verbs_find(void *library, const char *name, void *ret_pointer)
{
    void *const found = dlsym(library, name);
    memcpy(ret_pointer, &found, sizeof(found));
    if (found == NULL) {
        snprintf(verbs_why, sizeof(verbs_why), "libibverbs has no %s: it is older than 32", name);
    }
    return found != NULL;
}

static void verbs_load_once(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(verbs_why, sizeof(verbs_why), "no libibverbs: %s", dlerror());
        return;
    }
#define VERBS_FIND(name) &&verbs_find(library, #name, &verbs.name)
    verbs_loaded = true VERBS_SYMBOLS(VERBS_FIND);
    if (verbs_loaded) {
        /* Before 5.12 a fork would move pages of queues away from under the device. If another user
         * of the library has called it already, its choice stands. */
        (void)verbs.ibv_fork_init();
    }
}

/* The error for a call that failed with err. */
static hoop_result_t verbs_failed(const char *what, const char *device, int err)
{
    return hoop_errno_error(err, "%s of %s", what, device);
}

/* ---- Ports ----------------------------------------------------------------------------------- */

static const char *verbs_state(enum ibv_port_state state)
{
    static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

static void verbs_read_gids(struct ibv_context *context, int table, struct hoop_verbs_port *port)
{
    for (int i = 0; i < table && port->gid_count < HOOP_VERBS_GIDS; i++) {
        struct ibv_gid_entry entry;
        static const union ibv_gid none;
        if (verbs._ibv_query_gid_ex(context, port->port, (uint32_t)i, &entry, 0, sizeof(entry)) !=
                0 ||
            memcmp(&entry.gid, &none, sizeof(none)) == 0) {
            continue;
        }
        struct hoop_gid *gid = &port->gids[port->gid_count++];
        gid->index = (uint32_t)i;
        gid->type = (enum hoop_gid_type)entry.gid_type;
        memcpy(gid->raw, entry.gid.raw, sizeof(gid->raw));
    }
}

/* A port of which nothing could be read. */
static void verbs_read_nothing(const char *device, uint32_t port, const char *what, int err,
                               struct hoop_verbs_port *ret)
{
    *ret = (struct hoop_verbs_port){.port = port, .state = "unknown"};
    snprintf(ret->device, sizeof(ret->device), "%s", device);
    snprintf(ret->fault, sizeof(ret->fault), "it cannot be %s: %s", what, hoop_errno_name(err));
}

static void verbs_read_port(struct ibv_context *context, const struct ibv_device_attr *device,
                            uint32_t number, struct hoop_verbs_port *ret)
{
    struct ibv_port_attr attr = {.state = 0};
    *ret = (struct hoop_verbs_port){.port = number};
    const int err = verbs.ibv_query_port(context, (uint8_t)number, (void *)&attr);
    if (err != 0) {
        verbs_read_nothing(verbs.ibv_get_device_name(context->device), number, "queried", err, ret);
        return;
    }
    snprintf(ret->device, sizeof(ret->device), "%s", verbs.ibv_get_device_name(context->device));
    ret->state = verbs_state(attr.state);
    ret->active = attr.state == IBV_PORT_ACTIVE;
    ret->ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    ret->foreign = context->device->transport_type != IBV_TRANSPORT_IB;
    ret->global = ret->ethernet || (attr.flags & IBV_QPF_GRH_REQUIRED) != 0;
    ret->software = device->vendor_id == VERBS_VENDOR_RXE || device->vendor_id == VERBS_VENDOR_SIW;
    ret->mtu = (uint8_t)attr.active_mtu;
    ret->lid = attr.lid;
    verbs_read_gids(context, attr.gid_tbl_len, ret);
}

/* Reads at most `most` ports of a device, and returns their number. */
static uint32_t verbs_read_device(struct ibv_device *device, struct hoop_verbs_port *ret_ports,
                                  uint32_t most)
{
    const char *name = verbs.ibv_get_device_name(device);
    struct ibv_context *context = verbs.ibv_open_device(device);
    struct ibv_device_attr attr;
    uint32_t count = 0;
    if (context == NULL) {
        verbs_read_nothing(name, 1, "opened", errno, &ret_ports[0]);
        return 1;
    }
    const int err = verbs.ibv_query_device(context, &attr);
    if (err != 0) {
        verbs_read_nothing(name, 1, "asked what it is", err, &ret_ports[count++]);
    }
    for (uint32_t port = 1; err == 0 && port <= attr.phys_port_cnt && count < most; port++) {
        verbs_read_port(context, &attr, port, &ret_ports[count++]);
    }
    (void)verbs.ibv_close_device(context); /* nothing was made of it */
    return count;
}

static hoop_result_t verbs_ports(struct hoop_verbs_port *ret_ports, uint32_t most,
                                 uint32_t *ret_count)
{
    int devices = 0;
    struct ibv_device **list = verbs.ibv_get_device_list(&devices);
    *ret_count = 0;
    if (list == NULL) {
        return hoop_error(HOOP_SYSTEM_ERROR, "ibv_get_device_list: %s", hoop_errno_name(errno));
    }
    for (int i = 0; i < devices && *ret_count < most; i++) {
        *ret_count += verbs_read_device(list[i], &ret_ports[*ret_count], most - *ret_count);
    }
    verbs.ibv_free_device_list(list);
    return HOOP_OK;
}

/* ---- Devices and memory ---------------------------------------------------------------------- */

struct hoop_verbs_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    bool dead;
    char said[128]; /* the latest events of the device */
};

struct hoop_verbs_queue {
    struct hoop_verbs_device *device;
    struct ibv_qp *qp;
};

/* Accepts NULL and half-opened devices. Returns the first error, as it causes the others. */
static int verbs_close(struct hoop_verbs_device *device)
{
    if (device == NULL) {
        return 0;
    }
    int err = device->cq != NULL ? verbs.ibv_destroy_cq(device->cq) : 0;
    if (device->channel != NULL) {
        const int failed = verbs.ibv_destroy_comp_channel(device->channel);
        err = err != 0 ? err : failed;
    }
    if (device->pd != NULL) {
        const int failed = verbs.ibv_dealloc_pd(device->pd);
        err = err != 0 ? err : failed;
    }
    if (device->context != NULL && verbs.ibv_close_device(device->context) != 0 && err == 0) {
        err = errno != 0 ? errno : EIO;
    }
    free(device);
    return err;
}

static struct ibv_context *verbs_open_context(const char *name)
{
    struct ibv_context *context = NULL;
    struct ibv_device **list = verbs.ibv_get_device_list(NULL);
    errno = ENODEV; /* if it is no longer in the list */
    for (struct ibv_device **at = list; at != NULL && *at != NULL && context == NULL; at++) {
        if (strcmp(verbs.ibv_get_device_name(*at), name) == 0) {
            context = verbs.ibv_open_device(*at);
        }
    }
    if (list != NULL) {
        verbs.ibv_free_device_list(list);
    }
    return context;
}

static bool verbs_unblock(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static hoop_result_t verbs_open(const char *name, uint32_t entries, struct hoop_verbs_device **ret)
{
    struct hoop_verbs_device *device = calloc(1, sizeof(*device));
    const char *what = "memory for the use";
    if (device != NULL) {
        what = "opening";
        device->context = verbs_open_context(name);
    }
    if (device != NULL && device->context != NULL) {
        what = "a protection domain";
        device->pd = verbs.ibv_alloc_pd(device->context);
    }
    if (device != NULL && device->pd != NULL) {
        what = "a completion channel";
        device->channel = verbs.ibv_create_comp_channel(device->context);
    }
    if (device != NULL && device->channel != NULL && verbs_unblock(device->channel->fd) &&
        verbs_unblock(device->context->async_fd)) {
        what = "a completion queue";
        device->cq = verbs.ibv_create_cq(device->context, (int)entries, device, device->channel, 0);
    }
    if (device == NULL || device->cq == NULL) {
        const int err = errno != 0 ? errno : ENODEV;
        (void)verbs_close(device); /* report what failed first */
        return verbs_failed(what, name, err);
    }
    *ret = device;
    return HOOP_OK;
}

static const char *verbs_name(const struct hoop_verbs_device *device)
{
    return verbs.ibv_get_device_name(device->context->device);
}

static hoop_result_t verbs_register(struct hoop_verbs_device *device, void *data, size_t bytes,
                                    struct hoop_verbs_memory *ret)
{
    struct ibv_mr *mr =
        verbs.ibv_reg_mr(device->pd, data, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr == NULL) {
        const int err = errno;
        return hoop_errno_error(err, "registering %zu bytes with %s", bytes, verbs_name(device));
    }
    *ret = (struct hoop_verbs_memory){mr, mr->lkey, mr->rkey, bytes};
    return HOOP_OK;
}

static int verbs_release(struct hoop_verbs_memory *memory)
{
    const int err = memory->handle != NULL ? verbs.ibv_dereg_mr(memory->handle) : 0;
    memory->handle = NULL;
    return err;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

/* Finds how much the device takes inline by asking for less and less. */
static struct ibv_qp *verbs_create_qp(struct hoop_verbs_device *device,
                                      struct hoop_verbs_depth *depth)
{
    struct ibv_qp *qp = NULL;
    for (uint32_t least = 0; qp == NULL && !least; depth->inline_bytes /= 2) {
        struct ibv_qp_init_attr attr = {.send_cq = device->cq,
                                        .recv_cq = device->cq,
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {.max_send_wr = depth->sends,
                                                .max_recv_wr = depth->receives,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = depth->inline_bytes}};
        least = depth->inline_bytes == 0;
        qp = verbs.ibv_create_qp(device->pd, &attr);
        if (qp != NULL) {
            depth->inline_bytes = attr.cap.max_inline_data;
            return qp;
        }
    }
    return qp;
}

static hoop_result_t verbs_create_queue(struct hoop_verbs_device *device,
                                        struct hoop_verbs_depth *depth,
                                        struct hoop_verbs_queue **ret, uint32_t *ret_number)
{
    struct hoop_verbs_queue *queue = calloc(1, sizeof(*queue));
    if (queue == NULL) {
        return verbs_failed("memory for a queue", verbs_name(device), ENOMEM);
    }
    queue->device = device;
    queue->qp = verbs_create_qp(device, depth);
    if (queue->qp == NULL) {
        const int err = errno;
        free(queue);
        return verbs_failed("a queue pair", verbs_name(device), err);
    }
    *ret = queue;
    *ret_number = queue->qp->qp_num;
    return HOOP_OK;
}

static int verbs_destroy_queue(struct hoop_verbs_queue *queue)
{
    const int err = queue != NULL ? verbs.ibv_destroy_qp(queue->qp) : 0;
    free(queue);
    return err;
}

static int verbs_to_init(struct hoop_verbs_queue *queue, const struct hoop_verbs_route *route)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t)route->partition,
                               .port_num = (uint8_t)route->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    return verbs.ibv_modify_qp(
        queue->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int verbs_to_receive(struct hoop_verbs_queue *queue, const struct hoop_verbs_route *route)
{
    const struct hoop_verbs_address *mine = &route->mine, *peer = &route->peer;
    const uint8_t mtu = mine->mtu < peer->mtu ? mine->mtu : peer->mtu;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)mtu,
        .dest_qp_num = peer->number,
        .rq_psn = peer->sequence,
        .min_rnr_timer = VERBS_RNR_TIMER,
        .ah_attr = {.dlid = peer->lid,
                    .port_num = (uint8_t)route->port,
                    .sl = (uint8_t)route->service_level,
                    .is_global = route->global,
                    .grh = {.sgid_index = (uint8_t)route->gid_index,
                            .hop_limit = VERBS_HOPS,
                            .traffic_class = (uint8_t)route->traffic_class}}};
    memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    return verbs.ibv_modify_qp(queue->qp, &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                   IBV_QP_MIN_RNR_TIMER);
}

static int verbs_to_send(struct hoop_verbs_queue *queue, const struct hoop_verbs_route *route)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .sq_psn = route->mine.sequence,
                               .timeout = (uint8_t)route->timeout,
                               .retry_cnt = (uint8_t)route->retries,
                               .rnr_retry = VERBS_RNR_RETRIES};
    return verbs.ibv_modify_qp(queue->qp, &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static hoop_result_t verbs_connect(struct hoop_verbs_queue *queue,
                                   const struct hoop_verbs_route *route)
{
    int err = verbs_to_init(queue, route);
    err = err != 0 ? err : verbs_to_receive(queue, route);
    err = err != 0 ? err : verbs_to_send(queue, route);
    return err == 0 ? HOOP_OK
                    : verbs_failed("connecting a queue pair", verbs_name(queue->device), err);
}

/* ---- Work ------------------------------------------------------------------------------------ */

static enum ibv_wr_opcode verbs_opcode(const struct hoop_verbs_work *work)
{
    if (work->write) {
        return work->word_comes ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    }
    return work->word_comes ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
}

static int verbs_send(struct hoop_verbs_queue *queue, const struct hoop_verbs_work *works,
                      uint32_t count)
{
    struct ibv_sge parts[VERBS_WORKS];
    struct ibv_send_wr wrs[VERBS_WORKS], *bad = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct hoop_verbs_work *work = &works[i];
        parts[i] = (struct ibv_sge){(uintptr_t)work->data, work->bytes, work->local_key};
        wrs[i] = (struct ibv_send_wr){
            .wr_id = work->id,
            .next = i + 1 < count ? &wrs[i + 1] : NULL,
            .sg_list = &parts[i],
            .num_sge = work->bytes > 0,
            .opcode = verbs_opcode(work),
            .send_flags = (work->signaled ? IBV_SEND_SIGNALED : 0u) |
                          (work->is_inline ? IBV_SEND_INLINE : 0u),
            .imm_data = work->word,
            .wr = {.rdma = {work->remote_address, work->remote_key}},
        };
    }
    return ibv_post_send(queue->qp, wrs, &bad);
}

static int verbs_receive(struct hoop_verbs_queue *queue, uint64_t id, void *data, uint32_t bytes,
                         uint32_t local_key)
{
    struct ibv_sge part = {(uintptr_t)data, bytes, local_key};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &part, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    return ibv_post_recv(queue->qp, &wr, &bad);
}

static int verbs_take(struct hoop_verbs_device *device, struct hoop_verbs_event *ret_events,
                      int most)
{
    struct ibv_wc wc[16];
    const int came = ibv_poll_cq(device->cq, most < 16 ? most : 16, wc);
    for (int i = 0; i < came; i++) {
        const bool well = wc[i].status == IBV_WC_SUCCESS;
        ret_events[i] = (struct hoop_verbs_event){
            .id = wc[i].wr_id,
            .status = wc[i].status,
            .vendor = well ? 0 : wc[i].vendor_err,
            .has_word = well && (wc[i].wc_flags & IBV_WC_WITH_IMM) != 0,
            .word = well ? wc[i].imm_data : 0,
        };
    }
    return came;
}

static bool verbs_arm(struct hoop_verbs_device *device)
{
    return ibv_req_notify_cq(device->cq, 0) == 0;
}

static bool verbs_disarm(struct hoop_verbs_device *device)
{
    struct ibv_cq *cq = NULL;
    void *context = NULL;
    if (verbs.ibv_get_cq_event(device->channel, &cq, &context) != 0) {
        return false;
    }
    verbs.ibv_ack_cq_events(cq, 1);
    return true;
}

static int verbs_watch_fd(struct hoop_verbs_device *device)
{
    return device->channel->fd;
}

/* ---- Events of a device ---------------------------------------------------------------------- */

/* The port that an event is about; 0: none. */
static int verbs_event_port(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
        return event->element.port_num;
    default:
        return 0;
    }
}

/* Collects the events since the last time; if there is no room, the older text is dropped. */
static void verbs_listen(struct hoop_verbs_device *device)
{
    struct ibv_async_event event;
    while (verbs.ibv_get_async_event(device->context, &event) == 0) {
        const int port = verbs_event_port(&event);
        char line[sizeof(device->said) / 2], of[24] = "";
        if (port > 0) {
            snprintf(of, sizeof(of), " of port %d", port);
        }
        const int bytes = snprintf(line, sizeof(line), "; the device said: %s%s",
                                   verbs.ibv_event_type_str(event.event_type), of);
        size_t length = strlen(device->said);
        length = length + (size_t)bytes < sizeof(device->said) ? length : 0;
        snprintf(device->said + length, sizeof(device->said) - length, "%s", line);
        device->dead = device->dead || event.event_type == IBV_EVENT_DEVICE_FATAL ||
                       event.event_type == IBV_EVENT_CQ_ERR;
        verbs.ibv_ack_async_event(&event);
    }
}

static hoop_result_t verbs_check(struct hoop_verbs_device *device)
{
    verbs_listen(device);
    return device->dead
               ? hoop_error(HOOP_SYSTEM_ERROR, "nothing completes any more%s", device->said)
               : HOOP_OK;
}

static void verbs_explain(struct hoop_verbs_device *device, const struct hoop_verbs_event *event,
                          char *buf, size_t bytes)
{
    verbs_listen(device);
    snprintf(buf, bytes, "%s (verbs status %d, the vendor's %#x)%s",
             verbs.ibv_wc_status_str((enum ibv_wc_status)event->status), event->status,
             event->vendor, device->said);
}

static const struct hoop_verbs verbs_real = {
    .ports = verbs_ports,
    .open = verbs_open,
    .close = verbs_close,
    .register_memory = verbs_register,
    .release_memory = verbs_release,
    .create_queue = verbs_create_queue,
    .connect_queue = verbs_connect,
    .destroy_queue = verbs_destroy_queue,
    .send = verbs_send,
    .receive = verbs_receive,
    .take = verbs_take,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .watch_fd = verbs_watch_fd,
    .check = verbs_check,
    .explain = verbs_explain,
};

const struct hoop_verbs *hoop_verbs_load(void)
{
    pthread_once(&verbs_once, verbs_load_once);
    if (!verbs_loaded) {
        (void)hoop_error(HOOP_SYSTEM_ERROR, "%s", verbs_why);
        return NULL;
    }
    return &verbs_real;
}
