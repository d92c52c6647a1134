/*
 * Doubly linked lists whose nodes are embedded in the elements. The list head is a node, too,
 * placed before the first element and after the last. A node that is in no list is zeroed.
 *
 *      struct thing { struct hoop_list_node node; ... };
 *      HOOP_LIST_EACH(struct thing, thing, &things, node) {
 *          ...
 *      }
 */
#ifndef HOOP_BASE_LIST_H
#define HOOP_BASE_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct hoop_list_node {
    struct hoop_list_node *next, *prev;
};

/* Static initialiser: static struct hoop_list_node things = HOOP_LIST_EMPTY(things); */
#define HOOP_LIST_EMPTY(list)                                                                      \
    {                                                                                              \
        &(list), &(list)                                                                           \
    }

#define HOOP_CONTAINER_OF(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* Iterates in order. The body may remove the current node, and no other.
 * NOLINTBEGIN(bugprone-macro-parentheses): `thing` is a name. */
#define HOOP_LIST_EACH(type, thing, list, member)                                                  \
    for (type *thing = HOOP_CONTAINER_OF((list)->next, type, member),                              \
              *thing##_next = HOOP_CONTAINER_OF(thing->member.next, type, member);                 \
         &thing->member != (list);                                                                 \
         thing = thing##_next, thing##_next = HOOP_CONTAINER_OF(thing->member.next, type, member))
/* NOLINTEND(bugprone-macro-parentheses) */

static inline void hoop_list_init(struct hoop_list_node *list)
{
    list->next = list->prev = list;
}

static inline bool hoop_list_is_empty(const struct hoop_list_node *list)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a freed element has left the list */
    return list->next == list;
}

/* Returns NULL if the list is empty. */
static inline struct hoop_list_node *hoop_list_first(const struct hoop_list_node *list)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a freed element has left the list */
    return hoop_list_is_empty(list) ? NULL : list->next;
}

/* Inserts node before another one; inserting before the list head appends. */
static inline void hoop_list_insert(struct hoop_list_node *before, struct hoop_list_node *node)
{
    assert(node->next == NULL);
    node->next = before;
    node->prev = before->prev;
    before->prev->next = node;
    before->prev = node;
}

static inline void hoop_list_push_back(struct hoop_list_node *list, struct hoop_list_node *node)
{
    hoop_list_insert(list, node);
}

static inline bool hoop_list_is_linked(const struct hoop_list_node *node)
{
    return node->next != NULL;
}

/* Does nothing if the node is in no list. */
static inline void hoop_list_remove(struct hoop_list_node *node)
{
    if (hoop_list_is_linked(node)) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        node->next = node->prev = NULL;
    }
}

#endif
